// SPDX-License-Identifier: BSD-3-Clause
// The function that processes one step, for any kind of lanes.
#pragma once

#include <cstdint>

#include <scanrec/detail/config.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Number of steps after which running sums are flushed to the accumulators: a lane adds this many
/// terms in the compute type.
inline constexpr std::int64_t sum_steps = 256;

/// Processes a step that has been loaded: computes the state after it from the state before it, and
/// writes its outputs.
template <class R, class Position, class Step, class State, class Sums>
SCANREC_HD SCANREC_INLINE State take_step(const R& r, const Position& at, const Step& read,
                                          const State& before, Sums& running) {
  State after = r.next(at, read, before);
  r.finish(at, read, before, after, running);
  return after;
}

}  // namespace scanrec::detail::inline SCANREC_ABI
