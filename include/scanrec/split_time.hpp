// SPDX-License-Identifier: BSD-3-Clause
// One sequence in parts: what a part of time does to the state before it, and the states between
// parts. Parts may be anywhere, in other processes or computed later; who carries the maps is not
// the concern of this header (scanrec/mpi.hpp carries them by MPI).
//
//     part k takes a state x to a_k x + u_k:        x_{k+1} = a_k x_k + u_k
//
// a_k is the product of the part's gates, u_k the state that it ends in from 0. Folded from left to
// right, one map per part and sequence, every process that holds the maps comes to the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <scanrec/affine.hpp>
#include <scanrec/cells/cell.hpp>
#include <scanrec/element.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/linear_scan.hpp>
#include <scanrec/options.hpp>
#include <scanrec/views.hpp>

namespace scanrec::inline SCANREC_ABI {

/// A state in the wide type, in which parts are folded: of a real number the number itself.
template <class T>
using part_state = simd::lane_t<wide_t<T>, 1>;
/// What a part does to a state of compute type T: state -> a * state + u.
template <class T>
using part_map = affine<part_state<T>>;

/// Options of the summaries; those of the call on the part.
struct part_options {
  direction order = direction::forward;
  sequence_view<const bool> resets{};
  sequence_view<const bool> zoneout{};  ///< of gated scans
};

}  // namespace scanrec::inline SCANREC_ABI

namespace scanrec::detail::inline SCANREC_ABI {

/// A contiguous array over the sequences of a shape: group, batch, channel.
template <class T>
class lane_array {
 public:
  explicit lane_array(const extents& shape)
      : shape_(shape),
        values_(static_cast<std::size_t>(shape.group * shape.batch * shape.channel)) {}
  [[nodiscard]] state_view<T> view() { return {values_.data(), shape_}; }
  [[nodiscard]] const std::vector<T>& values() const { return values_; }

