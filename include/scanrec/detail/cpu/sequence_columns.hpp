// SPDX-License-Identifier: BSD-3-Clause
// Stores the maps of a work item as matrix columns: the slots of a sequence (one per step, see
// map_scan in materialised.hpp) are contiguous. A buffer, whose lanes lie along either axis, holds
// steps while they are loaded or finished.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/materialised_plan.hpp>
#include <scanrec/detail/maps/map_planes.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The axis along which a gate is shared.
enum class shared_gate { nothing, along_channels, in_time };

/// The inputs, factors and resets of a work item's sequences. Sequence (channel, row) has number
/// channel * rows + row. If channels share factors, the sequence of the first channel in the row
/// holds them. If a factor is shared in time, factors[channel] holds it.
template <class Columns, class T>
struct sequence_columns {
  using maps = map_planes<T>;

  std::int64_t sequence(std::int64_t channel, std::int64_t row) const {
    return channel * rows + row;
  }
  T* inputs_of(std::int64_t sequence) const { return inputs + sequence * length; }
  T* factors_of(std::int64_t sequence) const { return factors + sequence * length; }
  /// Whether factors and resets are stored for every step of this channel.
  bool has_factors(std::int64_t channel) const {
    return gate == shared_gate::nothing || (gate == shared_gate::along_channels && channel == 0);
  }
  bool reset_at(std::int64_t sequence, std::int64_t t) const {
    return any_resets && resets[sequence * length + t] != 0;
  }

  /// Whether only the inputs of the slots of a line from `begin` on are needed, not the factors.
  bool states_only(std::int64_t line, std::int64_t begin) const {
    return gate == shared_gate::in_time ? begin > 1 : !has_factors(channels_of(line).first);
  }
  /// Copies the slots [begin, end) of a line from a buffer.
  void take(const maps& from, std::int64_t line, std::int64_t begin, std::int64_t end) const {
    transpose<true>(from, line, begin, end);
    if (!any_resets) return;
    const auto [row, first, last] = channels_of(line);
    for (std::int64_t c = first; c < last && has_factors(c); ++c)
      for (std::int64_t t = begin; t < end; ++t)
        resets[sequence(c, row) * length + t] = from.reset(t * plan->width + c - first) != 0;
  }
  /// Copies the states in the slots [begin, end) of a line to a buffer.
  void give(const maps& to, std::int64_t line, std::int64_t begin, std::int64_t end) const {
    transpose<false>(to, line, begin, end);
  }

  shared_gate gate;
  bool any_resets;
  std::int64_t rows, channels, steps;
  std::int64_t length;  // elements of a sequence: `steps`, rounded up to whole chunks
  T* inputs;            // replaced by states later
  T* factors;
  unsigned char* resets;
  const materialised_plan* plan;

 private:
  static constexpr int lanes = simd::lanes_v<T>;
  using lane = simd::lane_t<T, lanes>;
  using scalar = simd::lane_t<T, 1>;

  struct line_channels {
    std::int64_t row, first, last;
  };
  line_channels channels_of(std::int64_t line) const {
    const std::int64_t first = line % plan->channel_lines() * plan->line;
    return {line / plan->channel_lines(), first, first + plan->line};
  }

  // Transposes slots and channels, in squares, from a line to its sequences or (if not `There`)
  // back. With lanes along time a line has one channel, and packs are copied.
  template <bool There>
  [[gnu::noinline]] void transpose(maps m, std::int64_t line, std::int64_t begin,
                                   std::int64_t end) const {
    const line_channels of = channels_of(line);  // clang 14 captures no structured binding
    const std::int64_t row = of.row, first = of.first, last = of.last;
    std::int64_t whole = begin;
    if constexpr (Columns::along_time)
      whole = copy_packs<There>(m, sequence(first, row) * length, begin, end);
    else
      for (; whole + lanes <= end; whole += lanes)
        for (std::int64_t c = 0; c < channels; c += lanes)
          transpose_square<There>(m, row, c, whole);
    // The slots after the last whole square or pack.
    for (std::int64_t c = first; c < last; ++c) {
      T* const x = inputs_of(sequence(c, row));
      T* const a = factors_of(sequence(c, row));
      const auto slot = [&](std::int64_t t) { return t * plan->width + c - first; };
      for (std::int64_t t = whole; t < end; ++t) {
        if constexpr (There) {
          x[t] = simd::to_element<T>(m.template load<scalar>(slot(t)));
          if (has_factors(c)) a[t] = factor_in(m, slot(t));
        } else {
          m.store(slot(t), simd::from_element(x[t]));
        }
      }
      if constexpr (There) {
        // Only one of the equal factors is stored, the one of slot 1: slot 0 has none.
        if (gate == shared_gate::in_time && begin == 1) factors[c] = factor_in(m, slot(1));
        // The squares leave out factors that all channels share.
        if (gate == shared_gate::along_channels && c == 0 && !Columns::along_time)
          for (std::int64_t t = begin; t < whole; ++t) a[t] = factor_in(m, slot(t));
        // The last chunk is padded with zeros.
        if (end >= steps) std::fill(x + steps, x + length, T(0));
      }
    }
  }
  static T factor_in(const maps& m, std::int64_t i) {
    return simd::to_element<T>(m.template load<affine<scalar>>(i).a);
  }
  template <bool There>
  std::int64_t copy_packs(const maps& m, std::int64_t start, std::int64_t begin,
                          std::int64_t end) const {
    const bool with_factors = There && !m.states_only && gate != shared_gate::in_time;
    std::int64_t t = begin;
    for (; t + lanes <= end; t += lanes) {
      if constexpr (There)
        simd::store_unit(inputs + start + t, m.template load<lane>(t));
      else
        m.store(t, simd::load_unit<lane>(static_cast<const T*>(inputs + start + t)));
      if (with_factors) simd::store_unit(factors + start + t, m.template load<affine<lane>>(t).a);
    }
    return t;
  }
  template <bool There>
  void transpose_square(const maps& m, std::int64_t row, std::int64_t c, std::int64_t t) const {
    const std::int64_t used = std::min<std::int64_t>(lanes, channels - c);
    const auto sequence_at = [&](T* first, std::int64_t k) {
      return first + sequence(c + k, row) * length + t;
    };
    lane square[lanes];
    const auto for_slots = [&](auto f) SCANREC_LAMBDA {
      for (int i = 0; i < lanes; ++i) f(square[i], (t + i) * plan->width + c);
    };
    const auto store = [&](T* first) SCANREC_LAMBDA {
      simd::transpose(square);
      for (std::int64_t k = 0; k < used; ++k) simd::store_unit(sequence_at(first, k), square[k]);
    };
    if constexpr (There) {
      for_slots([&](lane& x, std::int64_t i) SCANREC_LAMBDA { x = m.template load<lane>(i); });
      store(inputs);
      if (gate != shared_gate::nothing) return;
      for_slots([&](lane& x, std::int64_t i)
                    SCANREC_LAMBDA { x = m.template load<affine<lane>>(i).a; });
      store(factors);
    } else {
      for (std::int64_t k = 0; k < lanes; ++k)
        square[k] = simd::load_unit<lane>(
            static_cast<const T*>(sequence_at(inputs, std::min(k, used - 1))));
      simd::transpose(square);
      for_slots([&](const lane& x, std::int64_t i) SCANREC_LAMBDA { m.store(i, x); });
    }
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
