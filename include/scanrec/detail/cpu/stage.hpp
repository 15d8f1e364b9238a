// SPDX-License-Identifier: BSD-3-Clause
// Staging: copies the arrays of a block to memory with contiguous lanes, and its outputs back.
//
// Arrays that are not contiguous along the lanes are staged, except inputs that all lanes share. A
// few rows are copied at a time, in storage type. If a call stages any array, it also stages packs
// with lanes past the last channel, padded with zeros. Staging reads all inputs of a block before
// it writes any output, so it supports every permitted aliasing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/block.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// A grid of elements: (row, column) is at data[row * row_stride + column * column_stride].
template <class S>
struct grid {
  S* data;
  std::int64_t row_stride, column_stride;
};
template <class S>
[[gnu::noinline]] void copy_grid(grid<const S> from, grid<S> to, std::int64_t rows,
                                 std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      to.data[r * to.row_stride + c * to.column_stride] =
          from.data[r * from.row_stride + c * from.column_stride];
}

/// The staged copy of one block. The fields of R point at the first element of the block. In the
/// copy, fields that are staged point at the copy of that element.
template <class R>
class staged_block {
 public:
  /// The largest possible element size of an array.
  static constexpr std::int64_t largest = sizeof(factor_t<typename R::value>);
  /// Most elements of a block, per array.
  static constexpr std::int64_t elements = largest <= 16 ? 256 : 64;

  /// Most lanes of a pack. The rows before and after the block may be staged too, so memory_ has
  /// room for two more rows of this size.
  static constexpr std::int64_t most_lanes = 16;

  /// `where` has at most `lanes` channels, or one channel if lanes are along time. With `writes`
  /// the outputs are staged too. For reset masks, and inputs that are read at a neighbouring step,
  /// the rows before and after the block are staged if they are within the sequence, which has
  /// `sequence_steps` steps. If a mask has an entry next to the sequence, it is staged too.
  staged_block(const R& r, const lane_layout& layout, const block& where, std::int64_t lanes,
               std::int64_t sequence_steps, bool writes)
      : recurrence_(r), layout_(layout), where_(where), lanes_(lanes) {
    const bool along_time = layout.along == recurrence::lane_axis::time;
    const bool before = where.begin > 0, after = where.end < sequence_steps;
    int output = 0;
    for_reads(recurrence_, [&](auto& field, auto entry) {
      const bool same_for_all = layout_.stride_of(field.strides) == 0;
      if (!field.present() || same_for_all || side_by_side(field)) return;
      const bool halo = entry.is_reset_mask || entry.neighbour != 0;
      bool reset_before = false, reset_after = false;
      if constexpr (entry.is_reset_mask) {
        reset_before = recurrence_.resets.before_first();
        reset_after = recurrence_.resets.after_last();
      }
      stage_field(field, along_time, reset_before || (halo && before) ? 1 : 0,
                  reset_after || (halo && after) ? 1 : 0, true);
    });
    if (!writes) return;
    for_writes(recurrence_, [&](auto& field) {
      home& kept = homes_[output++];
      if (!field.present() || field.summed() || side_by_side(field)) return;
      kept = {reinterpret_cast<std::byte*>(field.data), field.strides, true};
      field.stream = false;
      stage_field(field, along_time, 0, 0, field.action == recurrence::write::add);
    });
  }

  [[nodiscard]] const R& recurrence() const { return recurrence_; }

  /// Copies the staged outputs back to their arrays.
  void write_back() {
    int output = 0;
    for_writes(recurrence_, [&](auto& field) {
      const home& kept = homes_[output++];
      if (!kept.staged) return;
      using S = std::remove_reference_t<decltype(*field.data)>;
      copy_grid<S>({field.data, field.strides.time, field.strides.channel},
                   {reinterpret_cast<S*>(kept.data), kept.strides.time, kept.strides.channel},
                   where_.end - where_.begin, where_.channels);
    });
  }

 private:
  struct home {
    std::byte* data = nullptr;
    scanrec::strides strides{};
    bool staged = false;
  };

  // Whether kernels can load whole vectors of lanes from the field itself.
  template <class Field>
  bool side_by_side(const Field& field) const {
    const bool all_exist =
        layout_.along == recurrence::lane_axis::time || where_.channels == lanes_;
    return layout_.stride_of(field.strides) == layout_.unit() && all_exist;
  }

