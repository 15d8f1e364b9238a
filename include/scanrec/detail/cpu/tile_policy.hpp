// SPDX-License-Identifier: BSD-3-Clause
// The constants that decide how the tiled backend partitions a problem.
#pragma once

#include <cstdint>

#include <scanrec/detail/config.hpp>
#include <scanrec/detail/recurrence/steps.hpp>

namespace scanrec::inline SCANREC_ABI {

/// The constants behind the defaults. bench/notes.md has the measurements that set them.
struct tile_policy {
  /// Bytes read per tile if time is split: the pass after the reduction finds them in L2.
  static constexpr std::int64_t tile_bytes = 256 * 1024;
  /// Fewest steps of such a tile.
  static constexpr std::int64_t least_tile_steps = 128;
  /// Time is split only if there are fewer work items than this even with the narrowest strips
  /// (usually one pack): one work item for each of 128 threads.
  static constexpr std::int64_t enough_packs = 128;
  /// A small call uses fewer threads. Then it is enough to have one work item for this many
  /// elements.
  static constexpr std::int64_t elements_per_pack = 8 * 1024;
  /// Limits for work items whose time is not split: the most tiles, and the fewest steps of a work
  /// item with several tiles. Different workers may process such tiles one after another. The call
  /// then stores the carries between tiles. Calls with a sum that has one value per step have tiles
  /// of `sum_steps` steps instead.
  static constexpr std::int64_t most_turns = 16;
  static constexpr std::int64_t least_steps_in_turns = 1024;
  /// Steps between two flushes of running sums. A lane adds at most this many terms in the compute
  /// type.
  static constexpr std::int64_t sum_steps = detail::sum_steps;
  /// Bytes of carries per strip of channels, which stay in L1.
  static constexpr std::int64_t strip_bytes = 16 * 1024;
  /// Most bytes of the inputs and recomputed states of one checkpoint interval of a strip. The
  /// adjoint of the interval then finds both in L2.
  static constexpr std::int64_t recompute_bytes = 768 * 1024;
  /// Bytes between the scratch of two workers.
  static constexpr std::int64_t page_bytes = 4 * 1024;
  /// The extra cost of a piece of a row, in bytes, with two threads: hardware prefetches less of
  /// narrow pieces. It decreases with the number of threads, down to `least_piece_bytes`.
  static constexpr std::int64_t piece_bytes = 256;
  static constexpr std::int64_t least_piece_bytes = 32;
  /// With lanes along channels, a call with a sum over channels and few work items is divided into
  /// strips of about this width or more. They are about as fast as whole rows.
  static constexpr std::int64_t least_strip_bytes = 2 * 1024;
  /// Elements below which a work item is not worth claiming on its own, in large calls.
  static constexpr std::int64_t item_elements = 32 * 1024;
  /// Elements per thread below which another thread costs more than it saves.
  static constexpr std::int64_t thread_elements = 32 * 1024;
  /// Stores are non-temporal if a call touches at least this many bytes and they fill cache lines.
  static constexpr std::int64_t stream_bytes = 24 * 1024 * 1024;
  /// Steps per load of the carry, for arrays in memory and in cache. Arrays in memory are read row
  /// by row, in the order of addresses, so the carry is loaded at every step.
  static constexpr std::int64_t steps_from_memory = 1;
  static constexpr std::int64_t steps_in_cache = 32;
  /// A call that touches no more bytes than this counts as in cache.
  static constexpr std::int64_t cache_bytes = 1024 * 1024;
  /// Prefetch distance of a descending pass with lanes along time, in packs.
  static constexpr std::int64_t prefetch_packs = 8;
  /// Prefetch distance with lanes along channels, in bytes of one array. It is used if there are
  /// gaps between rows, as in a packed buffer, or if a strip is a piece of a row.
  static constexpr std::int64_t prefetch_bytes = 8 * 1024;
  /// Most bytes of a checkpoint interval that is prefetched as a whole if states are recomputed.
  static constexpr std::int64_t prefetch_interval_bytes = 128 * 1024;
  /// Rows have gaps if there are more bytes than this between them. Hardware prefetches across
  /// smaller distances.
  static constexpr std::int64_t gap_bytes = 128;
};

}  // namespace scanrec::inline SCANREC_ABI
