// SPDX-License-Identifier: BSD-3-Clause
// The kernel of `lanes` for 16-bit elements. Each thread processes two neighbouring sequences, so
// that an access has four bytes. With accesses of two bytes, scans on an H200 reached two thirds of
// the bandwidth of a copy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_loop.cuh>
#include <scanrec/detail/cuda/lane_plan.cuh>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/sizes.hpp>
#include <scanrec/detail/recurrence/steps.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// The minimum number of pairs. Fewer threads would not use the full memory bandwidth.
inline constexpr std::int64_t fewest_pairs = 16384;

template <class S>
inline constexpr bool is_reset_mask = std::is_same_v<std::remove_cvref_t<S>, bool>;

/// The numbers of 16-bit arrays that a recurrence reads and writes. Both are 0 if any array has
/// elements of another size, or if the recurrence lacks linear steps (has_linear_steps in
/// sizes.hpp). Reset masks are ignored, because this kernel runs only calls without resets.
struct array_counts {
  int reads = 0, writes = 0;
};
template <class R>
constexpr array_counts count_16_bit_arrays() {
  if constexpr (!scanrec::detail::has_linear_steps<R>()) {
    return {};
  } else {
    array_counts counts;
    bool others = false;
    const auto count_in = [&](int& count) {
      return [&](const auto& field) {
        if constexpr (!is_reset_mask<decltype(*field.data)>) {
          ++count;
          others = others || sizeof(*field.data) != 2;
        }
      };
    };
    const R r{};
    scanrec::detail::for_reads(r, count_in(counts.reads));
    scanrec::detail::for_writes(r, count_in(counts.writes));
    return others ? array_counts{} : counts;
  }
}

/// Whether each thread processes two sequences of a problem. This requires at least 32,768
/// sequences, and arrays of 16-bit elements that satisfy assume::plain (position.hpp). It also
/// requires an even number of contiguous channels in rows that are aligned to four bytes. Gated
/// scans are excluded because pairs made them slower: QRNN pooling of 32,768 sequences on an H200
/// ran at 0.59 of the speed of a copy of as many bytes, instead of 0.64.
inline bool takes_pairs(const problem& p, const lane_plan& plan) {
  if (!p.linear || !is_plain(p) || p.shape.channel % 2 != 0 ||
      plan.lanes.threads < 2 * fewest_pairs)
    return false;
  return std::all_of(p.begin(), p.end(), [](const array_use& array) {
    const scanrec::strides& s = array.strides;
    return !array.sequence || !array.data ||
           (array.element_bytes == 2 && s.channel == 1 && s.time % 2 == 0 && s.batch % 2 == 0 &&
            s.group % 2 == 0 && reinterpret_cast<std::uintptr_t>(array.data) % 4 == 0);
  });
}

/// The kernel: a thread processes a pair of sequences, and loads later steps to registers.
template <class R>
struct run_pairs {
  static constexpr int threads = lane_threads;
  static constexpr array_counts arrays = count_16_bit_arrays<R>();
  static constexpr int blocks_together = arrays.reads + arrays.writes > 5 ? 2 : 3;
  static constexpr bool synchronises = false;

  using scalar = simd::lane_t<typename R::value, 1>;
  using lane = typename R::template state_of<scalar>;
  using position = recurrence::position<recurrence::lane_axis::channel>;
  using inner_position =
      recurrence::position<recurrence::lane_axis::channel, recurrence::assume::plain>;

  R recurrence;
  lane_dealing pairs;  // in this mapping, a channel stands for a pair of channels
  std::int64_t steps = 0;

  SCANREC_DEVICE void operator()() const {
    const std::int64_t thread = device::block_index() * threads + device::thread_index();
    if (thread >= pairs.threads) return;
    const region own = pairs.of(thread);
    take(scanrec::detail::bound(recurrence, own.begin.group, own.begin.batch),
         2 * own.begin.channel);
  }

 private:
  using running_sums = typename R::template sums<scalar>;  // unused: assume::plain excludes sums

  /// The number of steps that are loaded ahead, at most 32. They take at most 64 registers, like
  /// those of floats in lane_loop.cuh.
  static constexpr int together = [] {
    int count = 32;
    while (count > 1 && count * arrays.reads > 64) count /= 2;
    return count;
  }();
  static constexpr int group = together > 4 ? together / 4 : 1;

  /// Two neighbouring elements of any 16-bit type. `may_alias` covers only accesses through
  /// pointers to `two`. So memory that is also accessed as elements is read by read_two and written
  /// by write_two.
  struct __attribute__((may_alias, aligned(4))) two {
    std::uint32_t bits;
  };
  struct read_step {
    two of[arrays.reads];
  };

