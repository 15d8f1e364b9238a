// SPDX-License-Identifier: BSD-3-Clause
// A ring buffer in shared memory for the next steps of a warp's lanes. It has four stages, each
// with the inputs of a few consecutive steps. The warp processes one stage while it loads the next
// ones. So each lane has more loads in flight than with registers, and fewer lanes suffice to use
// the memory bandwidth.
//
// A row is one step of the warp's lanes. Rows are copied 16 bytes at a time if they are contiguous
// and aligned to 16 bytes, else element by element. Three kinds of arrays are read in place: arrays
// that permit neither, such as unaligned arrays of 2-byte elements; broadcast arrays, because they
// are in the cache; and masks, because copying them does not pay.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_plan.cuh>
#include <scanrec/detail/cuda/lane_sums.cuh>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// How the steps of an array are loaded.
enum class arrival : std::uint8_t { read_in_place, by_element, by_chunk };

/// The way to load an array, by its address, strides and element size.
inline arrival arrival_of(const void* data, const scanrec::strides& strides,
                          std::int64_t element_bytes, std::int64_t channels) {
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data));
  if (!data || strides.time == 0 || strides.channel == 0 || element_bytes == 1)
    return arrival::read_in_place;
  const auto aligned = [&](std::int64_t to) {
    return ((address | strides.time * element_bytes | strides.batch * element_bytes |
             strides.group * element_bytes) &
            (to - 1)) == 0;
  };
  if (strides.channel == 1 && aligned(16) && channels * element_bytes % 16 == 0)
    return arrival::by_chunk;
  const bool copyable = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
  return copyable && address % element_bytes == 0 ? arrival::by_element : arrival::read_in_place;
}

/// The plan of a ring: the steps per stage, for all arrays that are copied.
struct ring_plan {
  static constexpr int stages = 4;  // one stage is processed while the others are loaded
  int steps = 0;                    // of a stage; 0: no ring
  std::int64_t stage_bytes = 0;
  std::int64_t sum_row_bytes = 0;  // per step: the terms of all sums over lanes
  static constexpr std::int64_t sum_row = device::warp_size + 1;  // padded against bank conflicts

  [[nodiscard]] int steps_ahead() const { return (stages - 1) * steps; }
  [[nodiscard]] std::int64_t bytes() const {
    return stages * stage_bytes + steps * sum_row_bytes + slack();
  }

  /// `ahead`: number of steps to load ahead; 0: chosen here; negative: no ring.
  ring_plan(const problem& p, const lane_plan& plan, int ahead) {
    // A ring serves one lane per thread.
    const std::int64_t lanes = p.shape.group * p.shape.batch * p.shape.channel;
    if (ahead < 0 || lanes == 0 || plan.lanes.threads != lanes || p.recomputed_bytes > 0) return;
    std::int64_t row_bytes = 0;
    for (const array_use& array : p)
      if (array.use == access::read && array.sequence && !array.checkpoints &&
          arrival_of(array.data, array.strides, array.element_bytes, p.shape.channel) !=
              arrival::read_in_place)
        row_bytes += device::warp_size * array.element_bytes;
    sum_row_bytes = sum_row * plan.strip_sum_bytes;
    if (row_bytes + sum_row_bytes == 0) return;
    // A stage has room for one more step, because some recurrences also read a neighbouring step.
    const auto fitting = [&](std::int64_t most) {
      return (most - slack() - stages * row_bytes) / (stages * row_bytes + sum_row_bytes);
    };
    const std::int64_t wanted =
        ahead > 0 ? (std::int64_t{ahead} + stages - 2) / (stages - 1) : chosen_steps(p, fitting);
    // Sums over lanes require a ring with at least one step per stage.
    const std::int64_t least = sum_row_bytes > 0 || ahead > 0 ? 1 : 0;
    steps = static_cast<int>(
        std::max<std::int64_t>(0, std::min({std::max(wanted, least), fitting(most_shared_bytes),
                                            std::max<std::int64_t>(p.shape.time, 1)})));
    stage_bytes = steps > 0 ? (steps + 1) * row_bytes : 0;
  }

