// SPDX-License-Identifier: BSD-3-Clause
// The protocol by which a tile computes the state before it from the messages of earlier tiles. The
// map of a tile, or of several tiles, takes the state before them to the state after them.
//
// Up to 32 consecutive tiles are a *span*. A tile sends its map to the later tiles of its span. The
// threads of a tile together compose the maps of the earlier tiles of its span. The tile applies
// the result to the state at the *boundary* before the span. The last tile of a span composes the
// map of the whole span and sends it, and later sends the state at the next boundary. To find the
// state at the boundary before its span, a tile starts at the nearest boundary whose state is
// known. It applies the maps of the spans in between, one after the other.
//
// Bits do not depend on timing. The numbers of the tiles fix the order in which the maps of a span
// are composed: as in compose_in_warp and then warp by warp. If a tile applies the map of a span to
// the state before the span, the tile that sends the state after the span does so too. So a tile
// gets the same roundings from whichever boundary it starts.
//
// A tile applies a composed map only if the map, its prefixes within each warp, and the state are
// moderate, that is, so far from overflow that the result is finite (affine_carries.hpp). Otherwise
// it waits for the state after the tile before it, which every tile with successors sends. The map
// of a span is sent only if it is moderate. These choices depend only on the data.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/messages.cuh>
#include <scanrec/detail/cuda/tile_maps.cuh>
#include <scanrec/detail/cuda/tile_partition.cuh>
#include <scanrec/detail/cuda/tile_position.cuh>
#include <scanrec/detail/cuda/tile_states.cuh>
#include <scanrec/detail/maps/element_maps.hpp>
#include <scanrec/detail/recurrence/steps.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// The kind of message that has arrived.
enum class seen : int { nothing, state, map };

/// Reads and sends the messages of a call.
template <class R>
struct tiles_before {
  using maps = scanrec::detail::element_maps<R>;
  using map = typename maps::map;
  using carry = typename maps::carry;
  using lane = typename R::template state_of<simd::lane_t<typename R::value, 1>>;
  static constexpr int warps = tile_partition::threads / device::warp_size;
  /// Byte offsets in shared memory.
  struct bytes {
    std::int64_t bits;       // ballots of the warps
    std::int64_t maps;       // a received map per thread
    std::int64_t states;     // a received state per thread
    std::int64_t warp_maps;  // maps of warps
    std::int64_t composed;   // the results of compose_segments
  };
  /// The result of `look` for the leading thread of a column.
  struct found {
    carry state{};            // before the tile
    carry next_boundary{};    // state at the boundary after the span, if it is known
    bool knows_next = false;  // whether the tile ends its span, and the map of the span and the
                              // state before the span are moderate
  };

  const R& recurrence;
  const operator_copy<R>& copied_operator;
  const tile_partition& partition;
  device::word* messages;
  bytes shared;

  [[nodiscard]] SCANREC_DEVICE bool ends_span(const tile_position& at) const {
    return in_span(at) + 1 == partition.span_tiles();
  }
  /// The message with the map of a tile, the message with the state after it, and the message with
  /// the state at a boundary. The state after the last tile of a span is sent as the state at the
  /// next boundary.
  SCANREC_DEVICE message<map> tile_map(const tile_position& at, int tile) const {
    return map_in(at, tile);
  }
  SCANREC_DEVICE message<carry> state_after(const tile_position& at) const {
    return ends_span(at) ? boundary_state(at, span_of(at) + 1) : carry_in(at, at.tile);
  }
  SCANREC_DEVICE message<carry> boundary_state(const tile_position& at, int boundary) const {
    return carry_in(at, partition.tiles + boundary);
  }

  /// The messages of earlier tiles that a thread loads: the state at a boundary, the map of the
  /// span before this boundary (`part`), and the map of a tile of its own span.
  struct received {
    loaded_message<carry> state;
    loaded_message<map> part, tile;
  };
  /// Loads the messages that are not complete yet. All threads of the block call it. All loads are
  /// issued before the first wait, because each has a long latency.
  SCANREC_DEVICE void load(const tile_position& at, received& messages_of_thread) const {
    // Warps in which no thread needs a message return. In the others, threads that need none load
    // one and ignore it.
    if (first_segment_of_warp() >= partition.span_tiles()) return;
    const int boundary = looks(at) ? boundary_of(at) : 0;
    const bool reads_tile = at.there && at.segment < in_span(at);
    const int tile = reads_tile ? at.tile - in_span(at) + at.segment : at.tile;
    received& m = messages_of_thread;
    if (!m.state.complete(call_number())) {
      m.state = boundary_state(at, boundary).load();
      m.part = span_map(at, boundary).load();
    }
    if (!m.tile.complete(call_number())) m.tile = tile_map(at, tile).load();
  }

