// SPDX-License-Identifier: BSD-3-Clause
// One thread per sequence, walking time: what many sequences want.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/backend/recompute.hpp>
#include <scanrec/backend/sums.hpp>
#include <scanrec/cuda/device.cuh>
#include <scanrec/cuda/lane_plan.cuh>
#include <scanrec/cuda/lane_sums.cuh>
#include <scanrec/cuda/workspace.cuh>
#include <scanrec/problem.hpp>
#include <scanrec/recurrence/field.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// A thread per sequence takes its steps one after the other; threads of a warp take neighbouring
/// channels. Every array is read and written once.
///
/// Bits     those of `sequential`, on any GPU; sums over sequences are added in an order of their
///          own, which depends on the shape alone.
/// Memory   nothing, but for gradients that are sums: a number in the wide type per sequence, or,
///          where the gradient has a time axis, per element of it; with memory::recompute 130
///          states per sequence.
/// Stream   queues one kernel, and one for each gradient that is a sum over time or over states;
///          waits for nothing.
struct lanes {
  static constexpr bool lends_states = true;  ///< to adjoints with memory::recompute

  stream_ref stream;            ///< where the call is queued
  cuda::workspace workspace{};  ///< workspace_bytes(lanes, problem) of device memory
};

namespace detail {

/// States that are computed anew, a stretch per thread: rows of neighbouring threads' states.
struct lent_rows {
  std::int64_t first = 0;  // byte of the workspace

  lent_rows(const problem& p, lane_plan& plan) {
    if (p.recomputed_bytes > 0)
      first = plan.reserve(scanrec::detail::stretch_rows(p.shape.time) * plan.lanes.threads *
                           p.recomputed_bytes);
  }
};

/// What an operator's scan needs at hand: the operator itself. Of other recurrences nothing.
template <class R>
struct operator_at_hand {
  explicit operator_at_hand(const R&) {}
  SCANREC_HD const R& lent(const R& r) const { return r; }
};
template <class R>
requires R::any_operator struct operator_at_hand<R> {
  static_assert(std::is_class_v<typename R::operator_type> &&
                    std::is_trivially_copyable_v<typename R::operator_type>,
                "scanrec: an operator on a GPU is a function object that is copied as bytes");
  typename R::operator_type op;
  explicit operator_at_hand(const R& r) : op(*r.op) {}
  SCANREC_HD R lent(R r) const {
    r.op = &op;
    return r;
  }
};

inline constexpr int lane_threads = 128;  // of a block

/// Assume holds of all steps but for those at the edges of the sequence.
template <class R, recurrence::assume Assume>
struct walk_lanes {
  static constexpr int threads = lane_threads;
  // Adjoints of cells hold many addresses, large elements many numbers.
  static constexpr int blocks_together = sizeof(typename R::value) * R::fields < 40 ? 3 : 2;
  static constexpr bool synchronises = false;
  using scalar = simd::lane_t<typename R::value, 1>;
  using lane = typename R::template state_of<scalar>;
  using place = recurrence::place<recurrence::lane_axis::channel>;
  using inner_place = recurrence::place<recurrence::lane_axis::channel, Assume>;
  using running_sums = typename R::template sums<scalar>;

  R recurrence;
  operator_at_hand<R> at_hand;
  lane_dealing lanes;
  std::int64_t steps = 0;
  std::byte* lent = nullptr;

  SCANREC_DEVICE void operator()() const {
    const std::int64_t thread = device::block_index() * threads + device::thread_index();
    if (thread >= lanes.threads) return;
    region own = lanes.of(thread);
    own.end.time = steps;
    const R r = at_hand.lent(recurrence);
    clear_step_sums(r, own);
    for (std::int64_t g = own.begin.group; g < own.end.group; ++g)
      for (std::int64_t b = own.begin.batch; b < own.end.batch; ++b) {
        const R row = scanrec::detail::bound(r, g, b);
        for (std::int64_t c = own.begin.channel; c < own.end.channel; ++c)
          take_lane(row, c, thread);
      }
    write_step_sums(r, own);
  }

 private:
  SCANREC_DEVICE void take_lane(const R& row, std::int64_t c, std::int64_t thread) const {
    const place first{0, c};
    clear_lane_sums(row, first);
    lane x = row.template begin<scalar>(first);
    running_sums running{};
    if constexpr (scanrec::detail::recomputes<R>) {
      using state = std::remove_const_t<std::remove_pointer_t<decltype(row.state.data)>>;
      scanrec::detail::lent_room room;
      room.row = lanes.threads;
      scanrec::detail::for_recomputed(
          row, {0, steps, c, 1}, room, lent + thread * static_cast<std::int64_t>(sizeof(state)),
          [&](const auto& forward, const scanrec::detail::block& part, std::byte*) {
            using F = std::remove_cvref_t<decltype(forward)>;
            typename F::template sums<scalar> none;
            walk(forward, part.begin, part.end, c,
                 forward.template begin<scalar>(place{part.begin, c}), none);
          },
          [&](const R& with_states, const scanrec::detail::block& part) {
            x = walk(with_states, part.begin, part.end, c, x, running);
          });
    } else {
      x = walk(row, 0, steps, c, x, running);
    }
    const place end{steps, c};
    const R at_end = scanrec::detail::standing_at(row, 0, c);
    at_end.drain(end, running);
    at_end.end(end, x);
  }

