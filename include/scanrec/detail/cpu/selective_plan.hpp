// SPDX-License-Identifier: BSD-3-Clause
// The plan of a selective scan: strips of a few packs of channels of one sequence and group, in
// checkpoint intervals of 128 steps.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/selective_tile.hpp>
#include <scanrec/detail/cpu/workers.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The constants behind the plan.
struct selective_policy {
  /// A strip has four or two packs if that leaves at least this many strips, and one pack
  /// otherwise.
  static constexpr std::int64_t enough_strips = 96;
  /// (sequences x steps x channels x states) per thread below which another thread costs more than
  /// it saves.
  static constexpr std::int64_t thread_elements = 256 * 1024;
};

/// The strips and checkpoint intervals of a call, and its workers.
struct selective_plan {
  std::int64_t channels = 0, groups = 1;  // channels of a group; groups of a sequence
  std::int64_t group_packs = 0;           // per group of one sequence
  std::int64_t strip_packs = 1;
  std::int64_t group_strips = 0;
  std::int64_t group_count = 0;  // in all sequences
  std::int64_t checkpoint_intervals = 1, time = 0;
  int lanes = 1, workers = 1;

  template <class V>
  selective_plan(const selective_problem<V>& p, int lanes_of, int threads)
      : channels(p.group_channels()),
        groups(p.groups),
        group_packs((channels + lanes_of - 1) / lanes_of),
        group_count(p.batch * p.groups),
        checkpoint_intervals(std::max<std::int64_t>(
            1, (p.time + memory::checkpoint_interval - 1) / memory::checkpoint_interval)),
        time(p.time),
        lanes(lanes_of) {
    while (strip_packs < 4 && strip_packs < group_packs &&
           packs() >= 2 * strip_packs * selective_policy::enough_strips)
      strip_packs *= 2;
    group_strips = (group_packs + strip_packs - 1) / strip_packs;
    const std::int64_t elements =
        clipped_product(clipped_product(p.batch * p.channels, p.time), p.states);
    const int useful = threads_for(threads, elements / selective_policy::thread_elements);
    workers = static_cast<int>(std::clamp<std::int64_t>(strips(), 1, useful));
  }
  [[nodiscard]] std::int64_t packs() const { return group_count * group_packs; }
  [[nodiscard]] std::int64_t strips() const { return group_count * group_strips; }

  /// The position of checkpoint interval k of a pack of a group.
  [[nodiscard]] selective_position position(std::int64_t group, std::int64_t pack,
                                            std::int64_t k) const {
    const std::int64_t first = pack * lanes;
    return {.batch = group / groups,
            .group = group % groups,
            .channel = group % groups * channels + first,
            .count = static_cast<int>(std::min<std::int64_t>(lanes, channels - first)),
            .begin = k == 0 ? 0 : time - (checkpoint_intervals - k) * memory::checkpoint_interval,
            .end = time - (checkpoint_intervals - 1 - k) * memory::checkpoint_interval};
  }
  /// Calls f(position, index among all packs) for checkpoint interval k of the packs of a strip.
  template <class F>
  void for_packs(std::int64_t strip, std::int64_t k, F f) const {
    const std::int64_t group = strip / group_strips;
    const std::int64_t first = strip % group_strips * strip_packs;
    for (std::int64_t i = first; i < std::min(first + strip_packs, group_packs); ++i)
      f(position(group, i, k), group * group_packs + i);
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
