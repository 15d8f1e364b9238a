// SPDX-License-Identifier: BSD-3-Clause
// A cell whose arrays are the gate and the input: state = rate * state + x. Tests derive cells with
// a load() that throws or waits.
#pragma once

#include <array>

#include <scanrec/gated_scan.hpp>

namespace tested {

struct linear_cell {
  template <class View>
  struct arrays {
    View rate, x;
  };
  static constexpr std::array names{scanrec::array_name{"rate", "rate_grad"},
                                    scanrec::array_name{"x", "x_grad"}};
  using outputs = scanrec::output_is_state;

  template <class Lane>
  struct step {
    Lane rate, x;
  };
  template <class Lane>
  static step<Lane> load(Lane rate, Lane x) {
    return {rate, x};
  }
  template <class Lane>
  static scanrec::affine<Lane> map(const step<Lane>& s) {
    return {s.rate, s.x};
  }
  template <class Lane>
  static std::array<Lane, 2> gradients(const step<Lane>&, const scanrec::cell_cotangents<Lane>& d) {
    return {scanrec::simd::mul(d.state, d.before), d.state};
  }
};

}  // namespace tested
