// SPDX-License-Identifier: BSD-3-Clause
// The common part of backends that write the maps of single steps to memory. One kernel writes the
// maps, the backend scans them, and one kernel finishes the steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_plan.cuh>
#include <scanrec/detail/cuda/lane_sums.cuh>
#include <scanrec/detail/cuda/lanes.cuh>
#include <scanrec/detail/cuda/workspace.cuh>
#include <scanrec/detail/maps/lane_scans.hpp>
#include <scanrec/detail/maps/map_planes.hpp>
#include <scanrec/detail/recurrence/steps.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// The layout of the maps. A slot is the place of one map in memory, and each lane (one sequence)
/// has its slots in time order. Slots that are adjacent in memory belong to adjacent lanes or, if
/// `time_first`, to one lane.
struct slot_grid {
  extents lanes;                           // lanes per axis; time: 1
  std::int64_t lane_count = 0, slots = 0;  // number of lanes; slots per lane
  bool time_first = false;                 // whether the slots of a lane are contiguous

  struct position {
    std::int64_t lane, slot;
  };
  /// The i-th position in memory order, counting `slots_of_a_lane` slots per lane.
  SCANREC_HD position at(std::int64_t i, std::int64_t slots_of_a_lane) const {
    if (time_first) return {i / slots_of_a_lane, i % slots_of_a_lane};
    return {i % lane_count, i / lane_count};
  }
  SCANREC_HD std::int64_t index(std::int64_t lane, std::int64_t slot) const {
    return time_first ? lane * slots + slot : slot * lane_count + lane;
  }
  /// The distance between consecutive slots of a lane.
  SCANREC_HD std::int64_t stride() const { return time_first ? 1 : lane_count; }
  /// The group, batch row and channel of a lane.
  SCANREC_HD extents of(std::int64_t lane) const {
    extents at;
    at.time = 0;
    at.channel = lane % lanes.channel, lane /= lanes.channel;
    at.batch = lane % lanes.batch, at.group = lane / lanes.batch;
    return at;
  }
};

/// Maps in memory, of type step_map<R>. If there are resets, the type is segmented<step_map<R>>, in
/// which the reset follows the map.
struct map_memory {
  std::byte* data = nullptr;
  std::int64_t map_bytes = 0;
  bool with_resets = false;

  template <class T>
  SCANREC_HD T& at(std::int64_t i) const {
    return *reinterpret_cast<T*>(data + i * map_bytes);
  }
};

/// The workspace of a call: maps, then accumulators of sums.
struct slot_plan {
  slot_grid grid;
  std::int64_t map_bytes = 0;
  bool with_resets = false;
  std::int64_t copy_bytes = 0;  // bytes of one copy of all maps
  // Threads per lane that finish steps. A thread has up to 64 steps if some gradients are sums, and
  // none of these sums keeps its time axis (lane_plan.cuh). Otherwise it has one step. The steps of
  // a thread are `workers` apart. Sums without a time axis have an accumulator per lane and worker.
  std::int64_t workers = 1;
  lane_plan sums;
  std::int64_t workspace_bytes = sums.bytes;

  /// Plans `copies` copies of all maps, with `slots` slots per lane.
  slot_plan(const problem& p, std::int64_t slots, int copies, bool time_first)
      : map_bytes(p.map_bytes),
        with_resets(has_resets(p)),
        copy_bytes((lanes_of(p) * slots * p.map_bytes + 15) / 16 * 16),
        workers(workers_of(p)),
        sums(p, workers, copy_bytes > 0 ? header_bytes + copy_bytes * copies : 0) {
    grid = {sums.lanes.all, lanes_of(p), slots, time_first};
  }
  /// The maps of copy `i`.
  [[nodiscard]] map_memory maps(void* workspace, int i = 0) const {
    const std::int64_t first = copy_bytes > 0 ? header_bytes + i * copy_bytes : 0;
    return {static_cast<std::byte*>(workspace) + first, map_bytes, with_resets};
  }
  /// Sets the number of slots for an inclusive scan that gives the state before every step. If
  /// there is a state before the first step, that state is in slot 0, and the map of step t is in
  /// slot t + 1. Otherwise the map of step t is in slot t. Returns the `shift` of load_maps and
  /// finish_steps: 0 or -1.
  std::int64_t begin_with_state(bool there_is_one) {
    const std::int64_t shift = there_is_one ? 0 : -1;
    grid.slots = std::max<std::int64_t>(0, grid.slots + shift);
    return shift;
  }

