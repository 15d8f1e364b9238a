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

/// Options of mpi::linear_scan; T is the compute type.
template <class T>
struct scan_options {
  direction order = direction::forward;  ///< the same in every process
  /// State before the first step of the whole sequence; read only in the process with that step;
  /// absent: 0.
  state_view<const T> initial_state{};
  state_view<T> entering_state{};  ///< receives the state before this part, for the adjoint
  state_view<T> final_state{};     ///< receives the state after this part
  /// Reset mask of this part, as in linear_scan. In a forward scan, a reset at the first step makes
  /// the part independent of the previous rank. In a reverse scan, the optional reset after the
  /// last step makes it independent of the next rank.
  sequence_view<const bool> resets{};
  mpi::exchange exchange = mpi::exchange::gather;
};

/// Options of mpi::linear_scan_jvp. `order` and `resets` must be those of the forward call.
template <class T>
struct jvp_options {
  direction order = direction::forward;
  state_view<const T> entering_state{};  ///< as the forward call wrote it; absent: 0
  /// Tangent of the initial state of the whole sequence; read only in the process with the first
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
  /// Gradient of the last state of the whole sequence; read only in the process with that state;
  /// absent: 0.
  state_view<const T> final_grad{};
  sequence_view<const bool> resets{};
  conjugation convention = conjugation::hermitian;
  mpi::exchange exchange = mpi::exchange::gather;
};

/// linear_scan of a sequence whose time axis is split over the processes of a communicator. All of
/// them call it, each with its own part.
///
/// Shapes  as linear_scan, of this part. Batch, channel, group and types are the same in every
///         process.
/// Bits    Runs with the same parts give the same bits. For any parts, the results are within the
///         error bound of linear_scan over the whole sequence. A single process gives the bits of
///         linear_scan. With exchange::scan the MPI library chooses how maps are grouped, so
///         another library may give other bits.
/// Traffic one all-gather with one map per sequence and process (two numbers in the wide type, 16
///         bytes for float), and 72 bytes to compare arguments. With exchange::scan, each process
///         sends one map per sequence to about log2(processes) others, and 4 bytes. If states are
///         not finite, each part after them gets one more message.
/// Cost    a part that is neither first nor last begins by multiplying its gates. It stops reading
///         them once the product of every sequence is small enough to count as 0. If that happens
///         within an eighth of its steps, the part runs once, and the calling thread adds the
///         contribution of the state before the part to those steps afterwards. Otherwise the part
///         reads gate and input twice. It also reads them twice if `state` is `none`, aliases the
///         input, or is not stored in the compute type.
/// Throws  argument_error in the process with the invalid argument, and mpi::error in the others;
///         no process has written anything then. mpi::error also for errors of MPI, if the error
///         handler of the communicator returns them.
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
/// Shapes   as linear_scan_jvp, of this part. options.entering_state is the one that the forward
///          call returned.
/// Bits, traffic, cost, throws  as mpi::linear_scan.
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

/// The adjoint of mpi::linear_scan. Gradients pass from the last part in the order of the scan to
/// the first.
///
/// Shapes   as linear_scan_vjp, of this part. options.entering_state is the one that the forward
///          call returned. initial_grad receives the gradient of the state before this part; in the
///          first part, that is the gradient of the initial state. A gradient that is a sum over
///          time contains the terms of this part only. If processes share a gate, the caller must
///          add their sums.
/// Cost     a part that is neither first nor last reads gate and state_grad once more. Before that,
///          it reads its gate until the product of every sequence is small enough to count as 0.
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