 private:
  extents shape_;
  std::vector<T> values_;
};
inline std::int64_t lanes_in(const extents& shape) {
  return shape.group * shape.batch * shape.channel;
}

template <class T>
part_state<T> widened_state(const T& x) {
  return simd::to_wide<part_state<T>>(simd::from_element(x));
}
template <class T>
T narrowed_state(const part_state<T>& x) {
  return simd::to_element<T>(simd::from_wide<simd::lane_t<T, 1>>(x));
}

/// Where every sequence ends from 1 without input: in the product of its gates, or in 0 behind a
/// cut.
template <class Backend, class Gate, class T>
void end_in_product(const Backend& backend, const Gate& gate, const part_options& options,
                    const state_view<T>& products) {
  const T zero{};
  linear_scan(
      backend, gate, sequence_view<const T>(&zero, gate.shape, strides{}), none,
      {.order = options.order,
       .initial_state = state_view<const T>(products.data, products.shape, products.strides),
       .final_state = products,
       .resets = options.resets});
}
/// Copies numbers in the wide type, contiguously.
template <class View, class Wide>
void widen(const View& from, Wide* to) {
  using state = simd::lane_t<Wide, 1>;
  // One sequence is a row along time.
  const bool along_time = from.shape.channel == 1;
  const std::int64_t rows = along_time ? 1 : from.shape.time;
  const std::int64_t row = along_time ? from.shape.time : from.shape.channel;
  const std::int64_t stride = along_time ? from.strides.time : from.strides.channel;
  for (std::int64_t g = 0; g < from.shape.group; ++g)
    for (std::int64_t b = 0; b < from.shape.batch; ++b)
      for (std::int64_t t = 0; t < rows; ++t) {
        const auto* x = &from.at(b, t, 0, g);
        for (std::int64_t i = 0; i < row; ++i)
          *to++ = simd::to_element<Wide>(simd::to_wide<state>(simd::from_element(x[i * stride])));
      }
}
/// The product of the gates of every sequence, in the wide type: a product of floats would vanish
/// below 2^-149, and with it a state of 2^100 that the loop keeps. Gates are widened some steps at
/// a time, until all products are 0; one that is the same at all steps is raised to their number.
template <class Backend, class Gate>
std::vector<part_state<value_of<Gate>>> products_of(const Backend& backend, const Gate& gate,
                                                    const part_options& options) {
  using state = part_state<value_of<Gate>>;
  using wide = wide_t<value_of<Gate>>;
  const bool constant = gate.strides.time == 0 && options.resets.absent();
  extents shape = gate.shape;
  if (constant) shape.time = std::min<std::int64_t>(shape.time, 1);
  std::vector<wide> ends(static_cast<std::size_t>(lanes_in(shape)), wide(1));
  const state_view<wide> products(ends.data(), shape);
  constexpr std::int64_t together = 1 << 15;  // numbers that are widened: they stay in the cache
  const std::int64_t steps =
      std::max<std::int64_t>(1, together / std::max<std::int64_t>(1, lanes_in(shape)));
  std::vector<wide> gates(static_cast<std::size_t>(std::min(steps, shape.time) * lanes_in(shape)));
  for (std::int64_t done = 0; done < shape.time; done += steps) {
    extents piece = shape;
    piece.time = std::min(steps, shape.time - done);
    const std::int64_t first =
        options.order == direction::forward ? done : shape.time - done - piece.time;
    widen(gate.steps(first, first + piece.time), gates.data());
    part_options here{.order = options.order};
    if (!options.resets.absent())
      here.resets =
          options.resets.steps(first, std::min(first + piece.time + 1, options.resets.shape.time));
    end_in_product(backend, sequence_view<const wide>(gates.data(), piece), here, products);
    // What is 0 stays so. A gate further on that is not finite is met by the walk from 0 as well,
    // which then ends in a state that is not finite either, whatever the product is.
    if (std::ranges::all_of(ends, [](const wide& end) { return end == wide(0); })) break;
  }
  std::vector<state> all;
  all.reserve(ends.size());
  for (const wide& end : ends) {
    state power = simd::from_element(end), product = power;
    if (constant) {
      product = simd::constant<state>(1);
      for (std::int64_t left = gate.shape.time; left > 0; left /= 2) {
        if (left % 2 == 1) product = simd::mul(product, power);
        power = simd::mul(power, power);
      }
    }
    all.push_back(product);
  }
  return all;
}
/// A cell that makes the gates of another, and no inputs: from 1 it ends in their product.
template <class Cell>
struct gates_of {
  using outputs = output_is_state;
  template <class View>
  using arrays = typename Cell::template arrays<View>;
  static constexpr auto names = Cell::names;
  template <class Lane>
  using step = typename Cell::template step<Lane>;
  Cell cell;

