// SPDX-License-Identifier: BSD-3-Clause
// Runs linear scans of one element type: makes the views of a call, and calls the C++ interface.
// The build defines SCANREC_BACKEND, the header of the backend.
#pragma once

#include <cstdint>
#include <type_traits>

#include <scanrec/linear_scan.hpp>
#include <scanrec/memory.hpp>

#include SCANREC_BACKEND
#include "calls.hpp"

namespace scanrec::native::SCANREC_LEVEL {

inline bool is_given(const scanrec_array& a) { return a.strides != nullptr; }
inline strides strides_of(const scanrec_array& a) {
  return {
      .batch = a.strides[2], .time = a.strides[0], .channel = a.strides[1], .group = a.strides[3]};
}
template <class T>
sequence_view<T> sequence_of(const call& c, const scanrec_array& a) {
  if (!is_given(a)) return {};
  return {static_cast<T*>(a.data), c.shape, strides_of(a)};
}
template <class T>
state_view<compute_t<T>> state_of(const call& c, const scanrec_array& a) {
  if (!is_given(a)) return {};
  return {static_cast<compute_t<T>*>(a.data), c.shape, strides_of(a)};
}
inline sequence_view<const bool> resets_of(const call& c, const scanrec_array& a) {
  auto reset_mask = sequence_of<const bool>(c, a);
  if (is_given(a) && c.more_resets) ++reset_mask.shape.time;
  return reset_mask;
}
template <class T>
auto checkpoints_of(const call& c, const scanrec_array& a) {
  using value = compute_t<std::remove_const_t<T>>;
  using view = sequence_view<std::conditional_t<std::is_const_v<T>, const value, value>>;
  const extents shape = memory::checkpoint_extents(c.shape);
  if (!is_given(a) || shape.time == 0) return view{};
  return view{static_cast<value*>(a.data), shape, strides_of(a)};
}
inline direction order_of(const call& c) {
  return c.reverse ? direction::reverse : direction::forward;
}

template <class T>
void run_linear_scan(const call& c, const scanrec_scan_arrays& a) {
  const auto gate = sequence_of<const T>(c, a.gate), input = sequence_of<const T>(c, a.input);
  const auto state = sequence_of<T>(c, a.state);
  const scan_options<compute_t<T>> options{.order = order_of(c),
                                           .initial_state = state_of<T>(c, a.initial_state),
                                           .final_state = state_of<T>(c, a.final_state),
                                           .resets = resets_of(c, a.resets)};
  linear_scan(backend_of<T>(c), gate, input, state, options);
}

template <class T>
void run_linear_scan_vjp(const call& c, const scanrec_vjp_arrays& a) {
  const auto gate = sequence_of<const T>(c, a.gate), state = sequence_of<const T>(c, a.state),
             state_grad = sequence_of<const T>(c, a.state_grad);
  const scan_gradients<T> gradients{
      .gate_grad = sequence_of<T>(c, a.gate_grad),
      .input_grad = sequence_of<T>(c, a.input_grad),
      .initial_grad = state_of<T>(c, a.initial_grad),
      .update = c.accumulate ? update::accumulate : update::overwrite};
  const vjp_options<compute_t<T>> options{
      .order = order_of(c),
      .initial_state = state_of<T>(c, a.initial_state),
      .final_grad = state_of<T>(c, a.final_grad),
      .resets = resets_of(c, a.resets),
      .convention = c.no_conjugate ? conjugation::none : conjugation::hermitian};
  linear_scan_vjp(backend_of<T>(c), gate, state, state_grad, gradients, options);
}

template <class T>
void run_linear_scan_jvp(const call& c, const scanrec_jvp_arrays& a) {
  const auto gate = sequence_of<const T>(c, a.gate), state = sequence_of<const T>(c, a.state),
             input_tangent = sequence_of<const T>(c, a.input_tangent);
  const auto state_tangent = sequence_of<T>(c, a.state_tangent);
  const jvp_options<compute_t<T>> options{.order = order_of(c),
                                          .initial_state = state_of<T>(c, a.initial_state),
                                          .initial_tangent = state_of<T>(c, a.initial_tangent),
                                          .final_tangent = state_of<T>(c, a.final_tangent),
                                          .resets = resets_of(c, a.resets)};
  const auto with = [&](const auto& gate_tangent) {
    linear_scan_jvp(backend_of<T>(c), gate, state, gate_tangent, input_tangent, state_tangent,
                    options);
  };
  if (is_given(a.gate_tangent))
    with(sequence_of<const T>(c, a.gate_tangent));
  else
    with(none);
}

}  // namespace scanrec::native::SCANREC_LEVEL
