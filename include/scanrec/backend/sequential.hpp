// SPDX-License-Identifier: BSD-3-Clause
// The plain loop: one lane, one step after the other. The reference of every test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <scanrec/backend/sums.hpp>
#include <scanrec/operators.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::inline SCANREC_ABI {

/// Scalar loop over every sequence in turn; no threads, no SIMD.
///
/// Memory  nothing, except accumulators in the wide type for gradients that are sums.
struct sequential {};

}  // namespace scanrec::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// Runs a recurrence, given in scan order, step by step.
template <class R>
void run_recurrence(const sequential&, R recurrence, const problem& p) {
  using lane = simd::lane_t<typename R::value, 1>;
  using place = recurrence::place<recurrence::lane_axis::channel>;
  constexpr std::int64_t sum_steps = 256;

  detail::for_outputs(recurrence, [](auto& out) { out.stream = false; });
  const detail::sums_layout sums(p, p.shape);
  std::vector<std::byte> totals(static_cast<std::size_t>(sums.total_bytes));
  sums.bind_totals(recurrence, totals.data());

  for (std::int64_t g = 0; g < p.shape.group; ++g)
    for (std::int64_t b = 0; b < p.shape.batch; ++b) {
      const R row = detail::bound(recurrence, g, b);
      for (std::int64_t c = 0; c < p.shape.channel; ++c) {
        const R r = detail::standing_at(row, 0, c);
        place at{0, c};
        auto x = r.template begin<lane>(at);
        typename R::template sums<lane> running{};
        for (; at.time < p.shape.time; ++at.time, ++at.row) {
          const auto read = r.template load<lane>(at);
          const auto after = r.next(at, read, x);
          r.finish(at, read, x, after, running);
          x = after;
          if (at.time % sum_steps == sum_steps - 1) r.drain(at, running);
        }
        r.drain(at, running);
        r.end(at, x);
      }
    }

  sums.write(recurrence, p.shape, totals.data());
}

/// Bytes the sequential backend allocates for a problem: the accumulators of summed gradients.
inline std::int64_t workspace_bytes(const sequential&, const problem& p) {
  return detail::sums_layout(p, p.shape).total_bytes;
}

}  // namespace scanrec::inline SCANREC_ABI
