// SPDX-License-Identifier: BSD-3-Clause
// Runs selective scans, causal convolutions and linear attention, whose arrays are rows of any
// stored type (recurrence/rows.hpp). Allocates the memory of a call and of each worker.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <scanrec/backends.hpp>
#include <scanrec/detail/cpu/scratch.hpp>
#include <scanrec/detail/cpu/workers.hpp>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/detail/simd/lanes.hpp>
#include <scanrec/executor.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::inline SCANREC_ABI {

/// A backend of selective scans, causal convolutions and linear attention. `tiled` provides
/// threads, executor and workspace. `sequential` processes one channel at a time on one thread.
template <class Backend>
concept runs_rows = std::same_as<Backend, tiled> || std::same_as<Backend, sequential>;

}  // namespace scanrec::inline SCANREC_ABI

namespace scanrec::detail::inline SCANREC_ABI {

/// The threads, executor and workspace of a call.
struct call_workers {
  int threads = 1;  // as requested; 0: chosen by policy
  const executor* on = nullptr;
  std::span<std::byte> workspace{};
};

inline call_workers workers_of(const tiled& on) { return {on.threads, &on.executor, on.workspace}; }
inline call_workers workers_of(const sequential& on) { return {1, nullptr, on.workspace}; }
template <class Backend, class V>
inline constexpr int row_lanes = std::same_as<Backend, sequential> ? 1 : simd::lanes_v<V>;

/// Memory of each worker, in whole pages.
class worker_rooms {
 public:
  /// For workers that construct Tile(p, more..., arena).
  template <class Tile, class Problem, class... More>
  static worker_rooms of(const Problem& p, int workers, arena& memory, const More&... more) {
    arena one;
    const Tile counted(p, more..., one);
    worker_rooms rooms;
    rooms.bytes_ = (one.bytes() + 4095) / 4096 * 4096;
    rooms.first_ = memory.take<std::byte>(clipped_product(workers, rooms.bytes_, most_bytes));
    return rooms;
  }
  [[nodiscard]] arena room(int worker) const { return arena(first_ + worker * bytes_); }

 private:
  std::byte* first_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// Runs a call with W lanes. Run<V, W> takes memory from an arena in its constructor, and runs the
/// call in operator(). Its plan_type divides the call into tasks.
template <template <class, int> class Run, int W, class Problem>
void run_rows(const char* call, const Problem& p, const call_workers& workers) {
  using V = typename Problem::value;
  const typename Run<V, W>::plan_type plan(p, W, workers.threads);
  arena counting;
  { const Run<V, W> counted(p, plan, counting); }
  problem named;
  named.call = call;
  scratch memory(named, counting.bytes(), least_alignment, workers.workspace);
  arena room(memory.data());
  Run<V, W> run(p, plan, room);
  const executor by_default{};
  run(workers.on != nullptr ? *workers.on : by_default);
}
/// Bytes of the workspace of the call.
template <template <class, int> class Run, int W, class Problem>
std::int64_t rows_bytes(const Problem& p, int threads) {
  using V = typename Problem::value;
  const typename Run<V, W>::plan_type plan(p, W, threads);
  arena counting;
  const Run<V, W> counted(p, plan, counting);
  return counting.bytes();
}

}  // namespace scanrec::detail::inline SCANREC_ABI