  /// Finds the state before a tile that is not the first. Sends the map of the span if the tile
  /// ends the span, tiles follow, and the map is moderate. All threads of the block call it.
  /// `leads`: whether the thread is the leading one of its column. `sends`: whether tiles follow.
  /// `early`: the messages of an earlier load(), if any.
  template <class Algebra>
  SCANREC_DEVICE found look(const tile_position& at, const Algebra& algebra, bool leads, bool sends,
                            const received& early) const {
    received m = early;
    load(at, m);
    const int boundary = boundary_of(at);
    const bool farthest = boundary == 0 || at.segment == partition.span_tiles() - 1;
    const device::shared_array<map> map_of(shared.maps);
    const device::shared_array<carry> state_of(shared.states);
    const int thread = device::thread_index();
    const auto keep = [&] {
      carry x{};
      map part{};
      if (m.state.read(x, call_number())) {
        state_of.store(thread, x);
        return seen::state;
      }
      if (farthest || !m.part.read(part, call_number())) return seen::nothing;
      map_of.store(thread, part);
      return seen::map;
    };
    seen what = looks(at) ? keep() : seen::nothing;
    const span_prefix before = compose_span(at, algebra, m.tile, leads);
    tile_states<R>::order_writes();
    map whole{};
    bool whole_moderate = false;
    if (leads && sends && ends_span(at)) {
      whole = device::shared_array<map>(shared.composed).load(thread);
      if (in_span(at) > 0) whole = algebra.compose(before.composed, whole);
      whole_moderate = before.moderate && maps::template moderate<lane>(whole);
      if (whole_moderate) span_map(at, span_of(at) + 1).send(whole, call_number());
    }

    if (looks(at) && what == seen::nothing) do {
        device::pause();
        m.state = boundary_state(at, boundary).load();
        m.part = span_map(at, boundary).load();
        what = keep();
      } while (what == seen::nothing);
    const device::shared_array<std::uint32_t> states_seen(shared.bits);
    const std::uint32_t states = device::ballot(what == seen::state);
    if (thread % device::warp_size == 0) states_seen.store(thread / device::warp_size, states);
    device::synchronise_block();
    if (!leads) return {};

    found result;
    const carry start = fold_spans(at);
    const bool first = span_of(at) == 0,
               start_moderate = maps::template moderate_carry<lane>(start);
    if (in_span(at) == 0)
      result.state = start;
    else if (before.moderate && start_moderate)
      result.state = advance(first, before.composed, start);
    else
      result.state = carry_in(at, at.tile - 1).wait(call_number());
    result.knows_next = whole_moderate && start_moderate;
    if (result.knows_next) result.next_boundary = advance(first, whole, start);
    return result;
  }

 private:
  /// The composed map of the earlier tiles of the span, and whether it and its prefixes within each
  /// warp are moderate.
  struct span_prefix {
    map composed{};
    bool moderate = false;
  };

