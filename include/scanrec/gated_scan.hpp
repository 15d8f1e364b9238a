// SPDX-License-Identifier: BSD-3-Clause
// gated_scan, gated_scan_vjp: recurrences whose gates and inputs are made of pre-activations while
// they are read. The cells are in cells/: QRNN pooling, minGRU, RG-LRU, or your own.
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

/// state[t] = a[t] * state[t-1] + u[t], output[t] = h(state[t]), where a cell makes a, u and h of
/// the pre-activations of step t.
///
/// Shapes   every array of `arrays`, output, states: (batch, time, channel), equal; an array of
///          pre-activations may broadcast by zero strides, or be a slice of a packed buffer
///          (packed()). initial_state, final_state: (batch, channel).
/// Output   an array, or `none`.
/// Memory   memory::store{states}, memory::recompute{checkpoints}, or `none` where no backward pass
///          will follow. Where outputs are the states, store{output} serves the backward pass, and
///          `none` here writes them once.
/// Aliasing final_state may be initial_state: same pointer, strides, type.
/// Throws   argument_error before anything is written; std::bad_alloc from the workspace;
///          exceptions of the cell, as inclusive_scan does with an operator.
/// Error    as linear_scan on a and u, which are off by the ULPs that the activations state.
/// Cost     as many arrays read as the cell has + 1 written, + 1 with memory::store.
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

/// The adjoint of gated_scan: from output_grad and final_grad, the gradients of the pre-activations
/// and of the initial state. The activations are recomputed.
///
/// Shapes   as gated_scan; `output_grad` may be `none`, or absent, if a gradient arrives only
///          through options.final_grad. A gradient with zero strides receives the sum over those
///          axes, in a fixed order, in the wide type.
/// Memory   that of the forward call: memory::store{states} or memory::recompute{checkpoints};
///          the same bits from both wherever lanes process time serially, if `states` has the type
///          of the pre-activations.
/// Aliasing a gradient may be the array of pre-activations that it is the gradient of, initial_grad
///          may be final_grad (not sums).
/// Throws   argument_error before anything is written; std::bad_alloc from the workspace;
///          exceptions of the cell, as inclusive_scan does with an operator.
/// Cost     the arrays of the cell + 2 read, + 1 written per gradient, each element once; with
///          memory::recompute one array less is read, and pre-activations are activated twice.
/// Source   docs/qrnn.md.
template <backend Backend, class Cell, class Arrays, class Memory, class OutputGrad,
          class Gradients = detail::gated_gradients_for<Cell, Arrays>>
void gated_scan_vjp(const Backend& backend, const Cell& cell, const Arrays& arrays,
                    const Memory& kept, const OutputGrad& output_grad, const Gradients& gradients,
                    const detail::gated_vjp_options_for<Cell, Arrays>& options = {}) {
  static_assert(!detail::memory_traits<Memory>::recomputes || detail::recomputes_states<Backend>,
                "scanrec: this backend does not compute states anew (see recomputes_states in "
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

// ---- descriptions of calls, without running them
// ---------------------------------------------------

/// The problem that the same call of gated_scan poses, for describe() and workspace_bytes().
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
/// The problem that the same call of gated_scan_vjp poses.
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