  // Processes the sequences of channels c and c + 1.
  SCANREC_DEVICE void take(const R& row, std::int64_t c) const {
    const R all = scanrec::detail::standing_at(row, 0, c);
    lane x[2];
    running_sums none{};
    SCANREC_UNROLL
    for (int i = 0; i < 2; ++i) x[i] = row.template begin<scalar>(position{0, c + i});
    // If the recurrence also reads the previous or the next step, the first or the last step lacks
    // this neighbour. Such a step is processed without assumptions.
    const auto take_edge = [&](std::int64_t t) SCANREC_LAMBDA {
      SCANREC_UNROLL
      for (int i = 0; i < 2; ++i) {
        const position at{t, c + i, t, i};
        x[i] = scanrec::detail::take_step(all, at, all.template load<scalar>(at), x[i], none);
      }
    };
    std::int64_t time = 0;
    if (scanrec::detail::halo_of<R> < 0 && steps > 0) take_edge(time++);
    const std::int64_t end = scanrec::detail::halo_of<R> > 0 && steps > 0 ? steps - 1 : steps;

    R loading = scanrec::detail::standing_at(row, time, c), taking = loading;
    const auto next_step = [](auto& field) SCANREC_LAMBDA {
      field.seek(1, 0);
      device::pin(field.data);
    };
    read_step ahead[together];
    const auto load = [&](read_step& to) SCANREC_LAMBDA {
      int i = 0;
      scanrec::detail::for_reads(loading, [&](auto& field, auto entry) SCANREC_LAMBDA {
        if constexpr (!is_reset_mask<decltype(*field.data)>) {
          const auto* const from = field.data + entry.neighbour * field.strides.time;
          device::assume_global(from);
          to.of[i++] = read_two(from);
          next_step(field);
        }
      });
    };
    const auto take_one = [&](const read_step& read, std::int64_t t) SCANREC_LAMBDA {
      // A recurrence whose arrays are in registers, for one step of both sequences.
      R here = taking;
      two held[arrays.reads], written[arrays.writes];
      int i = 0, o = 0;
      scanrec::detail::for_reads(here, [&](auto& field) SCANREC_LAMBDA {
        if constexpr (!is_reset_mask<decltype(*field.data)>) {
          // The two elements are separated here, because code that separates them at the load would
          // wait for the load.
          two elements = read.of[i];
          device::pin(elements.bits);
          write_two(point(field, held[i++]), elements);
        }
      });
      scanrec::detail::for_writes(here,
                                  [&](auto& field) SCANREC_LAMBDA { point(field, written[o++]); });
      SCANREC_UNROLL
      for (int l = 0; l < 2; ++l) {
        const inner_position at{t, c + l, 0, l};
        x[l] = scanrec::detail::take_step(here, at, here.template load<scalar>(at), x[l], none);
      }
      o = 0;
      scanrec::detail::for_writes(taking, [&](auto& field) SCANREC_LAMBDA {
        device::assume_global(field.data);
        write_two(field.data, read_two(elements_of(field, written[o++])));
        next_step(field);
      });
    };
    SCANREC_UNROLL
    for (int k = 0; k < together; ++k)
      if (time + k < end) load(ahead[k]);
    for (; time + 2 * together <= end; time += together) {
      SCANREC_UNROLL
      for (int first = 0; first < together; first += group) {
        SCANREC_UNROLL
        for (int k = first; k < first + group; ++k) take_one(ahead[k], time + k);
        SCANREC_UNROLL
        for (int k = first; k < first + group; ++k) load(ahead[k]);
      }
    }
    for (; time < end; time += together) {
      SCANREC_UNROLL
      for (int k = 0; k < together; ++k) {
        if (time + k >= end) continue;
        take_one(ahead[k], time + k);
        if (time + together + k < end) load(ahead[k]);
      }
    }
    if (end < steps) take_edge(end);
    SCANREC_UNROLL
    for (int i = 0; i < 2; ++i)
      scanrec::detail::standing_at(row, 0, c + i).end(position{steps, c + i}, x[i]);
  }
  template <class Field>
  SCANREC_DEVICE static auto* elements_of(const Field& field, two& at) {
    return reinterpret_cast<std::remove_cvref_t<decltype(*field.data)>*>(&at);
  }
  template <class Field>
  SCANREC_DEVICE static auto* point(Field& field, two& at) {
    auto* const elements = elements_of(field, at);
    field.data = elements;
    field.strides = {0, 0, 1, 0};
    return elements;
  }
  template <class S>
  SCANREC_DEVICE static two read_two(const S* from) {
    return *reinterpret_cast<const two*>(from);
  }
  template <class S>
  SCANREC_DEVICE static void write_two(S* to, const two& elements) {
    *reinterpret_cast<two*>(to) = elements;
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
