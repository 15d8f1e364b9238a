// SPDX-License-Identifier: BSD-3-Clause
// The loop of one thread over one sequence, which loads later steps ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_plan.cuh>
#include <scanrec/detail/cuda/lane_sums.cuh>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/recompute.hpp>
#include <scanrec/detail/recurrence/steps.hpp>
#include <scanrec/detail/recurrence/sums.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

inline constexpr int lane_threads = 128;  // of a block without a ring (lane_ring.cuh)
inline std::int64_t blocks_of(const lane_dealing& lanes) {
  return (lanes.threads + lane_threads - 1) / lane_threads;
}

/// A copy of a user's operator; empty for other recurrences.
template <class R>
struct operator_copy {
  explicit operator_copy(const R&) {}
  SCANREC_HD const R& in(const R& r) const { return r; }
};
template <class R>
requires R::any_operator struct operator_copy<R> {
  static_assert(std::is_class_v<typename R::operator_type> &&
                    std::is_trivially_copyable_v<typename R::operator_type>,
                "scanrec: an operator on a GPU must be a trivially copyable function object");
  typename R::operator_type op;
  explicit operator_copy(const R& r) : op(*r.op) {}
  SCANREC_HD R in(R r) const {
    r.op = &op;
    return r;
  }
};

/// An array without constructor calls, for elements that are written before they are read. In
/// builds without optimisation, constructors of complex numbers would be called through a pointer,
/// and the compiler could not compute the stack size of the kernel.
template <class T, int Count>
struct unconstructed {
  static_assert(std::is_trivially_copyable_v<T>, "scanrec: elements must be trivially copyable");
  SCANREC_DEVICE unconstructed() {}
  union {
    T at[Count];
  };
};

/// The number of steps that a thread of `lanes` loads ahead, from 1 to 64. If it is more than 1,
/// these steps take at most 256 bytes, and no more registers than are free.
template <class R, recurrence::assume Assume>
constexpr int steps_on_their_way() {
  constexpr bool plain = Assume == recurrence::assume::plain;
  constexpr int registers = R::computes_much ? (plain ? 40 : 20) : plain ? 128 : 48;
  int steps = 64;
  while (steps > 1 && (steps * scanrec::detail::bytes_of_step<R>() > 256 ||
                       steps * scanrec::detail::bytes_of_step<R>(4) > 4 * registers))
    steps /= 2;
  return steps;
}

/// Calls f with assume::plain (position.hpp) if this assumption holds for the arrays of a
/// recurrence, else with assume::nothing. User operators, and recurrences that recompute states,
/// always get assume::nothing.
template <class R, class F>
void with_assumption(const R& r, F f) {
  using recurrence::assume;
  if constexpr (!R::any_operator && !scanrec::detail::recomputes<R>)
    if (scanrec::detail::assumption(r, {.whole = true, .scalar = true}) == assume::plain)
      return f.template operator()<assume::plain>();
  f.template operator()<assume::nothing>();
}

/// The memory space that loads and stores are compiled for.
enum class memory_space {
  any,     ///< generic addresses
  global,  ///< only global memory
};

/// Processes the steps of one sequence. Some recurrences also read the next or the previous step,
/// the neighbour. `Assume` (position.hpp) holds for all steps except the one whose neighbour lies
/// outside the sequence.
template <class R, recurrence::assume Assume, memory_space Space = memory_space::any>
struct lane_loop {
  using scalar = simd::lane_t<typename R::value, 1>;
  using lane = typename R::template state_of<scalar>;
  using position = recurrence::position<recurrence::lane_axis::channel>;
  using inner_position = recurrence::position<recurrence::lane_axis::channel, Assume>;
  using running_sums = typename R::template sums<scalar>;

  std::int64_t steps = 0;  // of the sequence
  std::int64_t c = 0;      // its channel

