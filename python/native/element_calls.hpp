// SPDX-License-Identifier: BSD-3-Clause
// The calls for one element type and one instruction set. Which calls there are is said here, and
// in kernels.hpp.
#pragma once

#include <cstdint>

#include <scanrec/scan.hpp>

#include "kernels.hpp"

namespace scanrec::native::inline SCANREC_ABI {

template <class T>
sequence_view<T> sequence_of(const call& c, const array& a) {
  if (!a.given) return {};
  return {static_cast<T*>(a.data), c.shape, a.strides};
}
template <class T>
state_view<compute_t<T>> state_of(const call& c, const array& a) {
  if (!a.given) return {};
  return {static_cast<compute_t<T>*>(a.data), c.shape, a.strides};
}
inline sequence_view<const bool> marks_of(const call& c, const array& a) {
  return sequence_of<const bool>(c, a);
}
inline direction order_of(const call& c) {
  return c.reverse ? direction::reverse : direction::forward;
}
inline tiled backend_of(const call& c) { return {.threads = c.threads, .executor = *c.workers}; }

template <class T>
void run_linear_scan(const call& c, const scan_arrays& a) {
  linear_scan(backend_of(c), sequence_of<const T>(c, a.gate), sequence_of<const T>(c, a.input),
              sequence_of<T>(c, a.state),
              {.order = order_of(c),
               .initial_state = state_of<T>(c, a.initial_state),
               .final_state = state_of<T>(c, a.final_state),
               .resets = marks_of(c, a.resets)});
}

template <class T>
void run_linear_scan_vjp(const call& c, const vjp_arrays& a) {
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
      .resets = marks_of(c, a.resets),
      .convention = c.plain ? conjugation::plain : conjugation::hermitian};
  if (c.check_only)
    static_cast<void>(linear_scan_vjp_problem(gate, state, state_grad, gradients, options));
  else
    linear_scan_vjp(backend_of(c), gate, state, state_grad, gradients, options);
}

template <class T>
void run_linear_scan_jvp(const call& c, const jvp_arrays& a) {
  const auto with = [&](const auto& gate_tangent) {
    linear_scan_jvp(backend_of(c), sequence_of<const T>(c, a.gate),
                    sequence_of<const T>(c, a.state), gate_tangent,
                    sequence_of<const T>(c, a.input_tangent), sequence_of<T>(c, a.state_tangent),
                    {.order = order_of(c),
                     .initial_state = state_of<T>(c, a.initial_state),
                     .initial_tangent = state_of<T>(c, a.initial_tangent),
                     .final_tangent = state_of<T>(c, a.final_tangent),
                     .resets = marks_of(c, a.resets)});
  };
  if (a.gate_tangent.given)
    with(sequence_of<const T>(c, a.gate_tangent));
  else
    with(none);
}

}  // namespace scanrec::native::inline SCANREC_ABI
