// SPDX-License-Identifier: BSD-3-Clause
// Problems for the golden bits of linear attention.
#pragma once

#include <cstdint>
#include <string>

#include "golden.hpp"
#include "linear_attention_calls.hpp"

namespace attention_calls {

/// Adds hashes of the results of four problems to a row. run(c) runs a call and returns the bytes
/// of its results. The inputs need no functions of the C library.
template <class Call, class Run>
void add_golden(golden::row& row, element type, Run run) {
  problem delta{.batch = 2, .time = 75, .dk = 20, .dv = 37, .heads = 2, .query_heads = 4};
  delta.gate = delta.beta = delta.initial = true, delta.scale = 0.25;
  delta.resets = 1, delta.interval = 32;
  problem linear{.batch = 1, .time = 300, .dk = 5, .dv = 18, .heads = 4, .key_heads = 2};
  linear.gate = linear.factors = linear.normalise = true, linear.order = direction::reverse;
  problem strong{.batch = 1, .time = 100, .dk = 64, .dv = 16, .beta = true, .normalise = true};
  strong.gate = true, strong.initial = true;
  problem keys = strong;
  keys.key_gates = true, keys.resets = 1, keys.query_heads = 2;
  for (const problem& p : {delta, linear, strong, keys}) {
    generator bits{18};
    Call c(p, layout::heads_inside, type, bits);
    golden::numbers numbers{19};
    const auto fill = [&](auto& of, double plus, double by) {
      of.fill([&](auto...) { return by * (numbers.next() + plus); });
    };
    fill(c.q, 0, 1), fill(c.k, 0, p.normalise ? 1 : 0.125), fill(c.v, 0, 1);
    if (p.gate) fill(c.gate, p.factors ? 2 : -1, p.factors ? 0.3125 : p.normalise ? 4 : 0.25);
    if (p.beta) fill(c.beta, 1, 0.5);
    if (p.initial) fill(c.initial, 0, 1);
    fill(c.out_grad, 0, 1), fill(c.final_grad, 0, 1);
    row.add_all(run(c));
    row.end_hash();
  }
}

}  // namespace attention_calls
