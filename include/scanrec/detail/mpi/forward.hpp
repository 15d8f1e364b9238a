// SPDX-License-Identifier: BSD-3-Clause
// A part of a scan or of its tangent: walked once or twice.
#pragma once

#include <type_traits>
#include <vector>

#include <scanrec/detail/mpi/parts.hpp>
#include <scanrec/detail/split_time/entering.hpp>

namespace scanrec::mpi::inline SCANREC_ABI::detail {

/// The states between parts where the caller has them, or wants them.
template <class T>
struct between {
  state_view<const T> initial{};
  state_view<T> entering{}, behind{};
};

/// Walks a part by scan(states before it, its states or none, states behind it).
///
/// A part in the middle wants its map first. Where the products of its gates vanish within an
/// eighth of its steps, it is walked from 0 with its states, and gets what enters added there;
/// else it is walked for its map alone, and once more from what enters.
template <class T, class Backend, class Gate, class Input, class State, class Scan>
void walk_scan(const parts& all, const Backend& backend, const Gate& gate, const Input& input,
               const State& state, const part_options& options, const between<T>& states_at,
               Scan scan) {
  const extents shape = gate.shape;
  lane_array<T> ends(shape);
  bool walked = false;
  const auto map = [&] {
    const gate_products<T> products = products_of(backend, gate, options.order, options.resets);
    walked = may_be_walked_once<T>(input, state) && products.vanish_after <= shape.time / 8;
    scan(state_view<const T>{}, walked ? state : State{}, ends.view());
    return part_maps(products.values, ends.values());
  };
  const auto walk = [&](std::vector<T>& states) {
    store_states(states, shape, states_at.entering);
    if constexpr (std::is_same_v<stored_or<State, none_t>, T>)
      walked = walked && add_entering<T>(backend, gate, state, options.order, options.resets,
                                         ends.values(), states);
    if (!walked) {
      scan(state_view<const T>(states.data(), shape), state, ends.view());
      states = ends.values();
    }
    store_states(states, shape, states_at.behind);
  };
  walk_parts<T>(all, states_in(states_at.initial, shape), map, walk);
}

}  // namespace scanrec::mpi::inline SCANREC_ABI::detail