 private:
  static std::int64_t lanes_of(const problem& p) {
    return p.shape.group * p.shape.batch * p.shape.channel;
  }
  static std::int64_t workers_of(const problem& p) {
    const lane_plan whole(p);
    constexpr std::int64_t steps_of_a_sum = 64;
    const std::int64_t each = whole.per_lane && !whole.per_step ? steps_of_a_sum : 1;
    return std::max<std::int64_t>(1, (p.shape.time + each - 1) / each);
  }
};

template <class R>
using scalar_of = simd::lane_t<typename R::value, 1>;
/// The map of a step in the compute type, or the element of an operator scan.
template <class R>
using step_map = typename R::template map_of<scalar_of<R>>;

/// Composes affine maps, with or without resets. A slot that holds a state contains a constant map.
struct device_map_algebra : scanrec::detail::map_algebra {
  template <class Lane>
  SCANREC_HD static const Lane& state_of(const affine<Lane>& m) {
    return m.u;
  }
  template <class Map>
  SCANREC_HD static const auto& state_of(const segmented<Map>& m) {
    return m.map.u;
  }
  template <class Lane>
  SCANREC_HD static void hold(affine<Lane>& m, const Lane& x) {
    m = affine<Lane>::constant(x);
  }
  template <class Map>
  SCANREC_HD static void hold(segmented<Map>& m, const typename Map::lane& x) {
    m = {Map::constant(x), {}};
  }
};
template <class Op, class E>
struct operator_algebra {
  Op op;
  SCANREC_HD E compose(const E& earlier, const E& later) const { return op(earlier, later); }
  SCANREC_HD E act(const E& later, const E& x) const { return op(x, later); }
  SCANREC_HD static const E& state_of(const E& x) { return x; }
  SCANREC_HD static void hold(E& position, const E& x) { position = x; }
};
template <class R>
auto device_algebra(const R& r) {
  if constexpr (R::any_operator)
    return operator_algebra<typename R::operator_type, typename R::value>{*r.op};
  else
    return device_map_algebra{};
}
template <class R>
using device_algebra_of = decltype(device_algebra(std::declval<const R&>()));

/// Writes the state before the first step, if there is one, and the maps of all steps except the
/// last. Each thread writes one slot. The state goes to slot `first_state`, and the map of step
/// k - 1 to slot k + shift.
template <class R>
struct load_maps {
  static constexpr int threads = 128;
  static constexpr int blocks_together = 4;
  static constexpr bool synchronises = false;
  using position = recurrence::position<recurrence::lane_axis::channel>;

  R recurrence;
  operator_copy<R> copied_operator;
  slot_grid grid;
  std::int64_t steps = 0;
  map_memory to;
  std::int64_t shift = 0, first_state = 0;

  SCANREC_DEVICE void operator()() const {
    const std::int64_t i = device::block_index() * threads + device::thread_index();
    if (i >= grid.lane_count * steps) return;
    const auto [lane, k] = grid.at(i, steps);
    const extents at = grid.of(lane);
    const R r = copied_operator.in(recurrence);
    const R row = scanrec::detail::bound(r, at.group, at.batch);
    if (k == 0) {
      if (!scanrec::detail::starts(r)) return;
      step_map<R> first;
      device_algebra_of<R>::hold(first, row.template begin<scalar_of<R>>(position{0, at.channel}));
      store(grid.index(lane, first_state), first);
      return;
    }
    const R here = scanrec::detail::standing_at(row, 0, at.channel);
    const position step{k - 1, at.channel, k - 1};
    const auto read = here.template load<scalar_of<R>>(step);
    const std::int64_t index = grid.index(lane, k + shift);
    store(index, here.map(step, read));
    if constexpr (!R::any_operator)
      if (to.with_resets) to.template at<segmented<step_map<R>>>(index).reset = read.reset;
  }

 private:
  SCANREC_DEVICE void store(std::int64_t index, const step_map<R>& m) const {
    to.template at<step_map<R>>(index) = m;
    if constexpr (!R::any_operator)
      if (to.with_resets) to.template at<segmented<step_map<R>>>(index).reset = {};
  }
};

/// Computes every step from the state before it. For step t that state is in slot t + shift. If
/// there is no state before the first step, no slot is read for this step.
template <class R>
struct finish_steps {
  static constexpr int threads = 128;
  static constexpr int blocks_together = 2;
  static constexpr bool synchronises = false;
  using position = recurrence::position<recurrence::lane_axis::channel>;

  R recurrence;
  operator_copy<R> copied_operator;
  slot_grid grid;
  lane_dealing dealing;
  std::int64_t steps = 0, workers = 1;
  map_memory from;
  std::int64_t shift = 0;

