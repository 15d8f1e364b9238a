// SPDX-License-Identifier: BSD-3-Clause
// A backend that splits time into two halves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <scanrec/extend.hpp>

namespace mine {

using namespace scanrec::extend;

// [own_backend]
/// Reduces the first half to one map, which gives the state before the second half.
struct halves {};

inline std::int64_t workspace_bytes(const halves&, const scanrec::problem& p) {
  return sums_layout(p, p.shape).total_bytes;
}

template <class R>
void run_recurrence(const halves&, R recurrence, const scanrec::problem& p) {
  using lane = lane_of<R>;
  const sums_layout sums(p, p.shape);  // gradients that are sums, in the wide type
  std::vector<std::byte> totals(static_cast<std::size_t>(sums.total_bytes));
  sums.bind_totals(recurrence, totals.data());
  const std::int64_t T = p.shape.time, middle = T / 2;
  for (std::int64_t g = 0; g < p.shape.group; ++g)
    for (std::int64_t b = 0; b < p.shape.batch; ++b)
      for (std::int64_t c = 0; c < p.shape.channel; ++c) {
        const R r = sequence_of(recurrence, g, b, c);
        const auto run = [&](std::int64_t begin, std::int64_t end, state_of<R> x) {
          sums_of<R> running{};
          for (scalar_position at{begin, c, begin}; at.time < end; ++at.time, ++at.row) {
            x = take_step(r, at, r.template load<lane>(at), x, running);
            r.flush(at, running);
          }
          return x;
        };
        auto first = map_of<R>::identity();
        for (scalar_position at{0, c}; at.time < middle; ++at.time, ++at.row)
          first = combine(first, map_of<R>(r.map(at, r.template load<lane>(at))));
        const state_of<R> start = r.template begin<lane>(scalar_position{0, c});
        run(0, middle, start);
        r.end(scalar_position{T, c}, run(middle, T, first.act(start)));
      }
  sums.write(recurrence, p.shape, totals.data());
}
// [/own_backend]

}  // namespace mine
