// SPDX-License-Identifier: BSD-3-Clause
// log_space: linear scans whose gates, inputs or both are stored as logarithms, as a cell of a
// gated scan.
#pragma once

#include <array>

#include <scanrec/cells/activation.hpp>
#include <scanrec/cells/cell.hpp>

namespace scanrec::inline SCANREC_ABI {

/// state = exp(gate) * state + exp(input); the state is the output. This is linear_scan of arrays
/// that hold logarithms; their exponentials are never written to memory. minGRU and minLSTM (Feng
/// et al., Were RNNs All We Needed?, 2024, appendix B), Mamba-2 and gated linear attention have
/// such gates. Their logarithms are at most 0.
///
/// For an array that does not hold logarithms, pass the activation identity: log_space<exponential,
/// identity> takes logarithms of gates only. A logarithm of -infinity means a gate or input of 0,
/// and its gradient is 0. The scan multiplies gates instead of summing their logarithms, so that
/// errors do not grow with the logarithms. A gate close to 1 keeps the digits of its logarithm that
/// rounding the gate would lose (docs/numerics.md, logarithmic gates).
template <class Gate = activation::exponential, class Input = activation::exponential>
struct log_space {
  using outputs = output_is_state;
  template <class View>
  struct arrays {
    View gate, input;
  };
  static constexpr std::array names{array_name{"gate", "gate_grad"},
                                    array_name{"input", "input_grad"}};

  /// Whether the gate is represented as the sum of two numbers.
  static constexpr bool has_rest = requires(float x) { Gate::in_two_parts(x); };

  template <class Lane>
  struct step {
    activated<Lane> a, u;
    Lane rest;  // rounding error of the gate
  };
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE step<Lane> load(Lane gate, Lane input) {
    if constexpr (has_rest) {
      const auto a = Gate::in_two_parts(gate);
      return {{a.value, {}, a.value}, Input::of(input), a.rest};
    } else {
      return {Gate::of(gate), Input::of(input), {}};
    }
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE auto map(const step<Lane>& s) {
    if constexpr (has_rest)
      return affine_with_rest<Lane>{s.a.value, s.rest, s.u.value};
    else
      return affine<Lane>{s.a.value, s.u.value};
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE std::array<Lane, 2> gradients(const step<Lane>& s,
                                                                 const cell_cotangents<Lane>& d) {
    return {through(d.state, d.before, s.a.slope), simd::mul(d.state, s.u.slope)};
  }
};

}  // namespace scanrec::inline SCANREC_ABI
