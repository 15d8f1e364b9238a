// SPDX-License-Identifier: BSD-3-Clause
// Runs one part of a linear scan or of its tangent, in one pass or two.
#pragma once

#include <type_traits>
#include <vector>

#include <scanrec/detail/mpi/parts.hpp>
#include <scanrec/detail/split_time/entering.hpp>

namespace scanrec::mpi::inline SCANREC_ABI::detail {

/// The caller's initial state, and the caller's arrays for the states before and after this part.
template <class T>
struct between {
  state_view<const T> initial{};
  state_view<T> entering{}, after{};
};

/// Runs one part. It calls scan(initial, states, final), where `states` receives the states of the
/// part or is absent, and `final` receives its last state.
///
/// A part that is neither first nor last computes its map before it knows the state before it. If
/// fits_one_pass() holds and the products of its gates vanish within an eighth of its steps, the
/// part runs from 0 and writes its states. The contribution of the state before the part is added
/// later; if a state is not finite then, the part runs again. Otherwise the part runs once for its
/// map alone, and once more from the state before it. The first and the last part run once.
template <class T, class Backend, class Gate, class Input, class State, class Scan>
void run_scan(const parts& all, const Backend& backend, const Gate& gate, const Input& input,
              const State& state, const part_options& options, const between<T>& states_at,
              Scan scan) {
  const extents shape = gate.shape;
  lane_array<T> ends(shape);
  bool one_pass = false;
  const auto map = [&] {
    const gate_products<T> products = products_of(backend, gate, options.order, options.resets);
    one_pass = fits_one_pass<T>(input, state) && products.vanish_after <= shape.time / 8;
    scan(state_view<const T>{}, one_pass ? state : State{}, ends.view());
    return part_maps(products.values, ends.values());
  };
  const auto run = [&](std::vector<T>& states) {
    store_states(states, shape, states_at.entering);
    if constexpr (std::is_same_v<stored_or<State, none_t>, T>)
      one_pass = one_pass && add_entering<T>(backend, gate, state, options.order, options.resets,
                                             ends.values(), states);
    if (!one_pass) {
      scan(state_view<const T>(states.data(), shape), state, ends.view());
      states = ends.values();
    }
    store_states(states, shape, states_at.after);
  };
  run_parts<T>(all, states_in(states_at.initial, shape), map, run);
}

}  // namespace scanrec::mpi::inline SCANREC_ABI::detail