  template <class Field>
  void stage_field(Field& field, bool along_time, std::int64_t before, std::int64_t after,
                   bool copy) {
    using S = std::remove_const_t<std::remove_reference_t<decltype(*field.data)>>;
    const std::int64_t steps = where_.end - where_.begin;
    const std::int64_t row = along_time ? layout_.unit() : lanes_;
    const std::int64_t rows = before + steps + after;
    auto* room = reinterpret_cast<S*>(memory_ + used_);
    const std::int64_t size = along_time ? rows : rows * lanes_;
    used_ += (size * static_cast<std::int64_t>(sizeof(S)) + 63) / 64 * 64;
    if (!along_time) std::memset(static_cast<void*>(room), 0, size * sizeof(S));
    S* start = (along_time && layout_.reversed ? room + (rows - 1) : room) + before * row;
    if (copy)
      copy_grid<S>(
          {field.data - before * field.strides.time, field.strides.time, field.strides.channel},
          {start - before * row, row, 1}, rows, where_.channels);
    field.data = start;
    field.strides.time = row;
    field.strides.channel = 1;
  }

  R recurrence_;
  lane_layout layout_;
  block where_;
  std::int64_t lanes_;
  std::int64_t used_ = 0;
  home homes_[sequences_of<R>];
  alignas(64) std::byte memory_[sequences_of<R> * (elements + 2 * most_lanes) * largest];
};

/// Like standing_at, but returns an unchanged copy if both offsets are 0. In a small call, writing
/// the addresses would delay the next copy of the recurrence, which reads them immediately.
template <class R>
SCANREC_INLINE R moved_by(const R& r, std::int64_t time, std::int64_t channel) {
  return time == 0 && channel == 0 ? r : standing_at(r, time, channel);
}

/// Calls f(recurrence at the piece, piece) for the pieces of a block with `Lanes` channels per
/// pack. If no array needs staging, or `Lanes` is 1, the only piece is the block. Otherwise a piece
/// has one pack of channels and a few steps, and is staged, with its outputs if `writes`.
template <int Lanes, class R, class F>
SCANREC_INLINE void for_channel_pieces(const R& r, const block& where, const lane_layout& layout,
                                       std::int64_t sequence_steps, bool writes, F f) {
  if (where.channels == 0) return;
  if (layout.whole || Lanes == 1) return f(moved_by(r, where.begin, where.channel), where);
  if constexpr (Lanes > 1) {
    static_assert(Lanes <= staged_block<R>::most_lanes);
    constexpr std::int64_t rows = staged_block<R>::elements / Lanes;
    for (std::int64_t c = 0; c < where.channels; c += Lanes)
      for (std::int64_t t = where.begin; t < where.end; t += rows) {
        const block piece{t, std::min(t + rows, where.end), where.channel + c,
                          std::min<std::int64_t>(Lanes, where.channels - c)};
        staged_block<R> staged(standing_at(r, piece.begin, piece.channel), layout, piece, Lanes,
                               sequence_steps, writes);
        f(staged.recurrence(), piece);
        staged.write_back();
      }
  }
}

/// Calls f(recurrence at the part, part, inside) for the parts of a piece. If R reads a
/// neighbouring step that does not exist for the first or last step of the sequence, that step is a
/// part of its own, with `inside` false.
template <class R, class F>
SCANREC_INLINE void for_edges(const R& r, const block& piece, std::int64_t sequence_steps, F f) {
  const std::int64_t first = piece.begin + (halo_of<R> < 0 && piece.begin == 0 ? 1 : 0);
  const std::int64_t last = piece.end - (halo_of<R> > 0 && piece.end == sequence_steps ? 1 : 0);
  const auto part = [&](std::int64_t begin, std::int64_t end, bool inside) {
    if (begin >= end) return;
    f(moved_by(r, begin - piece.begin, 0), block{begin, end, piece.channel, piece.channels},
      inside);
  };
  part(piece.begin, std::min(first, piece.end), false);
  part(first, last, true);
  part(std::max(last, first), piece.end, false);
}

/// Like for_channel_pieces, with lanes along time: pieces of one channel, in order within each
/// channel. If addresses descend along the steps, channels are taken in descending order too, so
/// that addresses descend through the whole block.
template <int Lanes, class R, class F>
SCANREC_INLINE void for_time_pieces(const R& r, const block& where, const lane_layout& layout,
                                    std::int64_t sequence_steps, bool writes, F f) {
  const std::int64_t steps = layout.whole ? where.end - where.begin : staged_block<R>::elements;
  for (std::int64_t i = 0; i < where.channels; ++i)
    for (std::int64_t t = where.begin; t < where.end; t += steps) {
      const std::int64_t channel = layout.reversed ? where.channels - 1 - i : i;
      const block piece{t, std::min(t + steps, where.end), where.channel + channel, 1};
      const R here = standing_at(r, t, piece.channel);
      if (layout.whole) {
        f(here, piece);
      } else {
        staged_block<R> staged(here, layout, piece, Lanes, sequence_steps, writes);
        f(staged.recurrence(), piece);
        staged.write_back();
      }
    }
}

}  // namespace scanrec::detail::inline SCANREC_ABI
