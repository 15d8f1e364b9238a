// SPDX-License-Identifier: BSD-3-Clause
// Products of the gates of a part of the time axis, in the wide type. In float, a product below
// 2^-150 would become 0. The contribution of a state of 2^100 would then be lost, although a serial
// loop keeps it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <scanrec/cells/cell.hpp>
#include <scanrec/detail/split_time/pieces.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/linear_scan.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The products of the gates, one for each sequence; T is the compute type.
template <class T>
struct gate_products {
  std::vector<wide_lane<T>> values;
  std::int64_t vanish_after;  ///< steps after which all products count as 0; time + 1: never
};

/// Multiplies gates piece by piece, and stops when all products count as 0. gates(first, last)
/// returns those of steps [first, last) in the wide type. Later gates need not be read, even if one
/// of them is NaN or infinite and the full product would be NaN. In that case the final state of
/// the part, computed from a zero initial state, is not finite either, unless a reset follows. A
/// reset makes the product 0 anyway.
template <class T, class Backend, class Gates>
gate_products<T> products_by_pieces(const Backend& backend, const extents& shape, direction order,
                                    const sequence_view<const bool>& resets, Gates gates) {
  using wide = wide_t<T>;
  const wide zero{};
  std::vector<wide> ends(static_cast<std::size_t>(lanes_in(shape)), wide(1));
  const state_view<wide> running(ends.data(), shape);
  const std::int64_t done = until(shape, order, [&](std::int64_t first, std::int64_t last) {
    const sequence_view<const wide> piece = gates(first, last);
    linear_scan(backend, piece, sequence_view<const wide>(&zero, piece.shape, strides{}), none,
                {.order = order,
                 .initial_state = state_view<const wide>(ends.data(), shape),
                 .final_state = running,
                 .resets = reset_mask_of(resets, first, last)});
    return all_vanish<T>(ends, least_product<T>());
  });
  gate_products<T> products{{}, done};
  products.values.reserve(ends.size());
  for (const wide& end : ends) products.values.push_back(simd::from_element(end));
  return products;
}

/// The products of stored gates. Without resets, a gate that is constant in time is raised to the
/// power of the number of steps. `vanish_after` is then rounded up to a power of two, or to
/// time + 1 if that power exceeds the number of steps.
template <class Backend, class Gate>
gate_products<value_of<Gate>> products_of(const Backend& backend, const Gate& gate, direction order,
                                          const sequence_view<const bool>& resets) {
  using value = value_of<Gate>;
  const bool constant = gate.strides.time == 0 && resets.absent();
  extents shape = gate.shape;
  if (constant) shape.time = std::min<std::int64_t>(shape.time, 1);
  std::vector<wide_t<value>> buffer;
  gate_products<value> products = products_by_pieces<value>(
      backend, shape, order, resets,
      [&](std::int64_t first, std::int64_t last) { return widened(gate, first, last, buffer); });
  if (constant) {
    const std::int64_t time = gate.shape.time;
    products.vanish_after = 0;
    for (wide_lane<value>& x : products.values) {
      wide_lane<value> power = x;  // the product of `steps` gates
      std::int64_t steps = 1, gone = time + 1;
      x = simd::constant<wide_lane<value>>(1);
      for (std::int64_t left = time; left > 0; left /= 2, steps *= 2) {
        if (left % 2 == 1) x = simd::mul(x, power);
        if (gone > time && simd::size_of(power) < least_product<value>()) gone = steps;
        power = simd::mul(power, power);
      }
      products.vanish_after = std::max(products.vanish_after, gone);
    }
  }
  return products;
}

/// The parts of a gate that is the sum of a rounded value and its rounding error, the rest.
enum class gate_part { value, rest };

/// A cell whose outputs are the gates of another cell, or the rests of these gates.
template <class Cell, gate_part Part = gate_part::value>
struct gates_of {
  struct outputs {
    static constexpr int array = -1;
    template <class Step, class Lane>
    SCANREC_HD static SCANREC_INLINE Lane of(const Step& s, Lane) {
      return s.gate;
    }
  };
  template <class View>
  using arrays = typename Cell::template arrays<View>;
  static constexpr auto names = Cell::names;
  template <class Lane>
  struct step {
    Lane gate;
  };
  Cell cell;

