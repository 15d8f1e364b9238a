// SPDX-License-Identifier: BSD-3-Clause
// Divides a causal convolution into parts, runs them, and sums the gradients of weights and bias.
//
// A part consists of some steps of some channels of one sequence. Parts are independent. Each also
// reads the width - 1 steps before it, and in the adjoint as many after it.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/causal_conv1d_adjoint.hpp>
#include <scanrec/detail/cpu/causal_conv1d_tile.hpp>
#include <scanrec/detail/cpu/row_calls.hpp>
#include <scanrec/detail/cpu/workers.hpp>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/executor.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The constants that decide how a call is divided into parts.
struct conv1d_policy {
  /// Approximate number of elements of a part. Parts are larger if there would be more than
  /// `most_parts`.
  static constexpr std::int64_t part_elements = 16 * 1024;
  /// Approximate limit on the number of parts. In the adjoint each part has sums of gradients,
  /// which take memory.
  static constexpr std::int64_t most_parts = 1024;
  /// Elements per thread below which another thread costs more than it saves.
  static constexpr std::int64_t thread_elements = 32 * 1024;
};

/// The division of a call into parts. Only `workers` depends on the number of threads.
struct conv1d_plan {
  int lanes = 1, workers = 1;
  conv1d_tile_size tile;
  std::int64_t time = 0;
  std::int64_t packs = 0;       // of all channels
  std::int64_t blocks = 0;      // blocks of channels; a block has as many packs as a tile
  std::int64_t part_steps = 1;  // a multiple of the steps of a tile
  std::int64_t pieces = 1;      // pieces of time per sequence
  std::int64_t parts = 0;

  template <class V>
  conv1d_plan(const causal_conv1d_problem<V>& p, int lanes_of, int threads)
      : lanes(lanes_of),
        tile(conv1d_tile_size::of(p, lanes_of)),
        time(p.time),
        packs(up(p.channels, lanes)),
        blocks(up(packs, tile.packs)) {
    using policy = conv1d_policy;
    const std::int64_t elements = clipped_product(clipped_product(p.batch, p.channels), time);
    const std::int64_t of_part = std::max(policy::part_elements, up(elements, policy::most_parts));
    const std::int64_t tiles = up(up(time, up(time, of_part / (tile.packs * lanes))), tile.steps);
    // A part has at least width - 1 steps, so only the first part of a sequence reads the initial
    // state.
    part_steps = std::max({tiles, up(p.width - 1, tile.steps), std::int64_t{1}}) * tile.steps;
    pieces = std::max<std::int64_t>(1, up(time, part_steps));
    parts = p.batch * pieces * blocks;
    const int useful = threads_for(threads, elements / policy::thread_elements);
    workers = static_cast<int>(std::clamp<std::int64_t>(parts, 1, useful));
  }
  /// Calls f(first step, end) for the tiles of a part. If there are no steps, calls f once with an
  /// empty range.
  template <class F>
  void for_tiles(std::int64_t part, F f) const {
    const std::int64_t begin = piece_of(part) % pieces * part_steps;
    const std::int64_t end = std::min(begin + part_steps, time);
    std::int64_t t = begin;
    do f(t, std::min(t + tile.steps, end));
    while ((t += tile.steps) < end);
  }
  // Part numbers combine the sequence, the piece of time, and the block of channels.
  [[nodiscard]] std::int64_t piece_of(std::int64_t part) const { return part / blocks; }
  [[nodiscard]] std::int64_t sequence_of(std::int64_t part) const {
    return piece_of(part) / pieces;
  }
  [[nodiscard]] std::int64_t first_pack_of(std::int64_t part) const {
    return part % blocks * tile.packs;
  }

 private:
  static std::int64_t up(std::int64_t count, std::int64_t by) {
    return by > 0 ? (count + by - 1) / by : 0;
  }
};

/// Runs all parts. Calls f(tile, part) with the tile moved to the channels of the part.
template <class Tile, class Problem, class F>
void run_parts(const Problem& p, const conv1d_plan& plan, const worker_rooms& rooms,
               const executor& on, F f) {
  task_queue parts(plan.parts);
  run_on(on, plan.workers, [&](int worker) {
    arena room = rooms.room(worker);
    Tile tile(p, room);
    parts.work_off(worker, [&](std::int64_t part) {
      tile.move_to(plan.sequence_of(part), plan.first_pack_of(part) * plan.lanes);
      f(tile, part);
    });
    simd::stream_fence();
  });
  parts.rethrow();
}

