// SPDX-License-Identifier: BSD-3-Clause
// What a tile reads of those before it: their messages, and the state in front of itself.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_walk.cuh>
#include <scanrec/detail/cuda/messages.cuh>
#include <scanrec/detail/cuda/tile_cutting.cuh>
#include <scanrec/detail/cuda/tile_place.cuh>
#include <scanrec/detail/shared/element_maps.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// What a message was found to hold.
enum class seen : int { nothing, state, map };

/// The messages of a call, and the bytes of shared memory at which a block keeps what it has read:
/// a kind, a map and a state for every thread.
template <class R>
struct tiles_before {
  using maps = scanrec::detail::element_maps<R>;
  using map = typename maps::map;
  using carry = typename maps::carry;
  using lane = typename R::template state_of<simd::lane_t<typename R::value, 1>>;
  struct bytes {
    std::int64_t kinds, maps, states;
  };

  const R& recurrence;
  const operator_copy<R>& copied_operator;
  const tile_cutting& cutting;
  device::word* messages;
  bytes shared;

  SCANREC_DEVICE message<map> partial(const tile_place& at, std::int64_t tile) const {
    return {words(at, tile), cutting.width};
  }
  SCANREC_DEVICE message<carry> inclusive(const tile_place& at, std::int64_t tile) const {
    return {words(at, tile) + words_of<map> * cutting.width, cutting.width};
  }

  /// The state in front of a tile that is not the first, for the thread that leads; for all threads
  /// of the block.
  SCANREC_DEVICE carry look(const tile_place& at, bool leads) const {
    // By each warp, a bit a thread.
    const device::shared_array<std::uint32_t> states_seen(shared.kinds);
    const device::shared_array<map> map_of(shared.maps);
    const device::shared_array<carry> state_of(shared.states);
    const int thread = device::thread_index(), width = cutting.width;

    // Every segment looks at one tile before; the last of them waits for a state.
    const std::int64_t tile = at.tile - 1 - at.segment;
    seen what = seen::nothing;
    if (at.there && tile >= 0) {
      const bool farthest = tile == 0 || at.segment == cutting.segments() - 1;
      carry x{};
      map m{};
      while (what == seen::nothing) {
        // Asked for together: memory is far.
        const bool state = inclusive(at, tile).receive(x, at.call);
        const bool part = !farthest && partial(at, tile).receive(m, at.call);
        what = state ? seen::state : part ? seen::map : seen::nothing;
        if (what == seen::nothing) device::pause();
      }
      if (what == seen::state)
        state_of.store(thread, x);
      else
        map_of.store(thread, m);
    }
    const std::uint32_t states = device::ballot(what == seen::state);
    if (thread % device::warp_size == 0) states_seen.store(thread / device::warp_size, states);
    device::synchronise_block();
    if (!leads) return carry{};

    int nearest = 0;
    for (std::uint32_t bits = 0; bits == 0; nearest += device::warp_size) {
      bits = states_seen.load(nearest / device::warp_size) & cutting.first_column << at.column;
      if (bits != 0) nearest += device::first_bit(bits) - device::warp_size;
    }
    const carry first = state_of.load(nearest);
    carry x = first;
    bool all_finite = true;
    const auto fold = [&](const map& m) SCANREC_LAMBDA {
      all_finite = all_finite & finite_after(m, x);
      x = advance(m, x);
    };
    // Some maps are loaded ahead of the chain that takes them.
    constexpr int ahead = sizeof(map) <= 32 ? 4 : 1;
    int i = nearest - width;
    for (; i >= (ahead - 1) * width; i -= ahead * width) {
      map next[ahead];
      SCANREC_UNROLL
      for (int k = 0; k < ahead; ++k) next[k] = map_of.load(i - k * width);
      SCANREC_UNROLL
      for (int k = 0; k < ahead; ++k) fold(next[k]);
    }
    for (; i >= 0; i -= width) fold(map_of.load(i));
    return all_finite ? x : fold_with_care(at, nearest, first);
  }

 private:
  static constexpr int words_per_channel = words_of<map> + words_of<carry>;
  SCANREC_DEVICE device::word* words(const tile_place& at, std::int64_t tile) const {
    return messages + (tile * cutting.groups + at.group) * cutting.width * words_per_channel +
           at.column;
  }
  SCANREC_DEVICE carry advance(const map& m, const carry& x) const {
    return maps::advance(copied_operator.in(recurrence), false, m, x);
  }
  SCANREC_DEVICE static bool finite_after(const map& m, const carry& x) {
    return maps::template finite_after<lane>(m, x);
  }
  // The state where that after some tile is not finite: the tile knows it when it has been walked.
  SCANREC_DEVICE carry fold_with_care(const tile_place& at, int nearest, carry x) const {
    const device::shared_array<map> map_of(shared.maps);
    for (int i = nearest - cutting.width; i >= 0; i -= cutting.width) {
      const map m = map_of.load(i);
      x = finite_after(m, x)
              ? advance(m, x)
              : inclusive(at, at.tile - 1 - (i >> cutting.width_shift)).wait(at.call);
    }
    return x;
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