  template <class... Lanes>
  SCANREC_HD SCANREC_INLINE auto load(Lanes... lanes) const {
    return cell.load(lanes...);
  }
  template <class Step>
  SCANREC_HD SCANREC_INLINE auto map(const Step& s) const {
    auto m = cell.map(s);
    m.u = simd::constant<std::remove_cvref_t<decltype(m.u)>>(0);
    return m;
  }
  /// Nobody asks for them.
  template <class Step, class Lane>
  SCANREC_HD SCANREC_INLINE std::array<Lane, names.size()> gradients(
      const Step&, const cell_cotangents<Lane>&) const {
    return {};
  }
};
template <class Cell, class Backend, class Arrays>
auto gated_products(const Backend& backend, const Cell& cell, const Arrays& arrays,
                    const part_options& options) {
  using value = compute_t<stored_in<Cell, Arrays>>;
  const extents shape = listed<Cell::names.size()>(arrays)[0].shape;
  lane_array<value> ends(shape);
  const value one(1);
  gated_scan(backend, gates_of<Cell>{cell}, arrays, none, none,
             {.order = options.order,
              .initial_state = state_view<const value>(&one, shape, strides{}),
              .final_state = ends.view(),
              .resets = options.resets,
              .zoneout = options.zoneout});
  std::vector<part_state<value>> products;
  products.reserve(ends.values().size());
  for (const value& end : ends.values()) products.push_back(widened_state(end));
  return products;
}
template <class T>
std::vector<part_map<T>> part_maps(const std::vector<part_state<T>>& products,
                                   const std::vector<T>& ends) {
  std::vector<part_map<T>> maps;
  maps.reserve(ends.size());
  for (std::size_t i = 0; i < ends.size(); ++i)
    maps.push_back({products[i], widened_state(ends[i])});
  return maps;
}

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

template <class Cell>
struct rough_cell<detail::gates_of<Cell>> {
  using type = detail::gates_of<typename rough_cell<Cell>::type>;
  static type of(const detail::gates_of<Cell>& gates) { return {rough_cell<Cell>::of(gates.cell)}; }
};

/// What linear_scan over a part of time does to the states before it: one map per sequence, by
/// group, batch and channel.
///
/// Shapes   gate, input: (batch, time, channel), of the part, as linear_scan takes them; numbers,
///          real or complex. A part without steps is the identity.
/// Throws   argument_error; std::bad_alloc.
/// Error    of a and of u that of linear_scan, relative to the magnitudes they are made of: a state
///          that is folded through maps is within the bound of linear_scan over the whole sequence.
/// Cost     reads gate and input once, and the gate again, in the calling thread, up to where all
///          products are 0 (of 0.99, after 75,000 steps); one that is constant in time not at all.
template <backend Backend, sequence Gate, sequence Input>
[[nodiscard]] std::vector<part_map<detail::value_of<Gate>>> linear_scan_summary(
    const Backend& backend, const Gate& gate, const Input& input,
    const part_options& options = {}) {
  using value = detail::value_of<Gate>;
  static_assert(!scanrec::detail::is_vec<value>,
                "scanrec: parts of sequences of vectors have no summary: their gates are matrices");
  detail::lane_array<value> ends(gate.shape);
  linear_scan(backend, gate, input, none,
              {.order = options.order, .final_state = ends.view(), .resets = options.resets});
  return detail::part_maps(detail::products_of(backend, gate, options), ends.values());
}

/// What linear_scan_vjp over a part of time does to the gradient of the states after it, which
/// becomes that of the states before it: c -> conj(a) c + u, a being the product of the gates.
///
/// Shapes   gate, state_grad: (batch, time, channel), of the part; state_grad may be `none`.
/// Throws, error, cost   as linear_scan_summary.
template <backend Backend, sequence Gate, sequence_argument StateGrad>
[[nodiscard]] std::vector<part_map<detail::value_of<Gate>>> linear_scan_vjp_summary(
    const Backend& backend, const Gate& gate, const StateGrad& state_grad,
    const part_options& options = {}, conjugation convention = conjugation::hermitian) {
  using value = detail::value_of<Gate>;
  static_assert(!scanrec::detail::is_vec<value>,
                "scanrec: parts of sequences of vectors have no summary: their gates are matrices");
  using input_t = detail::stored_or<StateGrad, value>;
  auto products = detail::products_of(backend, gate, options);
  if (convention == conjugation::hermitian)
    for (auto& a : products) a = simd::conj_if(-1.0, a);
  detail::lane_array<value> begins(gate.shape);
  const value zero{};
  const state_view<const value> no_grad(&zero, gate.shape, strides{});
  using gate_t = std::remove_const_t<typename detail::sequence_traits<Gate>::stored>;
  linear_scan_vjp(backend, gate, none, state_grad,
                  scan_gradients<gate_t, input_t>{.initial_grad = begins.view()},
                  {.order = options.order,
                   .final_grad = no_grad,
                   .resets = options.resets,
                   .convention = convention});
  return detail::part_maps(products, begins.values());
}

/// What linear_scan_jvp over a part of time does to the tangents of the states before it.
///
/// Shapes   as linear_scan_jvp, of the part; `initial_state` is the state before it, which stands
///          beside the tangent of its first gate; absent: 0.
/// Throws, error   as linear_scan_summary. Cost: what linear_scan_jvp reads, and the gate once
/// more.
template <backend Backend, sequence Gate, sequence_argument State, sequence_argument GateTangent,
          sequence_argument InputTangent>
[[nodiscard]] std::vector<part_map<detail::value_of<Gate>>> linear_scan_jvp_summary(
    const Backend& backend, const Gate& gate, const State& state, const GateTangent& gate_tangent,
    const InputTangent& input_tangent, const part_options& options = {},
    const state_view<const std::type_identity_t<detail::value_of<Gate>>>& initial_state = {}) {
  using value = detail::value_of<Gate>;
  static_assert(!scanrec::detail::is_vec<value>,
                "scanrec: parts of sequences of vectors have no summary: their gates are matrices");
  detail::lane_array<value> ends(gate.shape);
  linear_scan_jvp(backend, gate, state, gate_tangent, input_tangent, none,
                  {.order = options.order,
                   .initial_state = initial_state,
                   .final_tangent = ends.view(),
                   .resets = options.resets});
  return detail::part_maps(detail::products_of(backend, gate, options), ends.values());
}

/// What gated_scan over a part of time does to the states before it.
///
/// Shapes, throws   as gated_scan, of the part. Error: as linear_scan_summary.
/// Cost     reads and activates every array twice. The product of a cell's gates is formed in the
///          compute type: of floats it vanishes below 2^-149.
template <backend Backend, gated_cell Cell, class Arrays>
[[nodiscard]] auto gated_scan_summary(const Backend& backend, const Cell& cell,
                                      const Arrays& arrays, const part_options& options = {}) {
  using value = compute_t<detail::stored_in<Cell, Arrays>>;
  detail::lane_array<value> ends(detail::listed<Cell::names.size()>(arrays)[0].shape);
  gated_scan(backend, cell, arrays, none, none,
             {.order = options.order,
              .final_state = ends.view(),
              .resets = options.resets,
              .zoneout = options.zoneout});
  return detail::part_maps(detail::gated_products(backend, cell, arrays, options), ends.values());
}

/// What gated_scan_vjp over a part of time does to the gradient of the states after it, which
/// becomes that of the states before it.
///
/// Shapes, memory, throws   as gated_scan_vjp, of the part. Error: as linear_scan_summary.
/// Cost     what gated_scan_vjp reads, and every array once more.
template <backend Backend, gated_cell Cell, class Arrays, class Memory,
          sequence_argument OutputGrad>
[[nodiscard]] auto gated_scan_vjp_summary(
    const Backend& backend, const Cell& cell, const Arrays& arrays, const Memory& kept,
    const OutputGrad& output_grad, const part_options& options = {},
    const state_view<const compute_t<detail::stored_in<Cell, Arrays>>>& initial_state = {}) {
  using stored = detail::stored_in<Cell, Arrays>;
  using value = compute_t<stored>;
  const extents shape = detail::listed<Cell::names.size()>(arrays)[0].shape;
  detail::lane_array<value> begins(shape);
  const value zero{};
  gated_scan_vjp(backend, cell, arrays, kept, output_grad,
                 gated_gradients<Cell, stored>{.initial_grad = begins.view()},
                 {.order = options.order,
                  .initial_state = initial_state,
                  .final_grad = state_view<const value>(&zero, shape, strides{}),
                  .resets = options.resets,
                  .zoneout = options.zoneout});
  return detail::part_maps(detail::gated_products(backend, cell, arrays, options), begins.values());
}

/// The states behind a part: every state by its map. From left to right over parts, whoever does it
/// gets the same bits.
template <class T>
void fold_part(std::span<const affine<T>> maps, std::span<T> states) {
  for (std::size_t i = 0; i < states.size(); ++i) states[i] = maps[i].act(states[i]);
}

}  // namespace scanrec::inline SCANREC_ABI
