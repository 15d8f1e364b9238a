// SPDX-License-Identifier: BSD-3-Clause
// Chooses the width of strips (the blocks of channels of work items), and whether workers take
// whole work items or tiles. Results do not depend on this choice.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/tile_plan.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

struct width_choice {
  std::int64_t strip = 1;   // channels
  bool items_whole = true;  // workers take whole work items; otherwise tiles of any work item
};
/// The costs that decide between widths.
struct width_costs {
  std::int64_t widest = 1, narrowest = 1, channels = 1, pack = 1;
  std::int64_t channel_bytes = 1;  // of a channel: at one step or, with lanes along time, at all
  std::int64_t piece_bytes = 0;    // extra cost of a piece of a row
  std::int64_t rows = 1;           // number of work items if no row is divided
  std::int64_t tiles = 1;          // per work item; 1 if workers may not share its tiles
  bool split = false;              // whether a tile may be reduced before its carry is known
};
/// Chooses the width with which the busiest thread finishes first. The busiest thread has
/// ceil(tasks / threads) tasks. A task costs the bytes of a row in its strip, with piece_bytes
/// added if the strip is a piece of the row. Among equal costs the widest strip wins.
///
/// A tile whose carry is unknown is read before it is processed, which costs a third more. With at
/// least as many work items as threads, few tiles wait for their carry.
inline width_choice choose_width(const width_costs& of, int threads) {
  // The relative costs of a tile: in a whole work item, with a known carry, reduced first.
  constexpr std::int64_t whole_cost = 96, known_cost = 97, reduced_cost = 128;
  width_choice best{of.widest, true};
  if (of.rows == 0 || threads == 1) return best;
  std::int64_t least = most_bytes;
  const auto consider = [&](std::int64_t strip) {
    const std::int64_t items = clipped_product(of.rows, ceil_div(of.channels, strip), most_bytes);
    const std::int64_t piece = strip < of.channels ? of.piece_bytes : 0;
    const std::int64_t packed = round_up(std::min(strip, of.channels), of.pack);
    const std::int64_t width = clipped_product(packed, of.channel_bytes, most_bytes) + piece;
    const auto consider_tasks = [&](bool whole, std::int64_t each) {
      const std::int64_t tiles = whole ? 1 : of.tiles;
      const std::int64_t rounds = ceil_div(clipped_product(items, tiles, most_bytes), threads);
      const std::int64_t cost = clipped_product(
          clipped_product(rounds, each * (of.tiles / tiles), most_bytes), width, most_bytes);
      if (cost < least) best = {strip, whole}, least = cost;
    };
    consider_tasks(true, whole_cost);
    if (of.tiles > 1 && (of.split || items >= threads))
      consider_tasks(false, items >= threads ? known_cost : reduced_cost);
  };
  consider(of.widest);
  if (of.narrowest == of.widest) return best;
  // Considers widths with about 1 to 8 work items per thread. With more, the idle time of threads
  // at the end of the call hardly matters.
  for (std::int64_t rounds = 1; rounds <= 8; ++rounds) {
    const std::int64_t strips = ceil_div(rounds * threads, of.rows);
    for (const std::int64_t n : {strips, strips - 1})
      if (n > 0) consider(std::min(of.widest, round_up(ceil_div(of.channels, n), of.narrowest)));
  }
  return best;
}

}  // namespace scanrec::detail::inline SCANREC_ABI
