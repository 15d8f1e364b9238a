// SPDX-License-Identifier: BSD-3-Clause
// The sequential backend: one sequence after another, step by step. It is the reference of the
// tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include <scanrec/backends.hpp>
#include <scanrec/detail/cpu/scratch.hpp>
#include <scanrec/detail/maps/lane_scans.hpp>
#include <scanrec/detail/recurrence/recompute.hpp>
#include <scanrec/detail/recurrence/steps.hpp>
#include <scanrec/detail/recurrence/sums.hpp>
#include <scanrec/detail/text.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Runs steps [begin, end) of the sequence at `r`, starting from state x. Returns the last state.
template <class R, class State>
State run_steps_of(const R& r, std::int64_t begin, std::int64_t end, std::int64_t channel, State x,
                   auto& running) {
  using lane = simd::lane_t<typename R::value, 1>;
  recurrence::position<recurrence::lane_axis::channel> at{begin, channel, begin};
  for (; end > at.time; ++at.time, ++at.row) {
    x = take_step(r, at, r.template load<lane>(at), x, running);
    if (at.time % sum_steps == sum_steps - 1) r.flush(at, running);
  }
  return x;
}

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// Runs a recurrence step by step. Its arrays are in scan order: a reverse scan has negated time
/// strides.
template <class R>
void run_recurrence(const sequential& backend, R recurrence, const problem& p) {
  using namespace detail;
  using lane = simd::lane_t<typename R::value, 1>;
  using position = recurrence::position<recurrence::lane_axis::channel>;

  for_outputs(recurrence, [](auto& out) { out.stream = false; });
  const sums_layout sums(p, p.shape);
  const recompute_scratch room(p, {}, 1);
  scratch memory(p, sums.total_bytes + room.bytes, least_alignment, backend.workspace);
  std::memset(memory.data(), 0, static_cast<std::size_t>(sums.total_bytes));
  std::byte* const recomputed = memory.data() + sums.total_bytes;
  sums.bind_totals(recurrence, memory.data());

  for (std::int64_t g = 0; g < p.shape.group; ++g)
    for (std::int64_t b = 0; b < p.shape.batch; ++b) {
      const R row = bound(recurrence, g, b);
      for (std::int64_t c = 0; c < p.shape.channel; ++c) {
        const auto run = [c](const auto& r, std::int64_t begin, std::int64_t end, auto x,
                             auto& running) {
          return run_steps_of(standing_at(r, 0, c), begin, end, c, x, running);
        };
        auto x = row.template begin<lane>(position{0, c});
        typename R::template sums<lane> running{};
        with_states(
            row, {0, p.shape.time, c, 1}, room, recomputed,
            [&](const auto& forward, const block& part, std::byte*) {
              typename std::remove_cvref_t<decltype(forward)>::template sums<lane> none;
              run(forward, part.begin, part.end,
                  forward.template begin<lane>(position{part.begin, c}), none);
            },
            [&](const auto& r, const block& part) {
              x = run(r, part.begin, part.end, x, running);
            });
        const position end{p.shape.time, c};
        const R r = standing_at(row, 0, c);
        r.flush(end, running);
        r.end(end, x);
      }
    }

  sums.write(recurrence, p.shape, memory.data());
}

/// The plan of the sequential backend. describe() returns it.
struct sequential_plan {
  extents shape{0, 0, 0, 0};         ///< after merging axes
  std::int64_t workspace_bytes = 0;  ///< allocated per call, unless it fits the stack buffer
};
/// The plan as text.
inline std::string to_string(const sequential_plan& plan) {
  using detail::text;
  text all("shape       ", plan.shape);
  append(all, text("\nlanes       none, one element after the other\nthreads     1\nworkspace   ",
                   plan.workspace_bytes, " bytes\n"));
  return all.c_str();
}

/// Bytes that the sequential backend allocates for a problem: the accumulators of summed gradients,
/// and the recomputed states of a checkpoint interval. Workspaces of at most 8 KiB are on the
/// stack.
inline std::int64_t workspace_bytes(const sequential&, const problem& p) {
  return detail::sums_layout(p, p.shape).total_bytes + detail::recompute_scratch(p, {}, 1).bytes;
}

/// The plan of the sequential backend for a problem.
inline sequential_plan describe(const sequential& backend, const problem& p) {
  return {p.shape, workspace_bytes(backend, p)};
}

}  // namespace scanrec::inline SCANREC_ABI