 private:
  // The terms of every sum begin at a multiple of 16 bytes.
  [[nodiscard]] std::int64_t slack() const { return sum_row_bytes > 0 ? 16 * most_outputs : 0; }
  // On an H200, a ring is faster than registers for 16,384 lanes of floats. It is slower for 8192
  // and 32,768 lanes of floats, and for 16,384 lanes of complex numbers. A ring is also slower if
  // gradients are sums. It is then used only for sums over the lanes of a warp, which require it.
  // All rings together should fit a GPU at once; otherwise a few warps would run after all others.
  // Rings that sums require may exceed this limit.
  template <class Fitting>
  [[nodiscard]] std::int64_t chosen_steps(const problem& p, Fitting fitting) const {
    constexpr std::int64_t few_lanes = 12288, many_lanes = 20480, element_bytes = 4;
    constexpr std::int64_t most_steps = 64, loaded_together = 4;
    constexpr std::int64_t least_bytes = 16 * 1024, most_bytes = 2 * least_bytes,
                           all_bytes = 12 * 1024 * 1024;
    const bool must = sum_row_bytes > 0;
    const std::int64_t warps = lane_strip::count(p.shape), lanes = warps * device::warp_size;
    if (!must && (lanes < few_lanes || lanes >= many_lanes || sums_any(p) ||
                  largest_element(p) != element_bytes))
      return 0;
    const std::int64_t bytes = std::max(all_bytes / warps, must ? least_bytes : 0);
    const std::int64_t fit = std::min(fitting(std::min(bytes, most_bytes)), most_steps);
    if (must) return std::min(fit, p.shape.time);
    return p.shape.time > fit ? fit - fit % loaded_together : 0;
  }
};

/// The ring of a warp.
template <class R>
class lane_ring {
 public:
  lane_ring(const R& r, const problem& p, const ring_plan& plan)
      : sums_(plan.sum_row_bytes > 0),
        total_steps_(p.shape.time),
        stage_bytes_(plan.stage_bytes),
        steps_(plan.steps) {
    std::uint32_t bit = 1;
    scanrec::detail::for_reads(r, [&](const auto& field, auto entry) {
      switch (arrival_of(field.data, field.strides, sizeof(*field.data), p.shape.channel)) {
        case arrival::by_chunk:
          by_chunk_ |= bit;
          break;
        case arrival::by_element:
          by_element_ |= bit;
          break;
        case arrival::read_in_place:
          break;
      }
      if (scanrec::detail::halo_of<R> != 0 && (entry.is_reset_mask || entry.neighbour != 0))
        neighbours_ |= bit;
      bit <<= 1;
    });
  }

  /// Calls f(recurrence, begin, end) for all steps, stage by stage, in threads that have a lane. In
  /// the recurrence that f gets, copied inputs point to shared memory. All threads of the warp call
  /// for_stages. If `Sums`, they also compute the sums over the warp's lanes. row() returns the
  /// recurrence at the strip's row. It is called at each use, because keeping its result would take
  /// registers that the steps need.
  template <bool Sums, class Row, class F>
  SCANREC_DEVICE void for_stages(Row row, const lane_strip& strip, F f) const {
    constexpr int stages = ring_plan::stages;
    const std::int64_t ahead = std::int64_t{stages - 1} * steps_;
    int stage = 0;
    // The rounds with a negative `begin` only fill the ring. They are part of the loop, so that
    // `fetch`, which is large, is inlined only once.
    for (std::int64_t begin = -ahead; begin < total_steps_; begin += steps_) {
      if (begin >= 0) {
        device::wait_for_copies_but<stages - 2>();
        device::synchronise_warp();
      }
      // Loads into the stage that all threads have finished.
      fetch(row(), strip, begin + ahead, stage);
      stage = (stage + 1) % stages;
      if (begin < 0) continue;
      const std::int64_t end = last_of(begin);
      if (device::thread_index() < strip.lanes) f(staged<Sums>(row(), begin, stage), begin, end);
      if (Sums && sums_) add_lanes_of_warp(row(), strip, begin, end);
    }
  }

 private:
  static constexpr int before = scanrec::detail::halo_of<R> < 0 ? 1 : 0,
                       after = scanrec::detail::halo_of<R> > 0 ? 1 : 0;
  template <class Field>
  using stored = std::remove_cvref_t<decltype(*std::declval<Field>().data)>;
  template <std::int64_t Bytes>
  struct alignas(Bytes) piece {
    unsigned char bytes[Bytes];
  };

  SCANREC_HD std::int64_t last_of(std::int64_t begin) const {
    return begin + steps_ < total_steps_ ? begin + steps_ : total_steps_;
  }
  // The rows of an array in a stage. Row 0 is step `begin`, or step `begin - before` if the
  // recurrence reads neighbouring steps of the array.
  struct rows {
    std::int64_t first_step;  // of row 0
    int first, last;
  };
  SCANREC_DEVICE rows rows_of(std::int64_t begin, std::uint32_t bit) const {
    const bool more = scanrec::detail::halo_of<R> != 0 && (neighbours_ & bit);
    const std::int64_t first = more ? begin - before : begin;
    const std::int64_t last = last_of(begin) + (more ? after : 0);
    return {first, first < 0 ? 1 : 0,
            static_cast<int>((last < total_steps_ ? last : total_steps_) - first)};
  }
  // Calls f(field, byte offset in shared memory, bit) for the arrays that are copied.
  template <class Self, class F>
  SCANREC_DEVICE void for_arriving(Self& r, int stage, F f) const {
    std::int64_t byte = stage * stage_bytes_;
    std::uint32_t bit = 1;
    scanrec::detail::for_reads(r, [&](auto& field) SCANREC_LAMBDA {
      if ((by_chunk_ | by_element_) & bit) {
        f(field, byte, bit);
        byte += std::int64_t{steps_ + 1} * device::warp_size *
                static_cast<std::int64_t>(sizeof(stored<decltype(field)>));
      }
      bit <<= 1;
    });
  }