  /// Clears the accumulators of the sequence and returns the state before its first step.
  SCANREC_DEVICE lane begin(const R& row) const {
    const position first{0, c};
    clear_lane_sums(row, first);
    return row.template begin<scalar>(first);
  }
  /// After the last step, adds the running sums to their accumulators and writes the final state.
  SCANREC_DEVICE void end(const R& row, const lane& x, running_sums& running) const {
    const position last{steps, c};
    const R at_end = scanrec::detail::standing_at(row, 0, c);
    if constexpr (Assume != recurrence::assume::plain) at_end.flush(last, running);
    at_end.end(last, x);
  }
  /// Processes steps [begin, end) of the sequence from state x, with `Together` steps loaded ahead
  /// (0: steps_on_their_way). Returns the state after the last of these steps.
  template <int Together = 0, class Row, class Sums>
  SCANREC_DEVICE lane take(const Row& row, std::int64_t begin, std::int64_t end, lane x,
                           Sums& running) const {
    using step = std::remove_cvref_t<decltype(row.template load<scalar>(position{}))>;
    using raw = decltype(load_ahead(row, inner_position{}));
    constexpr int together = Together > 0 ? Together : steps_on_their_way<Row, Assume>();
    constexpr int group = together > 4 ? together / 4 : 1;
    const auto take_one = [&](const Row& r, const auto& at, const step& read) SCANREC_LAMBDA {
      x = scanrec::detail::take_step(r, at, read, x, running);
      constexpr auto each = scanrec::detail::sum_steps;
      if (Assume != recurrence::assume::plain && at.time % each == each - 1) r.flush(at, running);
    };
    const Row all = scanrec::detail::standing_at(row, 0, c);
    std::int64_t time = begin;
    const auto take_until = [&](std::int64_t last) SCANREC_LAMBDA {
      for (; time < last; ++time) {
        const position at{time, c, time};
        take_one(all, at, all.template load<scalar>(at));
      }
    };
    // A step with its neighbour outside the sequence is processed without `Assume`.
    if (scanrec::detail::halo_of<Row> < 0 && begin == 0) take_until(end < 1 ? end : 1);
    const std::int64_t inner_end =
        scanrec::detail::halo_of<Row> > 0 && end == steps ? end - 1 : end;
    // Later steps are loaded ahead into an array of registers. The registers of a step are reloaded
    // once the step has been processed. Steps are loaded in groups, because the hardware tracks
    // loads by a few scoreboards, and loads that share a scoreboard complete together. The pointers
    // of fields advance with every step, because the offsets of many steps would fill the
    // registers.
    const auto next_step = [](auto& field) SCANREC_LAMBDA {
      field.seek(1, 0);
      device::pin(field.data);
    };
    // After device::pin the compiler no longer knows the memory space of an address.
    const auto say_memory = [](const auto& field) SCANREC_LAMBDA {
      if constexpr (Space == memory_space::global) device::assume_global(field.data);
    };
    Row loading = scanrec::detail::standing_at(row, time, c), taking = loading;
    const std::int64_t inner_begin = time;
    unconstructed<raw, together> loaded;
    const auto load = [&](int k, std::int64_t t) SCANREC_LAMBDA {
      scanrec::detail::for_reads(loading, say_memory);
      loaded.at[k] = load_ahead(loading, inner_position{t, c});
      scanrec::detail::for_reads(loading, next_step);
    };
    const auto take_position = [&](int k) SCANREC_LAMBDA {
      scanrec::detail::for_writes(taking, say_memory);
      take_one(taking, inner_position{time + k, c}, made_of(taking, loaded.at[k]));
      scanrec::detail::for_writes(taking, next_step);
    };
    SCANREC_UNROLL
    for (int k = 0; k < together; ++k)
      if (time + k < inner_end) load(k, time + k);
    for (; time + 2 * together <= inner_end; time += together) {
      SCANREC_UNROLL
      for (int first = 0; first < together; first += group) {
        SCANREC_UNROLL
        for (int k = first; k < first + group; ++k) take_position(k);
        SCANREC_UNROLL
        for (int k = first; k < first + group; ++k) load(k, time + together + k);
      }
    }
    // The last rounds, which may have fewer steps to load.
    for (; time < inner_end; time += together) {
      SCANREC_UNROLL
      for (int k = 0; k < together; ++k) {
        if (time + k >= inner_end) continue;
        take_position(k);
        if (time + together + k < inner_end) load(k, time + together + k);
      }
    }
    time = inner_end > inner_begin ? inner_end : inner_begin;
    take_until(end);
    return x;
  }
  /// Recomputes the states of a part of the sequence, by running the forward recurrence from the
  /// state before the part.
  template <class Forward>
  SCANREC_DEVICE void recompute(const Forward& forward, const scanrec::detail::block& part) const {
    typename Forward::template sums<scalar> none;
    take(forward, part.begin, part.end, forward.template begin<scalar>(position{part.begin, c}),
         none);
  }

 private:
  // Whether steps loaded ahead are kept in their stored type.
  template <class Row>
  static constexpr bool keeps_raw = requires(const Row& r) {
    r.template load_raw<scalar>(inner_position{});
  };
  template <class Row>
  SCANREC_DEVICE static auto load_ahead(const Row& r, const inner_position& at) {
    if constexpr (keeps_raw<Row>)
      return r.template load_raw<scalar>(at);
    else
      return r.template load<scalar>(at);
  }
  template <class Row, class Raw>
  SCANREC_DEVICE static auto made_of(const Row& r, const Raw& read) {
    if constexpr (keeps_raw<Row>)
      return r.template made_of<scalar>(read);
    else
      return read;
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
