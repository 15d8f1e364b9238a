// SPDX-License-Identifier: BSD-3-Clause
// The adjoint of one part of a sequence that is split over processes. The order of parts is that of
// the adjoint, the reverse of the forward call's. So the gradient of the initial state of one part
// is the gradient of the final state of the next.
#pragma once

#include <cstddef>
#include <vector>

#include <scanrec/detail/mpi/parts.hpp>
#include <scanrec/options.hpp>

namespace scanrec::mpi::inline SCANREC_ABI::detail {

template <class T>
bool is_sum(const state_view<T>& view) {
  return (view.shape.group > 1 && view.strides.group == 0) ||
         (view.shape.batch > 1 && view.strides.batch == 0) ||
         (view.shape.channel > 1 && view.strides.channel == 0);
}
/// Refuses a gradient of the initial state that is a sum over sequences, because parts pass on one
/// gradient per sequence.
template <class T>
void check_initial_grad(const char* call, const state_view<T>& wanted) {
  if (!wanted.absent() && is_sum(wanted))
    detail::refuse(call, "initial_grad", "one gradient per sequence",
                   "strides of 0, which request a sum");
}
/// Writes or adds the gradient of the initial state to the caller's array.
template <class T>
void store_initial_grad(std::vector<T> grads, const extents& shape, const state_view<T>& wanted,
                        update how) {
  if (wanted.absent()) return;
  if (how == update::accumulate) {
    const std::vector<T> there =
        states_in(state_view<const T>(wanted.data, shape, wanted.strides), shape);
    for (std::size_t i = 0; i < grads.size(); ++i) grads[i] = there[i] + grads[i];
  }
  store_states(grads, shape, wanted);
}
/// Runs the adjoint of a sequence that is split into parts. `shape` is the shape of this part.
///
///     check(gradients, final_grad)    throws what the adjoint of this part would throw
///     map()                           the map of this part
///     run(gradients, final_grad)      runs the adjoint of this part
///
/// The gradient of this part's initial state, which the next part needs, is also written or added
/// to the caller's initial_grad, if present.
template <class T, class Options, class Gradients, class Check, class Map, class Run>
void run_adjoint(const char* call, MPI_Comm comm, const extents& shape, const Options& options,
                 const Gradients& gradients, Check check, Map map, Run run) {
  const parts all(comm, options.order == direction::forward, options.exchange);
  const state_view<const T> final_grad =
      all.first() ? state_view<const T>(options.final_grad) : state_view<const T>{};
  const state_view<T> wanted = gradients.initial_grad;
  Gradients own = gradients;
  all.agree(caught([&] {
              check_initial_grad(call, wanted);
              // Except in the first part, the gradient of the final state is not known yet. In the
              // check, zeros stand for an absent or unknown gradient.
              lane_array<T> from(shape), to(shape);
              if (wanted.absent()) own.initial_grad = to.view();
              check(own, final_grad.absent() ? state_view<const T>(from.view()) : final_grad);
            }),
            shape, kind_of<T>(options.order));
  lane_array<T> begins(shape);
  own.initial_grad = begins.view();
  run_parts<T>(all, states_in(final_grad, shape), map, [&](std::vector<T>& grads) {
    run(own, state_view<const T>(grads.data(), shape));
    grads = begins.values();
  });
  store_initial_grad(begins.values(), shape, wanted, gradients.update);
}

}  // namespace scanrec::mpi::inline SCANREC_ABI::detail