  template <class Lane, class... Lanes>
  SCANREC_HD SCANREC_INLINE step<Lane> load(Lane first, Lanes... lanes) const {
    const auto m = cell.map(cell.load(first, lanes...));
    if constexpr (Part == gate_part::rest)
      return {m.rest};
    else
      return {m.a};
  }
  template <class Lane>
  SCANREC_HD SCANREC_INLINE affine<Lane> map(const step<Lane>&) const {
    return affine<Lane>::constant(simd::constant<Lane>(0));
  }
  /// Required of a cell, but never used.
  template <class Step, class Lane>
  SCANREC_HD SCANREC_INLINE std::array<Lane, names.size()> gradients(
      const Step&, const cell_cotangents<Lane>&) const {
    return {};
  }
};

/// Steps [first, last) of the arrays of a cell.
template <class Cell, class Arrays>
auto steps_of_arrays(const Arrays& arrays, std::int64_t first, std::int64_t last) {
  const auto views = listed<Cell::names.size()>(arrays);
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    using view = typename decltype(views)::value_type;
    return typename Cell::template arrays<view>{views[I].steps(first, last)...};
  }
  (std::make_index_sequence<Cell::names.size()>{});
}

/// Whether the gates of a cell are sums of a value and a rest, for pre-activations of type T.
template <class Cell, class T>
inline constexpr bool has_rests = [] {
  using step = typename Cell::template step<simd::lane_t<T, 1>>;
  return requires(const Cell& cell, const step& s) { cell.map(s).rest; };
}();

/// The products of the gates that a cell computes. A step with zoneout has a gate of 1.
template <class Backend, class Cell, class Arrays>
auto gated_products(const Backend& backend, const Cell& cell, const Arrays& arrays, direction order,
                    const sequence_view<const bool>& resets,
                    const sequence_view<const bool>& zoneout) {
  using value = compute_t<stored_in<Cell, Arrays>>;
  const extents shape = listed<Cell::names.size()>(arrays)[0].shape;
  using wide = wide_t<value>;
  std::vector<value> made;
  std::vector<wide> buffer, rests;
  return products_by_pieces<value>(
      backend, shape, order, resets, [&](std::int64_t first, std::int64_t last) {
        extents piece = shape;
        piece.time = last - first;
        made.resize(static_cast<std::size_t>(lanes_in(piece) * piece.time));
        const sequence_view<value> gates(made.data(), piece);
        const auto make = [&](const auto& parts, value zoned_out, std::vector<wide>& to) {
          gated_scan(backend, parts, steps_of_arrays<Cell>(arrays, first, last), gates, none, {});
          if (!zoneout.absent())
            for (std::int64_t g = 0; g < piece.group; ++g)
              for (std::int64_t b = 0; b < piece.batch; ++b)
                for (std::int64_t t = 0; t < piece.time; ++t)
                  for (std::int64_t c = 0; c < piece.channel; ++c)
                    if (zoneout.at(b, first + t, c, g)) gates.at(b, t, c, g) = zoned_out;
          return widened(gates, 0, piece.time, to);
        };
        const sequence_view<const wide> all = make(gates_of<Cell>{cell}, value(1), buffer);
        if constexpr (has_rests<Cell, value> && !std::is_same_v<value, wide>) {
          make(gates_of<Cell, gate_part::rest>{cell}, value(0), rests);
          for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] += rests[i];
        }
        return all;
      });
}

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

template <class Cell, detail::gate_part Part>
struct rough_cell<detail::gates_of<Cell, Part>> {
  using type = detail::gates_of<typename rough_cell<Cell>::type, Part>;
  static type of(const detail::gates_of<Cell, Part>& gates) {
    return {rough_cell<Cell>::of(gates.cell)};
  }
};

}  // namespace scanrec::inline SCANREC_ABI