  SCANREC_DEVICE void operator()() const {
    const std::int64_t i = device::block_index() * threads + device::thread_index();
    if (i >= dealing.threads * workers) return;
    const std::int64_t worker = grid.time_first ? i % workers : i / dealing.threads;
    region own = dealing.of(grid.time_first ? i / workers : i % dealing.threads);
    // If a sum keeps its time axis, each thread has one step, with the number `worker`.
    own.begin.time = worker;
    own.end.time = worker < steps ? worker + 1 : worker;
    const R r = copied_operator.in(recurrence);
    clear_step_sums(r, own);
    for (std::int64_t g = own.begin.group; g < own.end.group; ++g)
      for (std::int64_t b = own.begin.batch; b < own.end.batch; ++b) {
        const R row = scanrec::detail::bound(r, g, b);
        for (std::int64_t c = own.begin.channel; c < own.end.channel; ++c)
          take_lane(row, {b, 0, c, g}, worker);
      }
    write_step_sums(r, own);
  }

 private:
  SCANREC_DEVICE void take_lane(const R& row, const extents& at, std::int64_t worker) const {
    using scalar = scalar_of<R>;
    using lane = typename R::template state_of<scalar>;
    const std::int64_t c = at.channel;
    const position sums{worker, c};
    clear_lane_sums(row, sums);
    const std::int64_t number = (at.group * grid.lanes.batch + at.batch) * grid.lanes.channel + c;
    const R here = scanrec::detail::standing_at(row, 0, c);
    typename R::template sums<scalar> running{};
    lane after{};
    for (std::int64_t t = worker; t < steps; t += workers) {
      const position step{t, c, t};
      const auto read = here.template load<scalar>(step);
      // An initial state is read from its slot. Its array may also be that of the final state,
      // which the thread of the last step may have written.
      const lane before = t == 0 && !scanrec::detail::starts(row)
                              ? row.template begin<scalar>(position{0, c})
                              : device_algebra_of<R>::state_of(
                                    from.template at<step_map<R>>(grid.index(number, t + shift)));
      after = scanrec::detail::take_step(here, step, read, before, running);
    }
    here.flush(sums, running);
    if (steps == 0) after = row.template begin<scalar>(position{0, c});
    if (steps == 0 || (steps - 1) % workers == worker) here.end(sums, after);
  }
};

/// One call. `load` queues the kernel that writes the maps. The backend then queues its scan, and
/// `finish` queues the kernels that finish the steps and the sums.
template <class R>
struct materialised_call {
  R recurrence;
  const slot_plan& plan;
  std::int64_t steps;
  stream_t stream;

  /// `workspace` must be checked and as large as the plan says.
  materialised_call(const R& r, const problem& p, const slot_plan& with, void* workspace,
                    stream_t in)
      : recurrence(r), plan(with), steps(p.shape.time), stream(in) {
    static_assert(!scanrec::detail::recomputes<R>,
                  "scanrec: this backend does not recompute states");
    static_assert(alignof(step_map<R>) <= 16,
                  "scanrec: the alignment of a map must be at most 16 bytes");
    plan.sums.bind(recurrence, workspace);
  }
  void load(const map_memory& to, std::int64_t shift, std::int64_t first_state) const {
    using kernel = load_maps<R>;
    launch(
        kernel{recurrence, operator_copy<R>(recurrence), plan.grid, steps, to, shift, first_state},
        blocks_of<kernel>(plan.grid.lane_count * steps), stream);
  }
  void finish(const map_memory& from, std::int64_t shift) const {
    using kernel = finish_steps<R>;
    launch(kernel{recurrence, operator_copy<R>(recurrence), plan.grid, plan.sums.lanes, steps,
                  plan.workers, from, shift},
           blocks_of<kernel>(plan.sums.lanes.threads * plan.workers), stream);
    add_all_lanes(recurrence, plan.sums, stream);
  }
  /// Calls f with the type of the maps in memory, as f.template operator()<Map>().
  template <class F>
  void with_maps(F f) const {
    using map = step_map<R>;
    if constexpr (!R::any_operator) {
      static_assert(sizeof(segmented<map>) ==
                    sizeof(map) + sizeof(simd::real_lane_t<scalar_of<R>>));
      if (plan.with_resets) return f.template operator()<segmented<map>>();
    }
    f.template operator()<map>();
  }
  template <class Kernel>
  static std::int64_t blocks_of(std::int64_t threads) {
    return (threads + Kernel::threads - 1) / Kernel::threads;
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
