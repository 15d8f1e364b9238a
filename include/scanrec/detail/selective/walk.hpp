// SPDX-License-Identifier: BSD-3-Clause
// The loops of the selective scan: lanes along channels, a few states of each in registers, over
// steps whose rows lie in cache. States of a step never reach memory, but in the adjoint those of
// 128 steps of a few states, which stay in L2.
#pragma once

#include <cstdint>
#include <type_traits>

#include <scanrec/detail/simd/softplus.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// B or C at some steps: of every step for all lanes, or of every lane for all steps.
template <class Lane>
struct mixing_rows {
  using scalar = simd::scalar_of<Lane>;
  /// States that lie side by side in a row; those beyond follow behind all steps.
  static constexpr int width = simd::lanes_v<scalar>;

  const scalar* shared = nullptr;  // (block of states, step, state)
  std::int64_t block = 0;          // elements between two blocks
  const Lane* own = nullptr;       // (state)

  /// The same from a state on, `count` of which share a block: place 0 is that state.
  [[nodiscard]] SCANREC_INLINE mixing_rows from(std::int64_t state) const {
    if (own != nullptr) return {nullptr, 0, own + state};
    return {shared + state / width * block + state % width, block, nullptr};
  }
  /// `Shared`: whether it is known to be shared.
  template <bool Shared>
  [[nodiscard]] SCANREC_INLINE Lane at(std::int64_t step, int place) const {
    if (Shared || own == nullptr) return simd::splat<Lane>(shared[step * width + place]);
    return own[place];
  }
};

/// Rows of some steps of one pack of channels.
template <class Lane>
struct selective_rows {
  std::int64_t steps = 0;
  const Lane* delta = nullptr;  // after bias and softplus
  const Lane* fed = nullptr;    // delta * u
  Lane* y = nullptr;            // sum of C x, which is added to; null: not wanted
  const Lane* cuts = nullptr;   // 1 in lanes that are cut from the step before; null: none is
  const bool* any_cut = nullptr;
  mixing_rows<Lane> b, c;
};

/// The factor of a step. `Decays`: it is known to be at most 1.
template <bool Decays, class Lane>
SCANREC_INLINE Lane selective_gate(Lane delta, Lane rate) {
  const Lane y = simd::mul(delta, rate);
  if constexpr (Decays)
    return simd::exp_of_negative(y);
  else
    return simd::exp_of_any(y);
}

/// How kernels are compiled: for all that there is, or for gates that decay, and B and C of every
/// step, without tests.
enum class selective_case { any, decaying };

/// The deltas that gates are made of: 0 in lanes that are cut, whose states are 0 there too.
template <int NB, class Lane>
SCANREC_INLINE Lane cut_states(const selective_rows<Lane>& rows, std::int64_t t, Lane delta,
                               Lane (&x)[NB]) {
  const Lane cut = rows.cuts[t], zero = simd::constant<Lane>(0);
  simd::detail::unrolled<NB>([&](auto i) SCANREC_LAMBDA { x[i] = simd::select(cut, zero, x[i]); });
  return simd::select(cut, zero, delta);
}

/// Takes NB states from `first` on through the steps. `Out`: whether y is wanted.
template <int NB, selective_case Case, bool Out, class Lane>
[[gnu::noinline]] void walk_states(const selective_rows<Lane>& given, const Lane* rates,
                                   std::int64_t first, Lane* states) {
  constexpr bool plain = Case == selective_case::decaying;
  const selective_rows<Lane> rows = given;
  const mixing_rows<Lane> b = rows.b.from(first), c = rows.c.from(first);
  Lane rate[NB], x[NB];
  simd::detail::unrolled<NB>(
      [&](auto i) SCANREC_LAMBDA { rate[i] = rates[first + i], x[i] = states[first + i]; });
  for (std::int64_t t = 0; t < rows.steps; ++t) {
    Lane delta = rows.delta[t];
    const Lane fed = rows.fed[t];
    if (rows.cuts != nullptr && rows.any_cut[t]) delta = cut_states<NB>(rows, t, delta, x);
    Lane y = Out ? rows.y[t] : fed;
    simd::detail::unrolled<NB>([&](auto i) SCANREC_LAMBDA {
      const Lane a = selective_gate<plain>(delta, rate[i]);
      x[i] = simd::fma(a, x[i], simd::mul(b.template at<plain>(t, i), fed));
      if constexpr (Out) y = simd::fma(c.template at<plain>(t, i), x[i], y);
    });
    if constexpr (Out) rows.y[t] = y;
  }
  simd::detail::unrolled<NB>([&](auto i) SCANREC_LAMBDA { states[first + i] = x[i]; });
}

