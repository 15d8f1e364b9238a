// SPDX-License-Identifier: BSD-3-Clause
// gated_scan and gated_scan_vjp: recurrences whose gates and inputs are computed from
// pre-activations while these are read. The cells (QRNN pooling, minGRU, RG-LRU) are in cells/.
#pragma once

#include <type_traits>

#include <scanrec/backends.hpp>
#include <scanrec/cells/cell.hpp>
#include <scanrec/detail/problem/gated_scan.hpp>
#include <scanrec/detail/problem/run.hpp>
#include <scanrec/memory.hpp>
#include <scanrec/options.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/views.hpp>

namespace scanrec::inline SCANREC_ABI {

// ---- the calls --------------------------------------------------------------------------------

/// state[t] = a[t] * state[t-1] + u[t] and output[t] = h(state[t]). A cell computes a, u and h from
/// the pre-activations of step t.
///
/// Shapes   every array of `arrays`, output, states: (batch, time, channel), equal. An array of
///          pre-activations may broadcast by zero strides, or be a slice of a packed buffer
///          (packed()). initial_state, final_state: (batch, channel).
/// Output   an array, or `none`.
/// Memory   memory::store{states}, memory::recompute{checkpoints}, or `none` if there is no
///          backward pass. If the outputs are the states, pass `none` here and
///          memory::store{output} to the backward pass; the states are then written once.
/// Aliasing final_state may be initial_state: same pointer, strides and type.
/// Throws   argument_error, before anything is written; std::bad_alloc if the workspace cannot be
///          allocated. Exceptions of the cell propagate, as those of an operator do in
///          inclusive_scan.
/// Error    as linear_scan for gate a and input u, plus the errors of a and u, which
///          cells/activation.hpp states in ULP.
/// Cost     reads each array of the cell once; writes the output and, depending on the memory
///          policy, the states or the checkpoints.
/// Source   docs/qrnn.md.
template <backend Backend, class Cell, class Arrays, class Output, class Memory = none_t>
void gated_scan(const Backend& backend, const Cell& cell, const Arrays& arrays,
                const Output& output, const Memory& kept = {},
                const detail::gated_options_for<Cell, Arrays>& options = {}) {
  if constexpr (detail::fits_gated_scan<Cell, Arrays, Output, Memory>())
    detail::make_gated_scan("gated_scan", cell, arrays, output, kept, options,
                            detail::run_on_backend(backend));
}
template <class Cell, class Arrays, class Output, class Memory = none_t>
requires(!backend<Cell>) void gated_scan(
    const Cell& cell, const Arrays& arrays, const Output& output, const Memory& kept = {},
    const detail::gated_options_for<Cell, Arrays>& options = {}) {
  gated_scan(tiled{}, cell, arrays, output, kept, options);
}

/// The adjoint of gated_scan: computes the gradients of the pre-activations and of the initial
/// state from output_grad and final_grad. The activations are recomputed.
///
/// Shapes   as gated_scan. `output_grad` may be `none` or an absent view if only options.final_grad
///          has a gradient. A gradient with zero strides receives the sum over those axes, in a
///          fixed order, in the wide type (double for float).
/// Memory   the policy of the forward call: memory::store{states} or
///          memory::recompute{checkpoints}. Both give the same bits wherever lanes process steps
///          one by one, if `states` has the type of the pre-activations.
/// Aliasing the gradient of an array of pre-activations may be that array, and initial_grad may be
///          final_grad, unless the gradient is a sum.
/// Throws   argument_error, before anything is written; std::bad_alloc if the workspace cannot be
///          allocated. Exceptions of the cell propagate, as those of an operator do in
///          inclusive_scan.
/// Cost     reads each array of the cell, the states and output_grad once; writes each gradient
///          once. With memory::recompute the states are not read, and each pre-activation is
///          activated twice.
/// Source   docs/qrnn.md.
template <backend Backend, class Cell, class Arrays, class Memory, class OutputGrad,
          class Gradients = detail::gated_gradients_for<Cell, Arrays>>
void gated_scan_vjp(const Backend& backend, const Cell& cell, const Arrays& arrays,
                    const Memory& kept, const OutputGrad& output_grad, const Gradients& gradients,
                    const detail::gated_vjp_options_for<Cell, Arrays>& options = {}) {
  static_assert(!detail::memory_traits<Memory>::recomputes || detail::recomputes_states<Backend>,
                "scanrec: this backend does not recompute states (see recomputes_states in "
                "docs/extend.md): use memory::store");
  if constexpr (detail::fits_gated_scan_vjp<Cell, Arrays, Memory, OutputGrad>())
    detail::make_gated_scan_vjp("gated_scan_vjp", cell, arrays, kept, output_grad, gradients,
                                options, detail::run_on_backend(backend));
}
template <class Cell, class Arrays, class Memory, class OutputGrad,
          class Gradients = detail::gated_gradients_for<Cell, Arrays>>
requires(!backend<Cell>) void gated_scan_vjp(
    const Cell& cell, const Arrays& arrays, const Memory& kept, const OutputGrad& output_grad,
    const Gradients& gradients, const detail::gated_vjp_options_for<Cell, Arrays>& options = {}) {
  gated_scan_vjp(tiled{}, cell, arrays, kept, output_grad, gradients, options);
}

// ---- descriptions of calls, without running them ----------------------------------------------

/// The problem of a gated_scan call with these arguments, for describe() and workspace_bytes().
template <class Cell, class Arrays, class Output, class Memory = none_t>
[[nodiscard]] problem gated_scan_problem(
    const Cell& cell, const Arrays& arrays, const Output& output, const Memory& kept = {},
    const detail::gated_options_for<Cell, Arrays>& options = {}) {
  problem result;
  if constexpr (detail::fits_gated_scan<Cell, Arrays, Output, Memory>())
    detail::make_gated_scan("gated_scan", cell, arrays, output, kept, options,
                            [&](const auto&, const problem& p) { result = p; });
  return result;
}
/// The problem of a gated_scan_vjp call with these arguments.
template <class Cell, class Arrays, class Memory, class OutputGrad,
          class Gradients = detail::gated_gradients_for<Cell, Arrays>>
[[nodiscard]] problem gated_scan_vjp_problem(
    const Cell& cell, const Arrays& arrays, const Memory& kept, const OutputGrad& output_grad,
    const Gradients& gradients, const detail::gated_vjp_options_for<Cell, Arrays>& options = {}) {
  problem result;
  if constexpr (detail::fits_gated_scan_vjp<Cell, Arrays, Memory, OutputGrad>())
    detail::make_gated_scan_vjp("gated_scan_vjp", cell, arrays, kept, output_grad, gradients,
                                options, [&](const auto&, const problem& p) { result = p; });
  return result;
}

}  // namespace scanrec::inline SCANREC_ABI
