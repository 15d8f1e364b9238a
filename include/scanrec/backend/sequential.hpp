// SPDX-License-Identifier: BSD-3-Clause
// The plain loop: one lane, one step after the other. The reference of every test.
#pragma once

#include <array>
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

namespace scanrec::detail::inline SCANREC_ABI {

/// Runs a recurrence, given in scan order, step by step.
template <class R>
void run(const sequential&, R recurrence, const problem& p) {
  using lane = simd::lane_t<typename R::value, 1>;
  using place = recurrence::place<recurrence::lane_axis::channel>;
  constexpr std::int64_t sum_steps = 256;

  std::array<std::vector<wide_t<typename R::value>>, 4> accumulators;
  int output = 0;
  const array_use* array = p.begin();
  for_outputs(recurrence, [&](auto& out) {
    while (array->use == access::read) ++array;
    out.stream = false;
    if (summed(*array)) {
      auto& sums = accumulators[output];
      sums.assign(dense_sums(*array, p.shape, out.sums.strides), {});
      out.sums.data = sums.data();
    }
    ++array, ++output;
  });

  for (std::int64_t g = 0; g < p.shape.group; ++g)
    for (std::int64_t b = 0; b < p.shape.batch; ++b) {
      const R row = bound(recurrence, g, b);
      for (std::int64_t c = 0; c < p.shape.channel; ++c) {
        R r = row;
        const auto seek = [c](auto& field) { field.seek(0, c); };
        R::for_reads(r, seek), R::for_writes(r, seek);
        place at{0, c};
        lane x = r.template begin<lane>(at);
        typename R::template sums<lane> running{};
        for (; at.time < p.shape.time; ++at.time, ++at.row) {
          const auto read = r.template load<lane>(at);
          const lane after = r.next(at, read, x);
          r.finish(at, read, x, after, running);
          x = after;
          if (at.time % sum_steps == sum_steps - 1) r.drain(at, running);
        }
        r.drain(at, running);
        r.end(at, x);
      }
    }

  for_outputs(recurrence, [&](auto& out) {
    if (out.summed()) write_sums(out, out.sums.data, out.sums.strides, {{0, 0, 0, 0}, p.shape});
  });
}

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// Bytes the sequential backend allocates for a problem: the accumulators of summed gradients.
inline std::int64_t workspace_bytes(const sequential&, const problem& p) {
  std::int64_t bytes = 0;
  for (const array_use& array : p) {
    extents strides{0, 0, 0, 0};
    if (detail::summed(array)) bytes += detail::dense_sums(array, p.shape, strides) * p.wide_bytes;
  }
  return bytes;
}

}  // namespace scanrec::inline SCANREC_ABI