  SCANREC_DEVICE void fetch(const R& row, const lane_strip& strip, std::int64_t begin,
                            int stage) const {
    if (begin < total_steps_)
      for_arriving(row, stage, [&](const auto& field, std::int64_t byte, std::uint32_t bit) {
        const rows those = rows_of(begin, bit);
        const auto* const first = field.data + those.first_step * field.strides.time +
                                  strip.first_lane * field.strides.channel;
        if (by_chunk_ & bit)
          copy_chunks(first, field.strides.time, those, byte, strip.lanes);
        else
          copy_elements(first, field.strides, those, byte, strip.lanes);
      });
    device::close_group_of_copies();
  }
  template <class S>
  SCANREC_DEVICE static void copy_chunks(const S* from, std::int64_t stride, const rows& those,
                                         std::int64_t byte, int lanes) {
    constexpr int bytes = 16, in_row = device::warp_size * static_cast<int>(sizeof(S)) / bytes;
    const device::shared_array<piece<bytes>> to(byte);
    const int used = lanes * static_cast<int>(sizeof(S)) / bytes;
    SCANREC_UNROLL_BY_4
    for (int i = those.first * in_row + device::thread_index(); i < those.last * in_row;
         i += device::warp_size)
      if (i % in_row < used)
        device::copy_ahead(
            to, i, reinterpret_cast<const piece<bytes>*>(from + i / in_row * stride) + i % in_row);
  }
  template <class S>
  SCANREC_DEVICE static void copy_elements(const S* from, const scanrec::strides& strides,
                                           const rows& those, std::int64_t byte, int lanes) {
    if constexpr (sizeof(S) == 4 || sizeof(S) == 8 || sizeof(S) == 16) {
      const device::shared_array<piece<sizeof(S)>> to(byte);
      const int lane = device::thread_index();
      if (lane >= lanes) return;
      SCANREC_UNROLL_BY_4
      for (int i = those.first; i < those.last; ++i)
        device::copy_ahead(to, i * device::warp_size + lane,
                           reinterpret_cast<const piece<sizeof(S)>*>(from + i * strides.time +
                                                                     lane * strides.channel));
    }
  }

  // Returns the recurrence with its copied inputs pointing at the thread's lane in a stage.
  template <bool Sums>
  SCANREC_DEVICE R staged(R here, std::int64_t begin, int stage) const {
    for_arriving(here, stage, [&](auto& field, std::int64_t byte, std::uint32_t bit) {
      const rows those = rows_of(begin, bit);
      const device::shared_array<stored<decltype(field)>> slots(byte);
      auto* const row_0 =
          slots.column_address(device::thread_index(), those.first, those.last, device::warp_size);
      field.data = row_0 - those.first_step * device::warp_size;
      field.strides = {0, device::warp_size, 0, 0};
    });
    // Terms of sums over lanes: a row per step, a column per lane.
    if (Sums && sums_)
      for_sums(here, [&](auto& out, const auto& terms) {
        const int count = static_cast<int>(last_of(begin) - begin);
        auto* const own = terms.column_address_to_write(device::thread_index(), 0, count, sum_row);
        clear_terms(own, count, sum_row);
        out.sums = {own - begin * sum_row, 0, {0, sum_row, 0, 0}};
      });
    return here;
  }

  static constexpr int sum_row = static_cast<int>(ring_plan::sum_row);
  template <class Self, class F>
  SCANREC_DEVICE void for_sums(Self& r, F f) const {
    for_terms(r, ring_plan::stages * stage_bytes_, std::int64_t{steps_} * sum_row, f);
  }
  // Adds up the terms of each step of a stage over the lanes of the warp, and writes the sums. Each
  // step has one thread.
  SCANREC_DEVICE void add_lanes_of_warp(const R& row, const lane_strip& strip, std::int64_t begin,
                                        std::int64_t end) const {
    device::synchronise_warp();
    for_sums(row, [&](const auto& out, const auto& terms) {
      using wide = std::remove_pointer_t<decltype(out.sums.data)>;
      const auto& s = out.sums.strides;
      for (std::int64_t t = begin + device::thread_index(); t < end; t += device::warp_size)
        out.sums.data[out.sums.offset + t * s.time + strip.number * s.channel] =
            simd::to_element<wide>(
                add_terms(terms, static_cast<int>(t - begin) * sum_row, strip.lanes));
    });
  }

  std::uint32_t by_chunk_ = 0, by_element_ = 0, neighbours_ = 0;  // a bit per array
  bool sums_ = false;
  std::int64_t total_steps_ = 0, stage_bytes_ = 0;
  int steps_ = 0;
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
