// SPDX-License-Identifier: BSD-3-Clause
// The numbers that decide how the tiled backend partitions a problem, as data.
#pragma once

#include <cstdint>

#include <scanrec/detail/config.hpp>
#include <scanrec/detail/recurrence/steps.hpp>

namespace scanrec::inline SCANREC_ABI {

/// The numbers behind the defaults; bench/notes.md has the measurements that set them.
struct tile_policy {
  /// Bytes read per tile when time is split: what reduce reads, process finds in L2.
  static constexpr std::int64_t tile_bytes = 256 * 1024;
  /// Fewest steps of such a tile.
  static constexpr std::int64_t least_tile_steps = 128;
  /// Time is split if there are fewer packs of sequences than this, one for each of 128 threads.
  static constexpr std::int64_t enough_packs = 128;
  /// A call with fewer elements per pack than this needs fewer packs, because it uses fewer
  /// threads.
  static constexpr std::int64_t elements_per_pack = 8 * 1024;
  /// Most tiles of a work item whose time is whole, and fewest steps that are split so: workers may
  /// take turns at them, and then keep a carry of every sequence.
  static constexpr std::int64_t most_turns = 16;
  static constexpr std::int64_t least_steps_in_turns = 1024;
  /// Steps between two flushes of running sums: a lane adds this many terms in the compute type.
  static constexpr std::int64_t sum_steps = detail::sum_steps;
  /// Bytes of carried state per strip of channels: it lives in L1.
  static constexpr std::int64_t strip_bytes = 16 * 1024;
  /// Bytes that the recomputation of one checkpoint interval reads, and of its states. The pass
  /// over these steps finds both in L2.
  static constexpr std::int64_t recompute_bytes = 768 * 1024;
  /// Bytes between the scratch of two workers.
  static constexpr std::int64_t page_bytes = 4 * 1024;
  /// The extra cost of a piece of a row, in bytes, with two threads: hardware prefetches less of
  /// narrow pieces. It falls with the number of threads, down to `least_piece_bytes`.
  static constexpr std::int64_t piece_bytes = 256;
  static constexpr std::int64_t least_piece_bytes = 32;
  /// Narrowest strips of a sum over channels, where there are few work items: from here on strips
  /// are about as fast as whole rows.
  static constexpr std::int64_t least_strip_bytes = 2 * 1024;
  /// Elements below which a work item is not worth claiming on its own, in large calls.
  static constexpr std::int64_t item_elements = 32 * 1024;
  /// Elements per thread below which another thread costs more than it brings.
  static constexpr std::int64_t thread_elements = 32 * 1024;
  /// Non-temporal stores when a call touches at least this many bytes.
  static constexpr std::int64_t stream_bytes = 24 * 1024 * 1024;
  /// Steps per load of the carried state: from memory (whole rows in address order), in cache.
  static constexpr std::int64_t steps_from_memory = 1;
  static constexpr std::int64_t steps_in_cache = 32;
  /// A call that touches no more than this counts as in cache.
  static constexpr std::int64_t cache_bytes = 1024 * 1024;
  /// How far ahead a descending process with lanes along time prefetches, in packs.
  static constexpr std::int64_t prefetch_packs = 8;
  /// The same with lanes along channels where rows lie apart, as those of a packed buffer, or a
  /// strip is a piece of rows: bytes of one array.
  static constexpr std::int64_t prefetch_bytes = 8 * 1024;
  /// Most bytes of a checkpoint interval that is prefetched as a whole where states are recomputed.
  static constexpr std::int64_t prefetch_interval_bytes = 128 * 1024;
  /// Rows lie apart if there are more bytes than this between them. Hardware prefetches across
  /// less.
  static constexpr std::int64_t gap_bytes = 128;
};

}  // namespace scanrec::inline SCANREC_ABI
