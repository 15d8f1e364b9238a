// SPDX-License-Identifier: BSD-3-Clause
// The loops over the steps of a selective scan. The arrays of these steps are in cache, lanes are
// channels, and a loop keeps a few states of each channel in registers. The forward loop stores
// only its outputs. The adjoint also stores, for every step, the gates of a few states at a time
// and the products of these gates with the previous states. For 128 steps these stay in L2.
#pragma once

#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cpu/selective_state_lanes.hpp>
#include <scanrec/detail/simd/memory.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// B or C at some steps: shared by all lanes and varying with the step, or per lane and
/// time-invariant. `State` holds one state, real or complex, of a pack of channels.
template <class State>
struct bc_rows {
  using scalar = simd::scalar_of<simd::real_lane_t<State>>;
  /// States per block. A block is contiguous in memory, with one row of states per step.
  static constexpr int width = simd::lanes_v<scalar>;

  const scalar* shared = nullptr;     // (block of states, step, state)
  const scalar* imaginary = nullptr;  // same layout
  std::int64_t block = 0;             // elements from one block to the next
  const State* constant = nullptr;    // (state)

  /// The same rows with `state` at position 0. Positions that are read must be in one block.
  [[nodiscard]] SCANREC_INLINE bc_rows from(std::int64_t state) const {
    if (constant != nullptr) return {nullptr, nullptr, 0, constant + state};
    const std::int64_t at = state / width * block + state % width;
    return {shared + at, parts_of<State> == 2 ? imaginary + at : nullptr, block, nullptr};
  }
  /// `Shared` asserts that `constant` is null.
  template <bool Shared>
  [[nodiscard]] SCANREC_INLINE State at(std::int64_t step, int position) const {
    if (!Shared && constant != nullptr) return constant[position];
    const std::int64_t i = step * width + position;
    if constexpr (parts_of<State> == 2)
      return simd::splat<State>(simd::scalar_of<State>{shared[i], imaginary[i]});
    else
      return simd::splat<State>(shared[i]);
  }
};

/// The arrays of one pack of channels for some steps, with one entry per step.
template <class State>
struct selective_rows {
  using lane = simd::real_lane_t<State>;
  std::int64_t steps = 0;
  const lane* delta = nullptr;    // after bias, softplus and interval
  const lane* delta_u = nullptr;  // delta * u
  lane* y = nullptr;              // accumulates the sum of Re(C x) over the states
  const lane* resets = nullptr;   // 1 in lanes that are reset at the step; null: no resets
  const bool* any_reset = nullptr;
  bc_rows<State> b, c;
};

/// Kernel variants: `any` handles all calls. `decaying` requires gates of modulus at most 1, and B
/// and C that vary with the step; it omits the tests for other cases.
enum class selective_case { any, decaying };

/// Sets the states to 0 in lanes that are reset. Returns delta with 0 in these lanes, so that their
/// gates are 1.
template <int NB, class Lane, class State>
SCANREC_INLINE Lane reset_states(const selective_rows<State>& rows, std::int64_t t, Lane delta,
                                 State (&x)[NB]) {
  const Lane reset = rows.resets[t];
  simd::detail::unrolled<NB>(
      [&](auto i) SCANREC_LAMBDA { x[i] = simd::select(reset, simd::constant<State>(0), x[i]); });
  return simd::select(reset, simd::constant<Lane>(0), delta);
}

/// Computes all steps for NB states, the first of which is `first`. `Out`: whether y is needed.
template <int NB, selective_case Case, bool Out, class State>
[[gnu::noinline]] void run_states(const selective_rows<State>& given, const State* a_values,
                                  std::int64_t first, State* states) {
  using Lane = simd::real_lane_t<State>;
  constexpr bool plain = Case == selective_case::decaying;
  const selective_rows<State> rows = given;
  const bc_rows<State> b = rows.b.from(first), c = rows.c.from(first);
  State rate[NB], x[NB];
  simd::detail::unrolled<NB>(
      [&](auto i) SCANREC_LAMBDA { rate[i] = a_values[first + i], x[i] = states[first + i]; });
  for (std::int64_t t = 0; t < rows.steps; ++t) {
    Lane delta = rows.delta[t];
    const Lane delta_u = rows.delta_u[t];
    if (rows.resets != nullptr && rows.any_reset[t]) delta = reset_states<NB>(rows, t, delta, x);
    Lane y = Out ? rows.y[t] : delta_u;
    simd::detail::unrolled<NB>([&](auto i) SCANREC_LAMBDA {
      State a = selective_gate<plain>(delta, rate[i]);
      x[i] = simd::fma(a, x[i], scaled(delta_u, b.template at<plain>(t, i)));
      if constexpr (Out) y = add_real_product(c.template at<plain>(t, i), x[i], y);
    });
    if constexpr (Out) rows.y[t] = y;
  }
  simd::detail::unrolled<NB>([&](auto i) SCANREC_LAMBDA { states[first + i] = x[i]; });
}

