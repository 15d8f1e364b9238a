// SPDX-License-Identifier: BSD-3-Clause
// RG-LRU (De et al., Griffin, 2024, section 2.4) as a cell of a gated scan.
#pragma once

#include <array>

#include <scanrec/cells/activation.hpp>
#include <scanrec/cells/cell.hpp>

namespace scanrec::inline SCANREC_ABI {

/// With r = sigmoid(recurrence_gate), i = sigmoid(input_gate), a = exp(log_decay * r):
///
///     state = a * state + sqrt(1 - a^2) * i * input;     the state is the output
///
/// `log_decay` must be finite and at most 0. In the paper it is c * log(sigmoid(Lambda)) with c =
/// 8, one value per channel. For such a decay, pass views of log_decay and its gradient with zero
/// time and batch strides; the gradient is then the sum over both axes. The decay is kept as a +
/// rest (simd::exp_in_two_parts). Even if it is close to 1, its distance from 1 is then as accurate
/// as log a (docs/numerics.md, logarithmic gates). 1 - a^2 is computed as -(a - 1) (a + 1), where
/// a - 1 includes the rest, so no digits cancel. The slope of the square root would be infinite at
/// a = 1; it is limited to 1000, as in RecurrentGemma.
struct rg_lru {
  using outputs = output_is_state;
  template <class View>
  struct arrays {
    View input, input_gate, recurrence_gate, log_decay;
  };
  static constexpr std::array names{array_name{"input", "input_grad"},
                                    array_name{"input_gate", "input_gate_grad"},
                                    array_name{"recurrence_gate", "recurrence_gate_grad"},
                                    array_name{"log_decay", "log_decay_grad"}};

  template <class Lane>
  struct step {
    Lane x, log_decay, a, rest, scale;  // the decay is a + rest
    activated<Lane> i, r;
  };
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE step<Lane> load(Lane input, Lane input_gate,
                                                   Lane recurrence_gate, Lane log_decay) {
    step<Lane> s{input,
                 log_decay,
                 {},
                 {},
                 {},
                 activation::sigmoid::of(input_gate),
                 activation::sigmoid::of(recurrence_gate)};
    const Lane log_a = simd::mul(log_decay, s.r.value);
    const auto decay = simd::exp_in_two_parts(log_a);
    s.a = decay.value, s.rest = decay.rest;
    const Lane one = simd::constant<Lane>(1), less_one = (s.a - one) + s.rest;
    s.scale = simd::square_root(simd::mul(simd::negative(less_one), s.a + one));
    return s;
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE affine_with_rest<Lane> map(const step<Lane>& s) {
    return {s.a, s.rest, simd::mul(s.scale, simd::mul(s.i.value, s.x))};
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE std::array<Lane, 4> gradients(const step<Lane>& s,
                                                                 const cell_cotangents<Lane>& d) {
    using R = simd::scalar_of<Lane>;
    // d scale / d log a = -a^2 / scale.
    const Lane least = simd::splat<Lane>(R(0.5e-3));
    const Lane steep = simd::divide(s.a, simd::larger(least, s.scale));
    const Lane gated = simd::mul(s.i.value, s.x), a_minus = simd::negative(s.a);
    const Lane of_a = simd::fma(simd::mul(steep, gated), a_minus, simd::mul(s.a, d.before));
    const Lane of_log_a = simd::mul(d.state, of_a);
    return {through(d.state, s.scale, s.i.value),
            through(simd::mul(d.state, s.scale), s.x, s.i.slope),
            through(of_log_a, s.log_decay, s.r.slope), simd::mul(of_log_a, s.r.value)};
  }
};

}  // namespace scanrec::inline SCANREC_ABI
