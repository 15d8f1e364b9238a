// SPDX-License-Identifier: BSD-3-Clause
// The inner loops of causal convolutions with a fixed number of taps. They process one pack at a
// time, in memory or in cache.
#pragma once

#include <cstdint>

#include <scanrec/causal_conv1d_arrays.hpp>
#include <scanrec/detail/simd/math.hpp>
#include <scanrec/detail/simd/memory.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Rows of contiguous packs. `row` is the number of elements from step to step.
template <class S>
struct conv1d_rows {
  S* first = nullptr;
  std::int64_t row = 0;
};
/// The extents of a loop: steps, and packs per step.
struct conv1d_count {
  std::int64_t steps = 0, packs = 0;
};

template <class Lane, class S>
SCANREC_INLINE Lane load_lane(const S* p) {
  if constexpr (simd::lane_count<Lane> == 1)
    return simd::load_one<Lane>(p);
  else
    return simd::load_unit<Lane>(p);
}
template <class S, class Lane>
SCANREC_INLINE void store_lane(S* p, Lane x, bool stream = false) {
  if constexpr (simd::lane_count<Lane> == 1)
    simd::store_one(p, x);
  else if (stream)
    simd::stream_unit(p, x);
  else
    simd::store_unit(p, x);
}

/// bias + sum over k of weight[k] x[t - k]. `x` is the address of x[t].
template <int Taps, class Lane, class S>
SCANREC_INLINE Lane convolved(const S* x, std::int64_t row, const Lane* weight, Lane bias) {
  Lane sum = bias;
  simd::detail::unrolled<Taps>([&](auto k) SCANREC_LAMBDA {
    sum = simd::fma(weight[k], load_lane<Lane>(x - k * row), sum);
  });
  return sum;
}

/// y = f(convolution of x).
template <conv1d_activation F, int Taps, class Lane, class S>
[[gnu::noinline]] void convolve(const conv1d_rows<const S> x, const Lane* weight, const Lane* bias,
                                const conv1d_count count, const conv1d_rows<S> y, bool stream) {
  constexpr int lanes = simd::lane_count<Lane>;
  for (std::int64_t t = 0; t < count.steps; ++t)
    for (std::int64_t i = 0; i < count.packs; ++i) {
      Lane sum =
          convolved<Taps>(x.first + t * x.row + i * lanes, x.row, weight + i * Taps, bias[i]);
      if constexpr (F == conv1d_activation::silu) sum = simd::mul(sum, simd::sigmoid(sum).value);
      store_lane(y.first + t * y.row + i * lanes, sum, stream);
    }
}

/// sum_grad = gradient of the sums (`convolved`), from the gradient of y = f(sums).
template <conv1d_activation F, int Taps, class Lane, class S>
[[gnu::noinline]] void load_gradient(const conv1d_rows<const S> x, const Lane* weight,
                                     const Lane* bias, const conv1d_count count,
                                     const conv1d_rows<const S> y_grad, Lane* sum_grad,
                                     std::int64_t sum_row) {
  constexpr int lanes = simd::lane_count<Lane>;
  for (std::int64_t t = 0; t < count.steps; ++t)
    for (std::int64_t i = 0; i < count.packs; ++i) {
      Lane grad = load_lane<Lane>(y_grad.first + t * y_grad.row + i * lanes);
      if constexpr (F == conv1d_activation::silu) {
        const Lane sum =
            convolved<Taps>(x.first + t * x.row + i * lanes, x.row, weight + i * Taps, bias[i]);
        auto s = simd::sigmoid(sum);
        grad = simd::mul(grad, simd::fma(sum, s.slope, s.value));
      }
      sum_grad[t * sum_row + i] = grad;
    }
}

/// x_grad[t] = sum over k of weight[k] sum_grad[t + k].
template <int Taps, class Lane, class S>
[[gnu::noinline]] void correlate(const Lane* sum_grad, std::int64_t sum_row, const Lane* weight,
                                 const conv1d_count count, const conv1d_rows<S> x_grad,
                                 bool stream) {
  constexpr int lanes = simd::lane_count<Lane>;
  for (std::int64_t t = 0; t < count.steps; ++t)
    for (std::int64_t i = 0; i < count.packs; ++i) {
      Lane sum = simd::constant<Lane>(0);
      simd::detail::unrolled<Taps>([&](auto k) SCANREC_LAMBDA {
        sum = simd::fma(weight[i * Taps + k], sum_grad[(t + k) * sum_row + i], sum);
      });
      store_lane(x_grad.first + t * x_grad.row + i * lanes, sum, stream);
    }
}

/// sums[k] = sum over t of sum_grad[t] x[t - k]. The last entry is the sum of sum_grad.
template <int Taps, class Lane, class S>
[[gnu::noinline]] void sum_products(const conv1d_rows<const S> x, std::int64_t steps,
                                    const Lane* sum_grad, std::int64_t sum_row, Lane* sums) {
  Lane sum[Taps + 1];
  simd::detail::unrolled<Taps + 1>([&](auto k)
                                       SCANREC_LAMBDA { sum[k] = simd::constant<Lane>(0); });
  for (std::int64_t t = 0; t < steps; ++t) {
    const Lane grad = sum_grad[t * sum_row];
    const S* const at = x.first + t * x.row;
    simd::detail::unrolled<Taps>([&](auto k) SCANREC_LAMBDA {
      sum[k] = simd::fma(grad, load_lane<Lane>(at - k * x.row), sum[k]);
    });
    sum[Taps] = sum[Taps] + grad;
  }
  simd::detail::unrolled<Taps + 1>([&](auto k) SCANREC_LAMBDA { sums[k] = sum[k]; });
}

}  // namespace scanrec::detail::inline SCANREC_ABI
