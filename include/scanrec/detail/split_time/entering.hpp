// SPDX-License-Identifier: BSD-3-Clause
// Adds the contribution of the state before a part of the time axis to the states of that part,
// which were computed from an initial state of 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <scanrec/detail/split_time/pieces.hpp>
#include <scanrec/linear_scan.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Whether a part may be computed from a state of 0 and corrected afterwards. Its states must be
/// stored, and in the compute type, so that they are not rounded to a storage type twice. They must
/// not alias the input, because the input is needed if the part has to run again.
template <class T, class Input, class State>
bool fits_one_pass(const Input& input, const State& state) {
  if constexpr (std::is_same_v<stored_or<State, none_t>, T>) {
    if constexpr (std::is_same_v<Input, none_t>)
      return !state.absent();
    else
      return !state.absent() &&
             static_cast<const void*>(state.data) != static_cast<const void*>(input.data);
  } else {
    return false;
  }
}

/// Adds the contribution h of the states before a part, `before`, to the states of the part. Those
/// were computed from an initial state of 0, and `ends` are the final ones.
///
///     x[t] += h[t],    h[t] = gate[t] h[t-1]
///
/// h is computed in the wide type. It is dropped once it is below half of the smallest positive
/// number of T, or for double below the smallest normal number. Each term of x[t] gets two more
/// roundings, one of the sum and one of its conversion. The dropped part of h counts as a third. It
/// is at most one rounding of any x[t] that has not underflowed, because later gates multiply h and
/// x alike. The error bound of docs/numerics.md holds with L + 3 roundings of a term instead of L.
///
/// Replaces `before` by the states after the part. Returns false and leaves `before` unchanged if
/// one of `before`, `ends` or the corrected states is not finite. The part must then run again from
/// `before` to give the result of a serial loop.
template <class T, class Backend, class Gate, class State>
bool add_entering(const Backend& backend, const Gate& gate, const State& state, direction order,
                  const sequence_view<const bool>& resets, const std::vector<T>& ends,
                  std::vector<T>& before) {
  using wide = wide_t<T>;
  const extents shape = gate.shape;
  const auto finite = [](const T& x) { return is_finite(x); };
  if (!std::all_of(ends.begin(), ends.end(), finite) ||
      !std::all_of(before.begin(), before.end(), finite))
    return false;
  std::vector<wide> h, buffer, left;
  for (const T& x : before) h.push_back(simd::to_element<wide>(widened_state(x)));
  const wide zero{};
  bool sound = true;
  const auto add_piece = [&](std::int64_t first, std::int64_t last) {
    extents piece = shape;
    piece.time = last - first;
    left.resize(static_cast<std::size_t>(lanes_in(piece) * piece.time));
    linear_scan(backend, widened(gate, first, last, buffer),
                sequence_view<const wide>(&zero, piece, strides{}),
                sequence_view<wide>(left.data(), piece),
                {.order = order,
                 .initial_state = state_view<const wide>(h.data(), shape),
                 .final_state = state_view<wide>(h.data(), shape),
                 .resets = reset_mask_of(resets, first, last)});
    const wide* from = left.data();
    for (std::int64_t g = 0; g < piece.group; ++g)
      for (std::int64_t b = 0; b < piece.batch; ++b)
        for (std::int64_t t = first; t < last; ++t)
          for (std::int64_t c = 0; c < piece.channel; ++c) {
            T& x = state.at(b, t, c, g);
            x = narrowed_state<T>(widened_state(x) + simd::from_element(*from++));
            sound = sound && is_finite(x);
          }
    return !sound || all_vanish<T>(h, least_state<T>());
  };
  if (!all_vanish<T>(h, least_state<T>())) until(shape, order, add_piece);
  if (!sound) return false;
  for (std::size_t i = 0; i < ends.size(); ++i)
    before[i] = narrowed_state<T>(widened_state(ends[i]) + simd::from_element(h[i]));
  return true;
}

}  // namespace scanrec::detail::inline SCANREC_ABI
