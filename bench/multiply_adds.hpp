// SPDX-License-Identifier: BSD-3-Clause
// The arithmetic baseline of calls that are limited by multiply-adds: independent multiply-adds on
// registers, without loads and stores.
#pragma once

#include <cstdint>
#include <vector>

#include "copy_baseline.hpp"

namespace bench {

/// Runs `count` multiply-adds of V, divided among `threads` threads. Ten chains of whole registers
/// hide the latency of a multiply-add: the processors of today need eight or fewer.
template <class V>
void run_multiply_adds(double count, int threads) {
  using namespace scanrec;
  using lane = simd::pack<V, simd::leaf_lanes<V>>;
  constexpr int chains = 10;
  static std::vector<V> sink(1024);
  const auto rounds =
      static_cast<std::int64_t>(count / (chains * simd::leaf_lanes<V>)) / threads + 1;
  in_parallel(threads, [&](int worker) {
    // The values converge to 2, so that no exception or denormal number slows them down.
    const lane factor(V(0.5)), term(V(1));
    lane x[chains];
    for (int i = 0; i < chains; ++i) x[i] = lane(static_cast<V>(i));
    for (std::int64_t r = 0; r < rounds; ++r)
      simd::detail::unrolled<chains>([&](auto i)
                                         SCANREC_LAMBDA { x[i] = simd::fma(x[i], factor, term); });
    for (int i = 1; i < chains; ++i) x[0] = x[0] + x[i];
    sink[static_cast<std::size_t>(worker)] = simd::sum(x[0]);
  });
}

}  // namespace bench