  // Steps [begin, end) of a row.
  template <class Walked, class Sums>
  SCANREC_DEVICE lane walk(const Walked& row, std::int64_t begin, std::int64_t end, std::int64_t c,
                           lane x, Sums& running) const {
    using step = std::remove_cvref_t<decltype(row.template load<scalar>(place{}))>;
    constexpr int together = steps_together<step>();
    const auto take = [&](const Walked& r, const auto& at, const step& read) SCANREC_LAMBDA {
      const lane after = r.next(at, read, x);
      r.finish(at, read, x, after, running);
      x = after;
      constexpr auto each = scanrec::detail::sum_steps;
      if (Assume != recurrence::assume::plain && at.time % each == each - 1) r.drain(at, running);
    };
    const Walked all = scanrec::detail::standing_at(row, 0, c);
    std::int64_t time = begin;
    const auto take_until = [&](std::int64_t last) SCANREC_LAMBDA {
      for (; time < last; ++time) {
        const place at{time, c, time};
        take(all, at, all.template load<scalar>(at));
      }
    };
    // Where a neighbour lies outside the sequence, nothing is assumed.
    if (Walked::halo < 0 && begin == 0) take_until(end < 1 ? end : 1);
    const std::int64_t inner_end = Walked::halo > 0 && end == steps ? end - 1 : end;
    // Steps ahead are loaded before those at hand are taken, so that a thread waits for many loads
    // at once. Fields move on with every step: offsets of many steps would fill the registers.
    const auto next_step = [](auto& field) SCANREC_LAMBDA {
      field.seek(1, 0);
      device::settle(field.data);
    };
    Walked loading = scanrec::detail::standing_at(row, time, c), taking = loading;
    const auto load = [&](step* to, std::int64_t first) SCANREC_LAMBDA {
      SCANREC_UNROLL
      for (int k = 0; k < together; ++k) {
        to[k] = loading.template load<scalar>(inner_place{first + k, c});
        Walked::for_reads(loading, next_step);
      }
    };
    if (inner_end - time >= together) {
      step now[together], ahead[together];
      load(now, time);
      for (; time + together <= inner_end; time += together) {
        if (time + 2 * together <= inner_end) load(ahead, time + together);
        SCANREC_UNROLL
        for (int k = 0; k < together; ++k) {
          take(taking, inner_place{time + k, c}, now[k]);
          Walked::for_writes(taking, next_step);
          now[k] = ahead[k];
        }
      }
    }
    take_until(end);
    return x;
  }

  /// Steps that are loaded at a time: as many as a thread has registers for, twice.
  template <class Step>
  static constexpr int steps_together() {
    std::size_t bytes = sizeof(Step);
    if constexpr (Assume == recurrence::assume::plain && requires(Step s) { s.cut; })
      bytes -= sizeof(std::declval<Step>().cut);  // which nobody reads
    int steps = 16;
    while (steps > 1 && static_cast<std::size_t>(steps) * bytes > 160) steps /= 2;
    return steps;
  }
};

/// Calls f for what a kernel may assume of a call: everything, or nothing.
template <class R, class F>
void with_assumption(const R& r, F f) {
  using recurrence::assume;
  if constexpr (!R::any_operator && !scanrec::detail::recomputes<R>)
    if (scanrec::detail::assumption(r, {.whole = true}) == assume::plain)
      return f.template operator()<assume::plain>();
  f.template operator()<assume::nothing>();
}

}  // namespace detail

/// Bytes of device memory that lanes{.workspace} must have for a problem.
inline std::int64_t workspace_bytes(const lanes&, const problem& p) {
  detail::lane_plan plan(p);
  const detail::lent_rows lent(p, plan);
  return plan.bytes;
}

/// Queues a recurrence, given in scan order.
template <class R>
void run_recurrence(const lanes& on, R r, const problem& p) {
  detail::lane_plan plan(p);
  const detail::lent_rows lent(p, plan);
  detail::check_workspace(p, on.workspace, plan.bytes);
  plan.bind(r, on.workspace.data);
  detail::with_assumption(r, [&]<recurrence::assume Assume>() {
    using kernel = detail::walk_lanes<R, Assume>;
    detail::launch(kernel{r, detail::operator_at_hand<R>(r), plan.lanes, p.shape.time,
                          static_cast<std::byte*>(on.workspace.data) + lent.first},
                   (plan.lanes.threads + kernel::threads - 1) / kernel::threads, on.stream);
  });
  detail::add_all_lanes(r, plan, on.stream);
  if (p.recomputed_bytes > 0)
    detail::tidy(on.workspace, lent.first, plan.bytes - lent.first, on.stream);
}

}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
