// SPDX-License-Identifier: BSD-3-Clause
// Golden bits of gated_scan and its vjp for one cell and element type. Included at the end of
// gated_scan_typed_test.cpp.
#include "golden.hpp"

namespace {

/// Computes the row (golden.hpp) of a backend and a memory policy. With `all_options`, every option
/// of the variation is set.
golden::row golden_row(const tested::gated_backend<cell, T>& on, policy memory, bool all_options) {
  const std::vector<variation> problems{{{2, 203, 19}, layout::channels_last, direction::forward},
                                        {{2, 300, 5}, layout::time_contiguous, direction::forward},
                                        {{2, 129, 17}, layout::backwards, direction::forward},
                                        {{1, 101, 3, 2}, layout::strided, direction::forward},
                                        {{1, 3000, 37}, layout::channels_last, direction::forward},
                                        {{1, 20000, 1}, layout::channels_last, direction::forward}};
  golden::row row(std::string("gated_scan and vjp, ") +
                  (memory == policy::store ? "store" : "recompute") +
                  (all_options ? ", all options, " : ", ") + TEST_TYPE_NAME ", " +
                  on.name.substr(0, on.name.find(" through a ring")));
  for (variation v : problems) {
    if (on.name.rfind("cuda::", 0) == 0 && v.shape.time > 1000) continue;
    if (all_options)
      v.order = direction::reverse, v.boundary_states = v.resets = v.zoneout = true,
      v.forget_bias = 1;
    problem_case p(v);
    golden::numbers numbers(1);
    const auto fill = [&](auto& a, float scale) {
      for (auto& x : a.storage()) {
        numbers.fill(x);
        if constexpr (!exact<T>)
          x = static_cast<std::remove_reference_t<decltype(x)>>(scale * static_cast<float>(x));
      }
    };
    fill(p.pre, 4), fill(p.output_grad, 1), fill(p.x0, 1), fill(p.gT, 1);
    results r = run(on, p, memory);
    const auto add = [&](array<T>& a, const extents& s) {
      for_each_sequence(s, [&](auto g, auto b, auto c) {
        for (std::int64_t t = 0; t < s.time; ++t) row.add(a(g, b, t, c));
      });
    };
    add(r.output, v.shape), add(r.pre_grad, p.wide);
    if (memory == policy::store)
      add(r.states, v.shape);
    else
      row.add_all(r.checkpoints);
    row.add_all(r.final_state), row.add_all(r.initial_grad);
    row.end_hash();
  }
  return row;
}

}  // namespace

TYPED_CASE("results have the golden bits", "[.golden]") {
  // Eigen or the emulator chooses the order of sums in triangular_matmul, so it is compared only if
  // sums are exact.
  const auto ordered = [](const auto& b) {
    return exact<T> || b.name.find("triangular_matmul") == std::string::npos;
  };
  const auto all = backends(ordered);
  for (const auto& on : all)
    for (const policy memory : policies_of(on))
      for (const bool all_options : {false, true}) {
        const golden::row row = golden_row(on, memory, all_options);
        // Results of an exact type equal those of `sequential`, so the golden files have only rows
        // of `sequential`.
        if (exact<T> && &on != &all[0])
          CHECK(golden_row(all[0], memory, all_options).begins_with(row));
        else
          row.check();
      }
}