/// Sums over lanes: lane k of the result is that of rows[k], by halves, upper onto lower, as
/// simd::sum has it.
template <class T, int N>
SCANREC_INLINE simd::pack<T, N> sums_of_lanes(const simd::pack<T, N> (&rows)[N]);

namespace lane_sums {
// Segments of 2 H lanes become segments of H lanes, those of x before those of y.
template <int H, int Upper, class V, int... I>
SCANREC_INLINE V fold_raw(V x, V y, std::integer_sequence<int, I...>) {
  return simd::detail::shuffle_raw<(I / H * 2 * H + Upper * H + I % H)...>(x, y);
}
template <int H, class T, int N>
SCANREC_INLINE simd::pack<T, N> fold(simd::pack<T, N> x, simd::pack<T, N> y) {
  using pack = simd::pack<T, N>;
  if constexpr (simd::is_leaf<T, N>) {
    using lanes = simd::detail::leaf_indices<T>;
    return pack(fold_raw<H, 0>(x.v, y.v, lanes{})) + pack(fold_raw<H, 1>(x.v, y.v, lanes{}));
  } else if constexpr (2 * H == N) {
    return {x.lo + x.hi, y.lo + y.hi};
  } else {
    return {fold<H>(x.lo, x.hi), fold<H>(y.lo, y.hi)};
  }
}
template <int H, class T, int N, int Count>
SCANREC_INLINE simd::pack<T, N> fold_all(const simd::pack<T, N> (&rows)[Count]) {
  if constexpr (Count == 1) {
    return rows[0];
  } else {
    simd::pack<T, N> folded[Count / 2];
    simd::detail::unrolled<Count / 2>(
        [&](auto i) SCANREC_LAMBDA { folded[i] = fold<H>(rows[2 * i], rows[2 * i + 1]); });
    return fold_all<H / 2>(folded);
  }
}
}  // namespace lane_sums

template <class T, int N>
SCANREC_INLINE simd::pack<T, N> sums_of_lanes(const simd::pack<T, N> (&rows)[N]) {
  return lane_sums::fold_all<N / 2>(rows);
}

/// Gathers products of some steps by some states, and adds their sums over lanes to (step, state).
template <int NB, class Lane>
struct summed_products {
  using scalar = simd::scalar_of<Lane>;
  static constexpr int lanes = simd::lane_count<Lane>;
  static constexpr int together = lanes >= NB ? lanes / NB : 1;  // steps

  Lane rows[together * NB];

  /// A call, so that no compiler makes a product and the sum that it goes into one operation.
  [[gnu::noinline]] void add_to(scalar* to, std::int64_t stride) const {
    if constexpr (lanes == 1) {
      for (int i = 0; i < NB; ++i) to[i] += rows[i];
    } else {
      alignas(64) scalar sums[lanes];
      simd::store_unit(static_cast<scalar*>(sums), sums_of_lanes(rows));
      for (int t = 0; t < together; ++t)
        for (int i = 0; i < NB; ++i) to[t * stride + i] += sums[t * NB + i];
    }
  }
};

/// What the adjoint has besides, of some steps of one pack of channels.
template <class Lane>
struct selective_grad_rows {
  using scalar = simd::scalar_of<Lane>;
  const Lane* y_grad = nullptr;  // of the sum of C x
  Lane* fed_sum = nullptr;       // sum of l B, which is added to
  Lane* gate_sum = nullptr;      // sum of l A a x[t-1], which is added to
  scalar* b_sums = nullptr;      // sums over lanes of l delta u, (step, state), which are added to;
                                 // null: not wanted
  scalar* c_sums = nullptr;      // the same of y_grad x
  std::int64_t sums_stride = 0;
  Lane* kept = nullptr;  // room for 2 NB lanes per step
  std::int64_t end = 0;  // the first idle step
};

/// Sums over steps, (state); null: not wanted.
template <class Lane>
struct selective_grad_sums {
  Lane* rates = nullptr;
  Lane* b = nullptr;
  Lane* c = nullptr;
};