/// Returns a pack whose lane k is the sum of the lanes of rows[k]. As in simd::sum, upper halves
/// are added to lower ones.
template <class T, int N>
SCANREC_INLINE simd::pack<T, N> sums_of_lanes(const simd::pack<T, N> (&rows)[N]);

namespace lane_sums {
// Returns the lower (Upper = 0) or upper (Upper = 1) halves of all segments of 2 H lanes, first of
// x, then of y. fold() adds the upper halves to the lower ones.
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

/// Collects products for some steps and states, and adds their sums over lanes to an array with
/// axes (step, part, state). The parts are real and, if states are complex, imaginary.
template <int NB, class State>
struct summed_products {
  using lane = simd::real_lane_t<State>;
  using scalar = simd::scalar_of<lane>;
  static constexpr int parts = parts_of<State>, lanes = simd::lane_count<lane>;
  static constexpr int together = lanes >= NB ? lanes / NB : 1;  // steps

  lane rows[parts][together * NB];

  SCANREC_INLINE void put(int position, State product) {
    rows[0][position] = part_of<0>(product);
    if constexpr (parts == 2) rows[1][position] = part_of<1>(product);
  }
  /// Not inlined, so that no compiler fuses a product into its sum.
  [[gnu::noinline]] void add_to(scalar* to, std::int64_t stride) const {
    add_part(to, stride, rows[0]);
    if constexpr (parts == 2) add_part(to + stride / 2, stride, rows[1]);
  }

