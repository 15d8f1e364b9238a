// SPDX-License-Identifier: BSD-3-Clause
// mpi::gated_scan and its adjoint mpi::gated_scan_vjp.
#pragma once

#include <type_traits>
#include <vector>

#include <scanrec/detail/mpi/adjoint.hpp>
#include <scanrec/detail/mpi/parts.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/split_time.hpp>

namespace scanrec::mpi::inline SCANREC_ABI {

/// Options of mpi::gated_scan; T is the compute type. In these comments, before and after refer to
/// the order of the scan.
template <class T>
struct gated_options {
  direction order = direction::forward;  ///< the same in every process
  /// State before the first step of the scan, which in reverse order is the last step in time. Read
  /// only in the process with that step; absent: 0.
  state_view<const T> initial_state{};
  state_view<T> entering_state{};  ///< receives the state before this part, for the adjoint
  state_view<T> final_state{};     ///< receives the state after this part
  /// Reset mask and zoneout mask of this part, as in gated_scan.
  sequence_view<const bool> resets{};
  sequence_view<const bool> zoneout{};
  mpi::exchange exchange = mpi::exchange::gather;
};

/// Options of mpi::gated_scan_vjp. `order`, `resets` and `zoneout` must be those of the forward
/// call.
template <class T>
struct gated_vjp_options {
  direction order = direction::forward;
  state_view<const T> entering_state{};  ///< as the forward call wrote it; absent: 0
  /// Gradient of the state after the last step of the scan; read only in the process with that
  /// step; absent: 0.
  state_view<const T> final_grad{};
  sequence_view<const bool> resets{};
  sequence_view<const bool> zoneout{};
  mpi::exchange exchange = mpi::exchange::gather;
};

/// gated_scan of a sequence whose time axis is split over the processes of a communicator. Every
/// process calls it with its own part.
///
/// Shapes, memory  those of gated_scan, for the part. Batch, channel, group, cell and types must be
///          the same in every process.
/// Bits, traffic, throws  as mpi::linear_scan.
/// Cost     that of gated_scan. A part that is neither first nor last makes two additional runs
///          over its arrays, which apply the activations again. The first gives its final state
///          from an initial state of 0. The second multiplies its gates, and stops early once the
///          products of all sequences are small enough to count as 0.
template <backend Backend, gated_cell Cell, class Arrays, writable_sequence_argument Output,
          class Memory = none_t>
void gated_scan(
    MPI_Comm comm, const Backend& backend, const Cell& cell, const Arrays& arrays,
    const Output& output, const Memory& kept = {},
    const std::type_identity_t<gated_options<compute_t<scanrec::detail::stored_in<Cell, Arrays>>>>&
        options = {}) {
  using value = compute_t<scanrec::detail::stored_in<Cell, Arrays>>;
  const extents shape = scanrec::detail::listed<Cell::names.size()>(arrays)[0].shape;
  const detail::parts all(comm, options.order == direction::reverse, options.exchange);
  const auto with = [&](const state_view<const value>& initial, const state_view<value>& last) {
    return scanrec::gated_options<value>{.order = options.order,
                                         .initial_state = initial,
                                         .final_state = last,
                                         .resets = options.resets,
                                         .zoneout = options.zoneout};
  };
  const state_view<const value> initial =
      all.first() ? state_view<const value>(options.initial_state) : state_view<const value>{};
  const auto check = [&](const state_view<value>& final_state) {
    static_cast<void>(gated_scan_problem(cell, arrays, output, kept, with(initial, final_state)));
  };
  const bool enters = !options.entering_state.absent();
  all.agree(detail::caught([&] {
              if (enters) check(options.entering_state);
              if (!enters || !options.final_state.absent()) check(options.final_state);
            }),
            shape, detail::kind_of<value>(options.order));
  scanrec::detail::lane_array<value> ends(shape);
  detail::run_parts<value>(
      all, detail::states_in(initial, shape),
      [&] {
        return gated_scan_summary(
            backend, cell, arrays,
            {.order = options.order, .resets = options.resets, .zoneout = options.zoneout});
      },
      [&](std::vector<value>& states) {
        detail::store_states(states, shape, options.entering_state);
        scanrec::gated_scan(backend, cell, arrays, output, kept,
                            with(state_view<const value>(states.data(), shape), ends.view()));
        states = ends.values();
        detail::store_states(states, shape, options.final_state);
      });
}

/// The adjoint of mpi::gated_scan. It runs against the order of the scan: each part passes
/// gradients to the part before it.
///
/// Shapes   those of gated_scan_vjp, for the part. options.entering_state is the array that the
///          forward call wrote. initial_grad receives the gradient of the state before this part;
///          in the part where the scan begins, that is the gradient of the initial state.
///          initial_grad must not be a sum.
/// Bits, traffic, throws  as mpi::gated_scan.
/// Cost     that of gated_scan_vjp, and two additional runs as in mpi::gated_scan. The first gives
///          the gradient of the state before the part, for a gradient of 0 after it.
template <backend Backend, gated_cell Cell, class Arrays, class Memory,
          sequence_argument OutputGrad,
          class Gradients = gated_gradients<Cell, scanrec::detail::stored_in<Cell, Arrays>>>
void gated_scan_vjp(
    MPI_Comm comm, const Backend& backend, const Cell& cell, const Arrays& arrays,
    const Memory& kept, const OutputGrad& output_grad, const Gradients& gradients,
    const std::type_identity_t<
        gated_vjp_options<compute_t<scanrec::detail::stored_in<Cell, Arrays>>>>& options = {}) {
  using value = compute_t<scanrec::detail::stored_in<Cell, Arrays>>;
  const extents shape = scanrec::detail::listed<Cell::names.size()>(arrays)[0].shape;
  const auto with = [&](const state_view<const value>& final_grad) {
    return scanrec::gated_vjp_options<value>{.order = options.order,
                                             .initial_state = options.entering_state,
                                             .final_grad = final_grad,
                                             .resets = options.resets,
                                             .zoneout = options.zoneout};
  };
  detail::run_adjoint<value>(
      "mpi::gated_scan_vjp", comm, shape, options, gradients,
      [&](const Gradients& asked, const state_view<const value>& final_grad) {
        static_cast<void>(
            gated_scan_vjp_problem(cell, arrays, kept, output_grad, asked, with(final_grad)));
      },
      [&] {
        return gated_scan_vjp_summary(
            backend, cell, arrays, kept, output_grad,
            {.order = options.order, .resets = options.resets, .zoneout = options.zoneout},
            options.entering_state);
      },
      [&](const Gradients& own, const state_view<const value>& final_grad) {
        scanrec::gated_scan_vjp(backend, cell, arrays, kept, output_grad, own, with(final_grad));
      });
}

}  // namespace scanrec::mpi::inline SCANREC_ABI
