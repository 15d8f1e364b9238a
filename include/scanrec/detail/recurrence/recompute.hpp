// SPDX-License-Identifier: BSD-3-Clause
// Recomputation of states from checkpoints. For one checkpoint interval at a time, the forward
// recurrence runs again from the checkpoint before the interval, into memory of the worker.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/block.hpp>
#include <scanrec/memory.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Whether backends recompute the states of R from checkpoints.
template <class R>
inline constexpr bool recomputes = requires {
  requires R::recomputes;
};

/// The recurrence that processes the steps of R once their states are in memory. This is R itself,
/// or R::recomputed, which reads recomputed states like any array.
template <class R>
struct recomputed {
  using type = R;
};
template <class R>
requires recomputes<R>
struct recomputed<R> {
  using type = typename R::recomputed;
};
template <class R>
using recomputed_t = typename recomputed<R>::type;

/// Bytes of a recomputed state; 0 if R recomputes none.
template <class R>
constexpr std::int64_t recomputed_bytes_of() {
  if constexpr (recomputes<R>)
    return sizeof(*std::declval<R&>().state.data);
  else
    return 0;
}

/// Number of rows of recomputed states for sequences with `steps` steps. A row holds the states of
/// one step. An interval needs two rows more than it has steps, see recompute_scratch.
constexpr std::int64_t interval_rows(std::int64_t steps) {
  return std::min(memory::checkpoint_interval, steps) + 2;
}

/// Layout of the recomputed states of an interval. Each step reads the state of the next step in
/// scan order; the last step reads a state after the interval. Staging (detail/cpu/stage.hpp) also
/// copies the row of the first step and the row before it. So two rows precede the first state that
/// is read.
struct recompute_scratch {
  std::int64_t row = 0, column = 0;  // strides in elements, along time and channels
  std::int64_t states_bytes = 0;     // the carries of the forward recurrence follow the states
  std::int64_t bytes = 0;

  recompute_scratch() = default;
  /// Lays out an interval for blocks with up to `channels` channels.
  recompute_scratch(const problem& p, const lane_layout& lanes, std::int64_t channels) {
    if (p.recomputed_bytes == 0) return;
    const auto round_up = [](std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; };
    const std::int64_t steps = interval_rows(p.shape.time);
    std::int64_t elements = 0;
    if (lanes.along == recurrence::lane_axis::time) {
      row = lanes.unit(), column = round_up(steps, 16);
      elements = column * channels;
    } else {
      row = round_up(channels, 16), column = 1;
      elements = row * steps;
    }
    states_bytes = round_up(elements * p.recomputed_bytes, 64);
    bytes = states_bytes + round_up(round_up(channels, 16) * p.compute_bytes, 64);
  }
};

/// Processes a block that starts from the initial state of the recurrence. Does not write the final
/// state.
template <template <class> class Lanes, class R, class Plan>
void run_alone(const R& r, const block& where, const Plan& plan, std::byte* memory) {
  auto* const slots = reinterpret_cast<typename Lanes<R>::slot*>(memory);
  Lanes<R>::begin(r, where, slots);
  Lanes<R>::run(r, where, slots, plan);
}

/// Calls f(recurrence with its states in memory, part) for the parts of a block, in order: one part
/// per checkpoint interval. The fields of `r` point at the first step of the batch row. run(forward
/// recurrence, block, memory for carries) recomputes the states of an interval.
template <class R, class Run, class F>
SCANREC_HD void for_recomputed(const R& r, const block& where, const recompute_scratch& room,
                               std::byte* memory, Run run, F f) {
  using state = std::remove_const_t<std::remove_reference_t<decltype(*r.state.data)>>;
  auto* const states = reinterpret_cast<state*>(memory);
  const std::int64_t T = r.steps;
  for (std::int64_t begin = where.begin, end; begin < where.end; begin = end) {
    const std::int64_t interval = begin / memory::checkpoint_interval;
    const std::int64_t interval_end = std::min((interval + 1) * memory::checkpoint_interval, T);
    end = std::min(interval_end, where.end);
    // The rows hold steps begin - 1 to interval_end in the order of `r`. Steps begin + 1 to
    // interval_end are read.
    state* const first = room.row < 0 ? states + (room.column - 1) : states;
    const auto at = [&](std::int64_t t) { return first + (t - begin + 1) * room.row; };

    auto forward = r.recompute();
    forward.initial_state =
        interval_end < T ? r.checkpoints.before_interval(interval) : r.initial_state;
    forward.kept.action = recurrence::write::store;
    forward.kept.strides = {0, -room.row, room.column, 0};
    // Step t of `r` is step T - 1 - t of the forward scan.
    const block again{T - interval_end, T - 1 - begin, where.channel, where.channels};
    forward.kept.data = at(T - 1) - where.channel * room.column;
    if (again.begin < again.end) run(forward, again, memory + room.states_bytes);
    if (interval_end < T)
      for (std::int64_t c = 0; c < where.channels; ++c) {
        const auto& from = forward.initial_state;
        simd::store_one(at(interval_end) + c * room.column,
                        simd::from_element(from.data[(where.channel + c) * from.strides.channel]));
      }

    recomputed_t<R> here = r;
    here.state.data = at(0) - where.channel * room.column;
    here.state.strides = {0, room.row, room.column, 0};
    f(here, block{begin, end, where.channel, where.channels});
  }
}

/// Like for_recomputed, but for any recurrence. If R recomputes no states, f is called once, with
/// `r` and the whole block.
template <class R, class Run, class F>
SCANREC_HD SCANREC_INLINE void with_states(const R& r, const block& where,
                                           const recompute_scratch& room, std::byte* memory,
                                           Run run, F f) {
  if constexpr (recomputes<R>)
    for_recomputed(r, where, room, memory, run, f);
  else
    f(r, where);
}

}  // namespace scanrec::detail::inline SCANREC_ABI