 private:
  SCANREC_INLINE static void add_part(scalar* to, std::int64_t stride,
                                      const lane (&of)[together * NB]) {
    if constexpr (lanes == 1) {
      for (int i = 0; i < NB; ++i) to[i] += of[i];
    } else {
      alignas(64) scalar sums[lanes];
      simd::store_unit(static_cast<scalar*>(sums), sums_of_lanes(of));
      for (int t = 0; t < together; ++t)
        for (int i = 0; i < NB; ++i) to[t * stride + i] += sums[t * NB + i];
    }
  }
};

/// Additional rows of the adjoint, for some steps of one pack of channels. l is the gradient of the
/// state x, and a the gate. `b_sums` and `c_sums` have axes (step, part, state).
template <class State>
struct selective_grad_rows {
  using lane = simd::real_lane_t<State>;
  using scalar = simd::scalar_of<lane>;
  const lane* y_grad = nullptr;  // gradient of the sum of Re(C x)
  lane* delta_u_sum = nullptr;   // accumulates the sum of Re(conj(l) B)
  lane* gate_sum = nullptr;      // accumulates the sum of Re(conj(l) A a x[t-1])
  scalar* b_sums = nullptr;      // accumulates sums over lanes of l delta u; null if not needed
  scalar* c_sums = nullptr;      // accumulates sums over lanes of y_grad conj(x), or null
  std::int64_t sums_stride = 0;
  State* kept = nullptr;  // memory for a and a x[t-1] of NB states, per step
  std::int64_t end = 0;   // the first idle step, see vjp_states
};

/// Sums over steps, one pack per state. `b` and `c` are null if B or C varies with the step.
template <class State>
struct selective_grad_sums {
  State* a_values = nullptr;
  State* b = nullptr;
  State* c = nullptr;
};

/// Recomputes NB states, the first of which is `first`, then computes gradients backwards. `states`
/// are the states before the steps. `grads` holds the gradients of the states after the steps on
/// entry, and of those before the steps on return. The number of steps is a multiple of 16. The
/// last steps may be idle: delta, delta_u and y_grad are 0 there.
template <int NB, selective_case Case, class State>
[[gnu::noinline]] void vjp_states(const selective_rows<State>& given,
                                  const selective_grad_rows<State>& given_grads,
                                  const selective_grad_sums<State>& sums, const State* a_values,
                                  std::int64_t first, const State* states, State* grads) {
  using Lane = simd::real_lane_t<State>;
  constexpr bool plain = Case == selective_case::decaying;
  using products = summed_products<NB, State>;
  constexpr int together = products::together;
  const selective_rows<State> rows = given;
  const selective_grad_rows<State> back = given_grads;
  const bc_rows<State> b = rows.b.from(first), c = rows.c.from(first);
  State zero = simd::constant<State>(0);
  const bool resets = rows.resets != nullptr;
  State rate[NB], x[NB], of_c[NB];
  simd::detail::unrolled<NB>([&](auto i) SCANREC_LAMBDA {
    rate[i] = a_values[first + i], x[i] = states[first + i], of_c[i] = zero;
  });
  products product;
  for (std::int64_t t0 = 0; t0 < rows.steps; t0 += together) {
    simd::detail::unrolled<together>([&](auto j) SCANREC_LAMBDA {
      const std::int64_t t = t0 + j;
      const Lane delta_u = rows.delta_u[t], y_grad = back.y_grad[t];
      Lane delta = rows.delta[t], y = rows.y[t];
      if (resets && rows.any_reset[t]) delta = reset_states<NB>(rows, t, delta, x);
      if (t == back.end)  // idle steps multiply x by 0, so x must be finite
        simd::detail::unrolled<NB>([&](auto i) SCANREC_LAMBDA { x[i] = zero; });
      State* const kept = back.kept + t * (2 * NB);
      simd::detail::unrolled<NB>([&](auto i) SCANREC_LAMBDA {
        State a = selective_gate<plain>(delta, rate[i]);
        kept[2 * i] = a;
        kept[2 * i + 1] = simd::mul(a, x[i]);
        x[i] = simd::fma(a, x[i], scaled(delta_u, b.template at<plain>(t, i)));
        y = add_real_product(c.template at<plain>(t, i), x[i], y);
        if (plain || back.c_sums != nullptr) product.put(j * NB + i, scaled_conj(y_grad, x[i]));
        if (!plain) of_c[i] = add_scaled_conj(y_grad, x[i], of_c[i]);
      });
      rows.y[t] = y;
    });
    if (back.c_sums != nullptr)
      product.add_to(back.c_sums + t0 * back.sums_stride + first, back.sums_stride);
  }
  State carry[NB], of_rate[NB], of_b[NB];
  simd::detail::unrolled<NB>(
      [&](auto i) SCANREC_LAMBDA { carry[i] = grads[first + i], of_rate[i] = of_b[i] = zero; });
  for (std::int64_t t0 = rows.steps - together; t0 >= 0; t0 -= together) {
    simd::detail::unrolled<together>([&](auto from_end) SCANREC_LAMBDA {
      constexpr int j = together - 1 - from_end;
      const std::int64_t t = t0 + j;
      const Lane delta = rows.delta[t], delta_u = rows.delta_u[t], y_grad = back.y_grad[t];
      Lane delta_u_sum = back.delta_u_sum[t], gate_sum = back.gate_sum[t];
      const State* const kept = back.kept + t * (2 * NB);
      simd::detail::unrolled<NB>([&](auto i) SCANREC_LAMBDA {
        State a = kept[2 * i];
        State l = add_scaled_conj(y_grad, c.template at<plain>(t, i), carry[i]);
        State gate_grad = times_conj(l, kept[2 * i + 1]);
        delta_u_sum = add_real_dot(l, b.template at<plain>(t, i), delta_u_sum);
        gate_sum = add_real_dot(rate[i], gate_grad, gate_sum);
        of_rate[i] = add_scaled(delta, gate_grad, of_rate[i]);
        if (plain || back.b_sums != nullptr) product.put(j * NB + i, scaled(delta_u, l));
        if (!plain) of_b[i] = add_scaled(delta_u, l, of_b[i]);
        carry[i] = times_conj(l, a);
      });
      if (resets && rows.any_reset[t])
        simd::detail::unrolled<NB>([&](auto i) SCANREC_LAMBDA {
          carry[i] = simd::select(rows.resets[t], zero, carry[i]);
        });
      back.delta_u_sum[t] = delta_u_sum, back.gate_sum[t] = gate_sum;
    });
    if (back.b_sums != nullptr)
      product.add_to(back.b_sums + t0 * back.sums_stride + first, back.sums_stride);
  }
  simd::detail::unrolled<NB>([&](auto i) SCANREC_LAMBDA {
    grads[first + i] = carry[i];
    sums.a_values[first + i] = sums.a_values[first + i] + of_rate[i];
    if (sums.b != nullptr) sums.b[first + i] = sums.b[first + i] + of_b[i];
    if (sums.c != nullptr) sums.c[first + i] = sums.c[first + i] + of_c[i];
  });
}

}  // namespace scanrec::detail::inline SCANREC_ABI
