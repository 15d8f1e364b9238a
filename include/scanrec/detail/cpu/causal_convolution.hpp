// SPDX-License-Identifier: BSD-3-Clause
// A depthwise convolution over the last steps of time-major rows, and its adjoint: taps of every
// channel, which do not look across resets. Sums are taken step by step, in the order of the taps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <scanrec/detail/simd/math.hpp>
#include <scanrec/detail/simd/memory.hpp>
#include <scanrec/views.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// f(lane of no meaning, first number) for whole packs of numbers, then for single ones.
template <class R, class F>
SCANREC_INLINE void for_lanes(std::int64_t count, F f) {
  constexpr int lanes = simd::lanes_v<R>;
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) f(simd::lane_t<R, lanes>{}, i);
  for (; i < count; ++i) f(simd::lane_t<R, 1>{}, i);
}
template <class Lane, class R>
SCANREC_INLINE Lane lane_at(const R* p) {
  if constexpr (simd::lane_count<Lane> == 1)
    return simd::load_one<Lane>(p);
  else
    return simd::load_unit<Lane>(p);
}
template <class Lane, class R>
SCANREC_INLINE void put_lane(R* p, Lane x) {
  if constexpr (simd::lane_count<Lane> == 1)
    simd::store_one(p, x);
  else
    simd::store_unit(p, x);
}

/// What is convolved: rows of u, one per step and sequence, those of a step side by side.
template <class R>
struct causal_convolution {
  std::int64_t batch = 1, steps = 0, channels = 0, window = 1;
  const R* taps = nullptr;  // window x channels, the present step first
  const R* u = nullptr;
  std::int64_t u_stride = 0;
  const R* past = nullptr;         // the window - 1 steps before: as many rows, contiguous
  std::vector<std::int64_t> seen;  // how many steps before a row it sees; empty: window - 1

  /// Marks (batch, steps, 1) of where sequences start.
  void cut(const sequence_view<const bool>& resets) {
    seen.resize(static_cast<std::size_t>(rows()));
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t t = 0, now = window - 1; t < steps; ++t) {
        now = resets.at(b, t, 0) ? 0 : std::min(window - 1, now + 1);
        seen[static_cast<std::size_t>(t * batch + b)] = now;
      }
  }

  /// to = bias + the convolution; contiguous rows.
  void run(const R* bias, R* to) const {
    std::vector<const R*> before(static_cast<std::size_t>(window));
    for (std::int64_t r = 0; r < rows(); ++r, to += channels) {
      const std::int64_t most = seen_at(r);
      for (std::int64_t k = 0; k <= most; ++k) before[static_cast<std::size_t>(k)] = row(r, k);
      for_lanes<R>(channels, [=, x = before.data(), w = taps, n = channels](
                                 auto lane, std::int64_t c) SCANREC_LAMBDA {
        using L = decltype(lane);
        L sum = lane_at<L>(bias + c);
        for (std::int64_t k = 0; k <= most; ++k)
          sum = simd::fma(lane_at<L>(w + k * n + c), lane_at<L>(x[k] + c), sum);
        put_lane(to + c, sum);
      });
    }
  }
  /// Adds the gradient of the taps, from that of the convolution.
  void taps_vjp(const R* grad, R* taps_grad) const {
    for (std::int64_t r = 0; r < rows(); ++r, grad += channels)
      for (std::int64_t k = 0; k <= seen_at(r); ++k)
        for_lanes<R>(channels, [=, x = row(r, k), sums = taps_grad + k * channels](
                                   auto lane, std::int64_t c) SCANREC_LAMBDA {
          using L = decltype(lane);
          put_lane(sums + c,
                   simd::fma(lane_at<L>(x + c), lane_at<L>(grad + c), lane_at<L>(sums + c)));
        });
  }
  /// Writes the gradient of u, which may take its place.
  void u_vjp(const R* grad, R* to, std::int64_t stride) const {
    std::vector<const R*> after(static_cast<std::size_t>(window)), by(after.size());
    for (std::int64_t r = 0; r < rows(); ++r, to += stride) {
      std::size_t count = 0;  // of the steps that saw this one
      for (std::int64_t k = 0, at = r; k < window && at < rows(); ++k, at += batch)
        if (k <= seen_at(at))
          after[count] = grad + at * channels, by[count++] = taps + k * channels;
      for_lanes<R>(channels,
                   [=, g = after.data(), w = by.data()](auto lane, std::int64_t c) SCANREC_LAMBDA {
                     using L = decltype(lane);
                     L sum = simd::constant<L>(0);
                     for (std::size_t i = 0; i < count; ++i)
                       sum = simd::fma(lane_at<L>(w[i] + c), lane_at<L>(g[i] + c), sum);
                     put_lane(to + c, sum);
                   });
    }
  }
  /// What a convolution of the steps to come has as its past: the last steps, and zeros for those
  /// before a reset. Not in place.
  void carry(R* to) const {
    for (std::int64_t age = window - 2; age >= 0; --age)
      for (std::int64_t b = 0; b < batch; ++b, to += channels) {
        const std::int64_t last = rows() - batch + b;
        if (steps > 0 && age > seen_at(last))
          std::fill_n(to, channels, R(0));
        else
          std::copy_n(row(last, age), channels, to);
      }
  }

 private:
  [[nodiscard]] std::int64_t rows() const { return batch * steps; }
  [[nodiscard]] std::int64_t seen_at(std::int64_t r) const {
    return seen.empty() ? window - 1 : seen[static_cast<std::size_t>(r)];
  }
  // u of k steps before row r, which may lie in the past.
  [[nodiscard]] const R* row(std::int64_t r, std::int64_t k) const {
    const std::int64_t at = r - k * batch;
    return at < 0 ? past + ((window - 1) * batch + at) * channels : u + at * u_stride;
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