/// A forward call. The constructor takes memory from the arena, and operator() runs the call.
template <class V, int W>
class conv1d_forward_run {
 public:
  using plan_type = conv1d_plan;
  using tile = conv1d_forward<V, W>;

  conv1d_forward_run(const causal_conv1d_problem<V>& p, const conv1d_plan& plan, arena& memory)
      : p_(p), plan_(plan), rooms_(worker_rooms::of<tile>(p, plan.workers, memory)) {}

  void operator()(const executor& on) const {
    run_parts<tile>(p_, plan_, rooms_, on, [&](tile& work, std::int64_t part) {
      plan_.for_tiles(part, [&](std::int64_t begin, std::int64_t end) { work.run(begin, end); });
      if (plan_.piece_of(part) % plan_.pieces == 0) work.store_final_state();
    });
  }

 private:
  const causal_conv1d_problem<V>& p_;
  const conv1d_plan& plan_;
  worker_rooms rooms_;
};

/// An adjoint call. The constructor takes memory from the arena, and operator() runs the call.
template <class V, int W>
class conv1d_vjp_run {
 public:
  using plan_type = conv1d_plan;
  using tile = conv1d_adjoint<V, W>;

  conv1d_vjp_run(const causal_conv1d_vjp_problem<V>& p, const conv1d_plan& plan, arena& memory)
      : p_(p),
        plan_(plan),
        rooms_(worker_rooms::of<tile>(p, plan.workers, memory)),
        sums_(memory.take<double>(has_sums() ? clipped_product(pieces() * plan.packs, pack_sums())
                                             : 0)) {}

  void operator()(const executor& on) const {
    run_parts<tile>(p_, plan_, rooms_, on, [&](tile& work, std::int64_t part) {
      const std::int64_t first = plan_.first_pack_of(part);
      double* const sums = has_sums() ? sums_of(plan_.piece_of(part), first) : nullptr;
      if (sums != nullptr)
        std::fill_n(sums, std::min(plan_.tile.packs, plan_.packs - first) * pack_sums(), 0.0);
      plan_.for_tiles(part,
                      [&](std::int64_t begin, std::int64_t end) { work.run(begin, end, sums); });
    });
    if (!has_sums()) return;
    task_queue packs(plan_.packs);
    run_on(on, plan_.workers, [&](int worker) {
      packs.work_off(worker, [&](std::int64_t pack) { store_sums(pack); });
    });
    packs.rethrow();
  }

 private:
  [[nodiscard]] bool has_sums() const { return p_.weight_grad.present() || p_.bias_grad.present(); }
  [[nodiscard]] std::int64_t pieces() const { return p_.batch * plan_.pieces; }
  // Number of sums of a pack: for each lane, one per tap and one for the bias.
  [[nodiscard]] std::int64_t pack_sums() const { return (p_.width + 1) * W; }
  [[nodiscard]] double* sums_of(std::int64_t piece, std::int64_t pack) const {
    return sums_ + (piece * plan_.packs + pack) * pack_sums();
  }
  // Adds up the sums of a pack over all sequences and pieces of time, in order, and stores the
  // gradients of its channels.
  void store_sums(std::int64_t pack) const {
    const std::int64_t channel = pack * W, count = std::min<std::int64_t>(W, p_.channels - channel);
    for (std::int64_t k = 0; k <= p_.width; ++k) {
      const value_array<V>& grad = k < p_.width ? p_.weight_grad : p_.bias_grad;
      if (!grad.present()) continue;
      double totals[W] = {};
      for (std::int64_t piece = 0; piece < pieces(); ++piece)
        for (int i = 0; i < W; ++i) totals[i] += sums_of(piece, pack)[k * W + i];
      for (std::int64_t i = 0; i < count; ++i) {
        V& to = *grad.at(0, channel + i, k < p_.width ? p_.width - 1 - k : 0);
        to = (p_.update ? to : V(0)) + static_cast<V>(totals[i]);
      }
    }
  }

  const causal_conv1d_vjp_problem<V>& p_;
  const conv1d_plan& plan_;
  worker_rooms rooms_;
  double* sums_;  // (sequence and piece of time, pack, tap or bias, lane)
};

}  // namespace scanrec::detail::inline SCANREC_ABI
