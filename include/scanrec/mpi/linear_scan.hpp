// SPDX-License-Identifier: BSD-3-Clause
// mpi::linear_scan, its adjoint mpi::linear_scan_vjp and its tangent mpi::linear_scan_jvp.
#pragma once

#include <type_traits>
#include <vector>

#include <scanrec/detail/mpi/adjoint.hpp>
#include <scanrec/detail/mpi/forward.hpp>
#include <scanrec/detail/mpi/parts.hpp>
#include <scanrec/linear_scan.hpp>
#include <scanrec/split_time.hpp>

namespace scanrec::mpi::inline SCANREC_ABI {

/// Options of mpi::linear_scan; T is the compute type. In these comments, before and after refer to
/// the order of the scan.
template <class T>
struct scan_options {
  direction order = direction::forward;  ///< the same in every process
  /// State before the first step of the scan, which in reverse order is the last step in time. Read
  /// only in the process with that step; absent: 0.
  state_view<const T> initial_state{};
  state_view<T> entering_state{};  ///< receives the state before this part, for vjp and jvp
  state_view<T> final_state{};     ///< receives the state after this part
  /// Reset mask of this part, as in linear_scan. In a forward scan, a reset at the first step makes
  /// the part independent of the previous rank. In a reverse scan, the optional reset after the
  /// last step in time makes it independent of the next rank.
  sequence_view<const bool> resets{};
  mpi::exchange exchange = mpi::exchange::gather;
};

/// Options of mpi::linear_scan_jvp. `order` and `resets` must be those of the forward call.
template <class T>
struct jvp_options {
  direction order = direction::forward;
  state_view<const T> entering_state{};  ///< as the forward call wrote it; absent: 0
  /// Tangent of the state before the first step of the scan; read only in the process with that
  /// step; absent: 0.
  state_view<const T> initial_tangent{};
  state_view<T> final_tangent{};  ///< receives the tangent of the state after this part
  sequence_view<const bool> resets{};
  mpi::exchange exchange = mpi::exchange::gather;
};

/// Options of mpi::linear_scan_vjp. `order` and `resets` must be those of the forward call.
template <class T>
struct vjp_options {
  direction order = direction::forward;
  state_view<const T> entering_state{};  ///< as the forward call wrote it; absent: 0
  /// Gradient of the state after the last step of the scan; read only in the process with that
  /// step; absent: 0.
  state_view<const T> final_grad{};
  sequence_view<const bool> resets{};
  conjugation convention = conjugation::hermitian;
  mpi::exchange exchange = mpi::exchange::gather;
};

/// linear_scan of a sequence whose time axis is split over the processes of a communicator. Every
/// process calls it with its own part.
///
/// Shapes  those of linear_scan, for the part. Batch, channel, group and types must be the same in
///         every process.
/// Bits    Runs with the same parts give the same bits. For any parts, the results are within the
///         error bound of linear_scan over the whole sequence. A single process gives the bits of
///         linear_scan. Each part is summarised by one map per sequence: the product of its gates,
///         and its final state from an initial state of 0. With exchange::scan the MPI library
///         chooses how the composition of these maps is grouped, so another library may give other
///         bits.
/// Traffic an all-gather of one map per sequence and process (two numbers in the wide type, 16
///         bytes for float), and an all-reduce of 72 bytes that compares arguments. With
///         exchange::scan, an MPI_Exscan replaces the all-gather: each process sends one map per
///         sequence to about log2(processes) others. An all-reduce of 4 bytes then finds the first
///         part whose incoming states are not finite. If the state after some part is not finite,
///         each later part receives one more message.
/// Cost    a part that is neither first nor last begins by multiplying its gates. It stops reading
///         them once the products of all sequences are small enough to count as 0. If that happens
///         within an eighth of its steps, the part runs once, and the calling thread adds the
///         contribution of the state before the part to those steps afterwards. Otherwise the part
///         runs twice. It also runs twice if `state` is `none`, aliases the input, or is not stored
///         in the compute type. States that are not finite may also require a second run.
/// Throws  argument_error in a process with an invalid argument, and mpi::error in the others.
///         mpi::error in every process if the processes disagree on types, shape (except time),
///         order or exchange. In both cases no process has written anything. mpi::error also for
///         errors of MPI, if the error handler of the communicator returns them.
template <backend Backend, sequence Gate, sequence Input, writable_sequence_argument State>
void linear_scan(
    MPI_Comm comm, const Backend& backend, const Gate& gate, const Input& input, const State& state,
    const std::type_identity_t<scan_options<scanrec::detail::value_of<Gate>>>& options = {}) {
  using value = scanrec::detail::value_of<Gate>;
  static_assert(!scanrec::detail::is_vec<value>,
                "scanrec: scans of vectors cannot be split in time");
  const extents shape = gate.shape;
  const detail::parts all(comm, options.order == direction::reverse, options.exchange);
  // Checks the arguments of this part as linear_scan does, with entering_state or final_state as
  // the final state.
  const auto check = [&](const state_view<value>& final_state) {
    static_cast<void>(linear_scan_problem(
        gate, input, state,
        {.order = options.order,
         .initial_state = all.first() ? state_view<const value>(options.initial_state)
                                      : state_view<const value>{},
         .final_state = final_state,
         .resets = options.resets}));
  };
  const bool enters = !options.entering_state.absent();
  all.agree(detail::caught([&] {
              if (enters) check(options.entering_state);
              if (!enters || !options.final_state.absent()) check(options.final_state);
            }),
            shape, detail::kind_of<value>(options.order));
  detail::run_scan<value>(all, backend, gate, input, state,
                          {.order = options.order, .resets = options.resets},
                          {.initial = all.first() ? state_view<const value>(options.initial_state)
                                                  : state_view<const value>{},
                           .entering = options.entering_state,
                           .after = options.final_state},
                          [&](const state_view<const value>& before, const State& states,
                              const state_view<value>& after) {
                            scanrec::linear_scan(backend, gate, input, states,
                                                 {.order = options.order,
                                                  .initial_state = before,
                                                  .final_state = after,
                                                  .resets = options.resets});
                          });
}

/// The tangent of mpi::linear_scan.
///
/// Shapes   those of linear_scan_jvp, for the part. options.entering_state is the array that the
///          forward call wrote.
/// Bits, traffic, throws  as mpi::linear_scan.
/// Cost     as mpi::linear_scan, with the tangents in place of input and state.
template <backend Backend, sequence Gate, sequence_argument State, sequence_argument GateTangent,
          sequence_argument InputTangent, writable_sequence_argument StateTangent>
void linear_scan_jvp(
    MPI_Comm comm, const Backend& backend, const Gate& gate, const State& state,
    const GateTangent& gate_tangent, const InputTangent& input_tangent,
    const StateTangent& state_tangent,
    const std::type_identity_t<jvp_options<scanrec::detail::value_of<Gate>>>& options = {}) {
  using value = scanrec::detail::value_of<Gate>;
  static_assert(!scanrec::detail::is_vec<value>,
                "scanrec: scans of vectors cannot be split in time");
  const extents shape = gate.shape;
  const detail::parts all(comm, options.order == direction::reverse, options.exchange);
  const auto with = [&](const state_view<const value>& initial, const state_view<value>& last) {
    return scanrec::jvp_options<value>{.order = options.order,
                                       .initial_state = options.entering_state,
                                       .initial_tangent = initial,
                                       .final_tangent = last,
                                       .resets = options.resets};
  };
  const state_view<const value> initial =
      all.first() ? state_view<const value>(options.initial_tangent) : state_view<const value>{};
  all.agree(detail::caught([&] {
              static_cast<void>(linear_scan_jvp_problem(gate, state, gate_tangent, input_tangent,
                                                        state_tangent,
                                                        with(initial, options.final_tangent)));
            }),
            shape, detail::kind_of<value>(options.order));
  detail::run_scan<value>(all, backend, gate, input_tangent, state_tangent,
                          {.order = options.order, .resets = options.resets},
                          {.initial = initial, .after = options.final_tangent},
                          [&](const state_view<const value>& before, const StateTangent& tangents,
                              const state_view<value>& after) {
                            scanrec::linear_scan_jvp(backend, gate, state, gate_tangent,
                                                     input_tangent, tangents, with(before, after));
                          });
}

/// The adjoint of mpi::linear_scan. It runs against the order of the scan: each part passes
/// gradients to the part before it.
///
/// Shapes   those of linear_scan_vjp, for the part. options.entering_state is the array that the
///          forward call wrote. initial_grad receives the gradient of the state before this part;
///          in the part where the scan begins, that is the gradient of the initial state.
///          initial_grad must not be a sum. A gradient that is a sum over time contains the terms
///          of this part only. If processes share a gate, the caller must add their sums.
/// Cost     that of linear_scan_vjp, and for a part that is neither first nor last two additional
///          runs. The first multiplies its gates until the products of all sequences are small
///          enough to count as 0. The second reads gate and state_grad.
/// Bits, traffic, throws  as mpi::linear_scan.
template <backend Backend, sequence Gate, sequence_argument State, sequence_argument StateGrad,
          class Gradients = scanrec::detail::default_gradients<Gate, State, StateGrad>>
void linear_scan_vjp(
    MPI_Comm comm, const Backend& backend, const Gate& gate, const State& state,
    const StateGrad& state_grad, const Gradients& gradients,
    const std::type_identity_t<vjp_options<scanrec::detail::value_of<Gate>>>& options = {}) {
  using value = scanrec::detail::value_of<Gate>;
  static_assert(!scanrec::detail::is_vec<value>,
                "scanrec: scans of vectors cannot be split in time");
  const extents shape = gate.shape;
  const auto with = [&](const state_view<const value>& final_grad) {
    return scanrec::vjp_options<value>{.order = options.order,
                                       .initial_state = options.entering_state,
                                       .final_grad = final_grad,
                                       .resets = options.resets,
                                       .convention = options.convention};
  };
  detail::run_adjoint<value>(
      "mpi::linear_scan_vjp", comm, shape, options, gradients,
      [&](const Gradients& asked, const state_view<const value>& final_grad) {
        static_cast<void>(
            linear_scan_vjp_problem(gate, state, state_grad, asked, with(final_grad)));
      },
      [&] {
        return linear_scan_vjp_summary(backend, gate, state_grad,
                                       {.order = options.order, .resets = options.resets},
                                       options.convention);
      },
      [&](const Gradients& own, const state_view<const value>& final_grad) {
        scanrec::linear_scan_vjp(backend, gate, state, state_grad, own, with(final_grad));
      });
}

}  // namespace scanrec::mpi::inline SCANREC_ABI
