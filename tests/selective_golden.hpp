// SPDX-License-Identifier: BSD-3-Clause
// The check of the golden bits of selective scans.
#pragma once

#include <string>

#include "golden.hpp"
#include "selective_calls.hpp"

namespace selective_calls {

/// Checks the golden row of an element type on a backend. It covers variations of the usual problem
/// with both directions, three layouts, checkpoints or none, and one long sequence.
template <class V, class S, class Backend>
void check_golden(const std::string& name, const Backend& on) {
  golden::row row("selective_scan and vjp, " + name);
  const auto add = [&](const problem& p, order lies, bool kept) {
    call<V, S> of(p, lies, 5);
    of.run(on, kept);
    const auto add_array = [&](const auto& a) { row.add_all(a.bytes()); };
    const auto add_bc = [&](const auto& m) {
      add_array(m.steps), add_array(m.imaginary), add_array(m.channels);
    };
    for (const auto* const a : {&of.got.out, &of.got.u, &of.got.delta, &of.got.z}) add_array(*a);
    for (const auto* const a : {&of.got.d, &of.got.bias, &of.got.intervals}) add_array(*a);
    for (const auto* const a :
         {&of.got.final_state, &of.got.checkpoints, &of.got.a, &of.got.initial})
      add_array(*a);
    add_bc(of.got.b), add_bc(of.got.c);
    row.end_hash();
  };
  problem p = usual();
  add(p, order::channels_last, true);
  p.order = direction::reverse, p.softplus = !p.softplus, p.resets = 3, p.intervals = true;
  add(p, order::time_contiguous, false);
  p.b_steps = false, p.c_steps = false, p.z = !p.z, p.resets = 0, p.states = 3, p.groups = 1;
  add(p, order::backwards, true);
  p = usual();
  p.shape = {.batch = 1, .time = 1000, .channel = 5}, p.groups = 1, p.states = 16;
  add(p, order::channels_last, false);
  row.check();
}

}  // namespace selective_calls