  // Each of the first span_tiles() segments reads the messages of one boundary, if it exists:
  // segment i reads those of the boundary i spans before the tile's own. The segment with the
  // farthest boundary accepts only a state. The same segments, hence the same warps, read the maps
  // of tiles.
  [[nodiscard]] SCANREC_DEVICE int boundary_of(const tile_position& at) const {
    return span_of(at) - at.segment;
  }
  [[nodiscard]] SCANREC_DEVICE bool looks(const tile_position& at) const {
    return at.there && boundary_of(at) >= 0 && at.segment < partition.span_tiles();
  }
  [[nodiscard]] SCANREC_DEVICE int in_span(const tile_position& at) const {
    return at.tile & (partition.span_tiles() - 1);
  }
  [[nodiscard]] SCANREC_DEVICE int first_segment_of_warp() const {
    const int thread = device::thread_index();
    return (thread - thread % device::warp_size) >> partition.width_shift;
  }
  [[nodiscard]] SCANREC_DEVICE int span_of(const tile_position& at) const {
    return at.tile >> partition.span_shift;
  }
  // The array of messages has a map and a state for each tile and for each boundary.
  static constexpr int words_per_channel = words_of<map> + words_of<carry>;
  SCANREC_DEVICE device::word* words(const tile_position& at, std::int64_t position) const {
    return messages +
           (position * partition.groups + at.group) * partition.width * words_per_channel +
           at.column;
  }
  SCANREC_DEVICE message<map> map_in(const tile_position& at, std::int64_t position) const {
    return {words(at, position), partition.width};
  }
  SCANREC_DEVICE message<carry> carry_in(const tile_position& at, std::int64_t position) const {
    return {words(at, position) + words_of<map> * partition.width, partition.width};
  }
  // The map of the span before a boundary.
  SCANREC_DEVICE message<map> span_map(const tile_position& at, int boundary) const {
    return map_in(at, partition.tiles + boundary);
  }
  // A block receives the state at a boundary or computes it; both must give the same bits. The
  // compiler may contract a user's operator to multiply-adds differently wherever it inlines the
  // operator. So operators are called out of line.
  SCANREC_DEVICE carry advance(bool first, const map& m, const carry& x) const {
    if constexpr (R::any_operator)
      return advance_by_call(copied_operator.in(recurrence), first, m, x);
    else
      return maps::advance(recurrence, first, m, x);
  }
  SCANREC_DEVICE_CALL static carry advance_by_call(const R& r, bool first, const map& m,
                                                   const carry& x) {
    return maps::advance(r, first, m, x);
  }

  template <class Algebra>
  SCANREC_DEVICE span_prefix compose_span(const tile_position& at, const Algebra& algebra,
                                          const loaded_message<map>& loaded, bool leads) const {
    const int before = in_span(at), width = partition.width;
    if (before == 0) return {{}, true};
    const int thread = device::thread_index(), lane_of_warp = thread % device::warp_size;
    const int warp = thread / device::warp_size;
    const int warp_segments = device::warp_size >> partition.width_shift;
    // These maps use the second half of the shared memory for maps of warps. compose_segments uses
    // only the first half, because tiles with successors have at most 16 columns.
    const device::shared_array<map> of_warps(shared.warp_maps +
                                             tile_partition::threads / 2 * sizeof(map));
    const device::shared_array<std::uint32_t> immoderate(shared.bits +
                                                         warps * sizeof(std::uint32_t));
    if (first_segment_of_warp() < before) {
      const bool present = at.there && at.segment < before;
      map own{};
      if (present && !loaded.read(own, call_number()))
        own = tile_map(at, at.tile - before + at.segment).wait(call_number());
      own = compose_in_warp(width, algebra, own, present);
      const std::uint32_t bits = device::ballot(present && !maps::template moderate<lane>(own));
      if (lane_of_warp == 0) immoderate.store(warp, bits);
      if (present && (lane_of_warp + width >= device::warp_size || at.segment + 1 == before))
        of_warps.store(warp * width + at.column, own);
    }
    device::synchronise_block();
    if (!leads) return {};

    span_prefix all{of_warps.load(at.column), true};
    std::uint32_t bits = immoderate.load(0);
    for (int w = 1; w * warp_segments < before; ++w) {
      all.composed = algebra.compose(all.composed, of_warps.load(w * width + at.column));
      all.moderate = all.moderate && maps::template moderate<lane>(all.composed);
      bits |= immoderate.load(w);
    }
    all.moderate = all.moderate && (bits & partition.first_column << at.column) == 0;
    return all;
  }

  // The state at the boundary before the span, from the messages that all segments have received.
  SCANREC_DEVICE carry fold_spans(const tile_position& at) const {
    const device::shared_array<std::uint32_t> states_seen(shared.bits);
    const device::shared_array<map> map_of(shared.maps);
    int nearest = 0;
    for (std::uint32_t bits = 0; bits == 0; nearest += device::warp_size) {
      bits = states_seen.load(nearest / device::warp_size) & partition.first_column << at.column;
      if (bits != 0) nearest += device::first_bit(bits) - device::warp_size;
    }
    carry x = device::shared_array<carry>(shared.states).load(nearest);
    for (int i = nearest - partition.width; i >= 0; i -= partition.width) {
      const int boundary = span_of(at) - (i >> partition.width_shift);
      x = maps::template moderate_carry<lane>(x) ? advance(boundary == 1, map_of.load(i), x)
                                                 : boundary_state(at, boundary).wait(call_number());
    }
    return x;
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
