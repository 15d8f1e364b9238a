// SPDX-License-Identifier: BSD-3-Clause
// mpi::linear_scan, mpi::linear_scan_vjp, mpi::linear_scan_jvp: the calls and their contracts.
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
  /// Before the first step of the whole sequence; read where that step is, absent: 0.
  state_view<const T> initial_state{};
  state_view<T> entering_state{};  ///< receives the state before this part, for the adjoint
  state_view<T> final_state{};     ///< receives the state after this part
  /// Of this part, as those of linear_scan. A reset at its first step cuts it from the part before;
  /// a reverse scan finds that link behind its last step.
  sequence_view<const bool> resets{};
  mpi::exchange exchange = mpi::exchange::gather;
};

/// Options of mpi::linear_scan_jvp; `order` and `resets` are those of the forward call.
template <class T>
struct jvp_options {
  direction order = direction::forward;
  state_view<const T> entering_state{};  ///< that of the forward call; absent: 0
  /// Of the initial state of the whole sequence; read where that is, absent: 0.
  state_view<const T> initial_tangent{};
  state_view<T> final_tangent{};  ///< receives the tangent of the state after this part
  sequence_view<const bool> resets{};
  mpi::exchange exchange = mpi::exchange::gather;
};

/// Options of mpi::linear_scan_vjp; `order` and `resets` are those of the forward call.
template <class T>
struct vjp_options {
  direction order = direction::forward;
  state_view<const T> entering_state{};  ///< that of the forward call; absent: 0
  /// Of the last state of the whole sequence; read where that is, absent: 0.
  state_view<const T> final_grad{};
  sequence_view<const bool> resets{};
  conjugation convention = conjugation::hermitian;
  mpi::exchange exchange = mpi::exchange::gather;
};

/// linear_scan of a sequence whose time is split over the processes of a communicator; all of them
/// call it, each for its part.
///
/// Shapes   as linear_scan, of this part; batch, channel and group are the same in every process,
///          and so are the types.
/// Bits     the same in every run with the same parts; within the bound of linear_scan over the
///          whole sequence whatever the parts are. With one process those of linear_scan.
///          With exchange::scan the library of MPI groups maps as it likes: another one may give
///          other bits.
/// Traffic  an all-gather of a map per sequence and process: two numbers in the wide type, 16 bytes
///          of floats; 72 bytes for the check. With exchange::scan a map per sequence to about
///          log2(processes) others, and 4 bytes. Where states are not finite, a message per part
///          more.
/// Cost     a part that is neither first nor last reads its gate first, until nothing is left of
///          products; then it is processed. Where that was within an eighth of the part, the steps
///          up to there are corrected afterwards by what enters, in the calling thread. Else, and
///          where `state` is `none`, the memory of the input, or not stored in the compute type,
///          the part reads gate and input once more before it is processed.
/// Throws   argument_error, in the process whose argument it is, and mpi::error in the others; no
///          process has written anything then. Errors of MPI, where the communicator returns them.
template <backend Backend, sequence Gate, sequence Input, writable_sequence_argument State>
void linear_scan(
    MPI_Comm comm, const Backend& backend, const Gate& gate, const Input& input, const State& state,
    const std::type_identity_t<scan_options<scanrec::detail::value_of<Gate>>>& options = {}) {
  using value = scanrec::detail::value_of<Gate>;
  static_assert(!scanrec::detail::is_vec<value>, "scanrec: time of vectors is not split");
  const extents shape = gate.shape;
  const detail::parts all(comm, options.order == direction::reverse, options.exchange);
  // As the call on this part checks its arguments; each of its outputs in turn as the final state.
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
/// Shapes   as linear_scan_jvp, of this part; options.entering_state is what the forward call has
///          given there.
/// Bits, traffic, cost, throws   as mpi::linear_scan.
template <backend Backend, sequence Gate, sequence_argument State, sequence_argument GateTangent,
          sequence_argument InputTangent, writable_sequence_argument StateTangent>
void linear_scan_jvp(
    MPI_Comm comm, const Backend& backend, const Gate& gate, const State& state,
    const GateTangent& gate_tangent, const InputTangent& input_tangent,
    const StateTangent& state_tangent,
    const std::type_identity_t<jvp_options<scanrec::detail::value_of<Gate>>>& options = {}) {
  using value = scanrec::detail::value_of<Gate>;
  static_assert(!scanrec::detail::is_vec<value>, "scanrec: time of vectors is not split");
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

/// The adjoint of mpi::linear_scan: from right to left, in the order of the scan.
///
/// Shapes   as linear_scan_vjp, of this part; options.entering_state is what the forward call has
///          given there. initial_grad receives the gradient of the state before this part: that of
///          the initial state where the sequence begins. Gradients that are sums over time are the
///          terms of this part: who shares a gate over processes adds them up.
/// Cost     a part that is neither first nor last reads its gate until nothing is left of products,
///          and gate and state_grad once more, before it is processed.
/// Bits, traffic, throws   as mpi::linear_scan.
template <backend Backend, sequence Gate, sequence_argument State, sequence_argument StateGrad,
          class Gradients = scanrec::detail::default_gradients<Gate, State, StateGrad>>
void linear_scan_vjp(
    MPI_Comm comm, const Backend& backend, const Gate& gate, const State& state,
    const StateGrad& state_grad, const Gradients& gradients,
    const std::type_identity_t<vjp_options<scanrec::detail::value_of<Gate>>>& options = {}) {
  using value = scanrec::detail::value_of<Gate>;
  static_assert(!scanrec::detail::is_vec<value>, "scanrec: time of vectors is not split");
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