/// Takes NB states from `first` on through the steps, then their gradients back: `states` are those
/// before the steps, `grads` the gradients that come from behind them, and go to those before.
/// Steps are a multiple of 16, the last of which may be idle: delta, fed and y_grad are 0 there.
template <int NB, selective_case Case, class Lane>
[[gnu::noinline]] void pull_states(const selective_rows<Lane>& given,
                                   const selective_grad_rows<Lane>& given_grads,
                                   const selective_grad_sums<Lane>& sums, const Lane* rates,
                                   std::int64_t first, const Lane* states, Lane* grads) {
  constexpr bool plain = Case == selective_case::decaying;
  using products = summed_products<NB, Lane>;
  constexpr int together = products::together;
  const selective_rows<Lane> rows = given;
  const selective_grad_rows<Lane> back = given_grads;
  const mixing_rows<Lane> b = rows.b.from(first), c = rows.c.from(first);
  const Lane zero = simd::constant<Lane>(0);
  const bool cuts = rows.cuts != nullptr;
  Lane rate[NB], x[NB], of_c[NB];
  simd::detail::unrolled<NB>([&](auto i) SCANREC_LAMBDA {
    rate[i] = rates[first + i], x[i] = states[first + i], of_c[i] = zero;
  });
  products product;
  for (std::int64_t t0 = 0; t0 < rows.steps; t0 += together) {
    simd::detail::unrolled<together>([&](auto j) SCANREC_LAMBDA {
      const std::int64_t t = t0 + j;
      const Lane fed = rows.fed[t], y_grad = back.y_grad[t];
      Lane delta = rows.delta[t], y = rows.y[t];
      if (cuts && rows.any_cut[t]) delta = cut_states<NB>(rows, t, delta, x);
      if (t == back.end)  // whatever x is, it meets 0
        simd::detail::unrolled<NB>([&](auto i) SCANREC_LAMBDA { x[i] = zero; });
      Lane* const kept = back.kept + t * (2 * NB);
      simd::detail::unrolled<NB>([&](auto i) SCANREC_LAMBDA {
        const Lane a = selective_gate<plain>(delta, rate[i]);
        kept[2 * i] = a;
        kept[2 * i + 1] = simd::mul(a, x[i]);
        x[i] = simd::fma(a, x[i], simd::mul(b.template at<plain>(t, i), fed));
        y = simd::fma(c.template at<plain>(t, i), x[i], y);
        if (plain || back.c_sums != nullptr) product.rows[j * NB + i] = simd::mul(y_grad, x[i]);
        if (!plain) of_c[i] = simd::fma(y_grad, x[i], of_c[i]);
      });
      rows.y[t] = y;
    });
    if (back.c_sums != nullptr)
      product.add_to(back.c_sums + t0 * back.sums_stride + first, back.sums_stride);
  }
  Lane carry[NB], of_rate[NB], of_b[NB];
  simd::detail::unrolled<NB>(
      [&](auto i) SCANREC_LAMBDA { carry[i] = grads[first + i], of_rate[i] = of_b[i] = zero; });
  for (std::int64_t t0 = rows.steps - together; t0 >= 0; t0 -= together) {
    simd::detail::unrolled<together>([&](auto from_end) SCANREC_LAMBDA {
      constexpr int j = together - 1 - from_end;
      const std::int64_t t = t0 + j;
      const Lane delta = rows.delta[t], fed = rows.fed[t], y_grad = back.y_grad[t];
      Lane fed_sum = back.fed_sum[t], gate_sum = back.gate_sum[t];
      const Lane* const kept = back.kept + t * (2 * NB);
      simd::detail::unrolled<NB>([&](auto i) SCANREC_LAMBDA {
        const Lane a = kept[2 * i];
        const Lane l = simd::fma(y_grad, c.template at<plain>(t, i), carry[i]);
        const Lane met = simd::mul(l, kept[2 * i + 1]);
        fed_sum = simd::fma(l, b.template at<plain>(t, i), fed_sum);
        gate_sum = simd::fma(rate[i], met, gate_sum);
        of_rate[i] = simd::fma(delta, met, of_rate[i]);
        if (plain || back.b_sums != nullptr) product.rows[j * NB + i] = simd::mul(l, fed);
        if (!plain) of_b[i] = simd::fma(l, fed, of_b[i]);
        carry[i] = simd::mul(a, l);
      });
      if (cuts && rows.any_cut[t])
        simd::detail::unrolled<NB>(
            [&](auto i) SCANREC_LAMBDA { carry[i] = simd::select(rows.cuts[t], zero, carry[i]); });
      back.fed_sum[t] = fed_sum, back.gate_sum[t] = gate_sum;
    });
    if (back.b_sums != nullptr)
      product.add_to(back.b_sums + t0 * back.sums_stride + first, back.sums_stride);
  }
  simd::detail::unrolled<NB>([&](auto i) SCANREC_LAMBDA {
    grads[first + i] = carry[i];
    sums.rates[first + i] = sums.rates[first + i] + of_rate[i];
    if (sums.b != nullptr) sums.b[first + i] = sums.b[first + i] + of_b[i];
    if (sums.c != nullptr) sums.c[first + i] = sums.c[first + i] + of_c[i];
  });
}

}  // namespace scanrec::detail::inline SCANREC_ABI
