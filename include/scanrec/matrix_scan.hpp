// SPDX-License-Identifier: BSD-3-Clause
// The former name of linear_scan where states are vectors and gates matrices; it goes after the
// next release.
#pragma once

#include <type_traits>

#include <scanrec/concepts.hpp>
#include <scanrec/linear_scan.hpp>
#include <scanrec/matrix.hpp>

namespace scanrec::inline SCANREC_ABI {

template <sequence Gate, sequence Input, writable_sequence_argument State>
[[deprecated("it is linear_scan")]] void matrix_scan(
    const Gate& gate, const Input& input, const State& state,
    const std::type_identity_t<scan_options<detail::value_of<Gate>>>& options = {}) {
  linear_scan(gate, input, state, options);
}
template <sequence Gate, sequence_argument State, sequence_argument StateGrad,
          class Gradients = detail::default_gradients<Gate, State, StateGrad>>
[[deprecated("it is linear_scan_vjp")]] void matrix_scan_vjp(
    const Gate& gate, const State& state, const StateGrad& state_grad, const Gradients& gradients,
    const std::type_identity_t<vjp_options<detail::value_of<Gate>>>& options = {}) {
  linear_scan_vjp(gate, state, state_grad, gradients, options);
}
template <sequence Gate, sequence_argument State, sequence_argument GateTangent,
          sequence_argument InputTangent, writable_sequence_argument StateTangent>
[[deprecated("it is linear_scan_jvp")]] void matrix_scan_jvp(
    const Gate& gate, const State& state, const GateTangent& gate_tangent,
    const InputTangent& input_tangent, const StateTangent& state_tangent,
    const std::type_identity_t<jvp_options<detail::value_of<Gate>>>& options = {}) {
  linear_scan_jvp(gate, state, gate_tangent, input_tangent, state_tangent, options);
}

}  // namespace scanrec::inline SCANREC_ABI
