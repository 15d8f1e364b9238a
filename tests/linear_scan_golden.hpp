// SPDX-License-Identifier: BSD-3-Clause
// Golden bits of linear_scan, its vjp and jvp for one element type. Included at the end of
// linear_scan_test.cpp.
#include "golden.hpp"

namespace {

struct golden_problem {
  extents shape;
  layout l;
};
/// Problems that together reach every loop of the CPU backend, tails of packs and tiles, split
/// time, staged tiles and groups.
const std::vector<golden_problem>& golden_problems() {
  static const std::vector<golden_problem> list{
      {{2, 203, 19}, layout::channels_last},  {{2, 203, 5}, layout::time_contiguous},
      {{3, 129, 17}, layout::backwards},      {{1, 150, 33, 2}, layout::time_major},
      {{1, 101, 3}, layout::strided},         {{1, 3000, 37}, layout::channels_last},
      {{1, 20000, 1}, layout::channels_last}, {{2, 5000, 3}, layout::time_contiguous}};
  return list;
}
template <class U>
void add_to(golden::row& row, array<U>& of, const extents& shape) {
  for_each_sequence(shape, [&](auto g, auto b, auto c) {
    for (std::int64_t t = 0; t < shape.time; ++t) row.add(of(g, b, t, c));
  });
}

/// A problem filled with golden numbers. With `items`, numbers that are not integers are -1, 0 or
/// 1, so sums are exact in any order.
struct golden_case : problem_case {
  golden_case(const golden_problem& of, bool all_options, bool items)
      : problem_case(of.shape, of.l, all_options ? direction::reverse : direction::forward,
                     all_options, all_options) {
    int seed = 0;
    for (auto* const a : {&gate, &input, &grad, &gate_tangent, &input_tangent}) {
      golden::numbers numbers(seed++);
      for (T& x : a->storage()) numbers.fill(x, items);
    }
    for (auto* const a : {&x0, &gT, &tx0}) {
      golden::numbers numbers(seed++);
      for (V& x : a->storage()) numbers.fill(x, items);
    }
    make_states();
  }
  [[nodiscard]] extents last_step() const {
    extents one = shape;
    one.time = 1;
    return one;
  }
};

/// Computes a backend's rows of the golden files (golden.hpp). A row has one hash per problem and
/// call. `items` is set for backends without a fixed order of sums. "All options" means reverse
/// order, resets, initial and final states and their gradients, and update::accumulate. `slow`
/// leaves out long problems.
std::vector<golden::row> golden_rows(const tested::backend<T>& on, bool items, bool slow) {
  const std::string name = TEST_TYPE_NAME ", " + on.name.substr(0, on.name.find(" through a ring"));
  golden::row plain("linear_scan, vjp, jvp; " + name);
  golden::row full("linear_scan, vjp, jvp; all options; " + name);
  // A ring (lane_ring.cuh) changes the order of sums, so these rows keep the full name of the
  // backend.
  golden::row sums(
      "linear_scan_vjp; sums over batch and time, over channels; " TEST_TYPE_NAME ", " + on.name);
  for (const golden_problem& of : golden_problems()) {
    if (slow && of.shape.time > 1000) continue;
    for (const bool all : {false, true}) {
      golden::row& row = all ? full : plain;
      golden_case p(of, all, items);
      array<T> state(p.shape, p.l), gate_grad = p.gate, input_grad = p.input;
      const auto end_call = [&] {
        if (all) add_to(row, p.xT, p.last_step());
        row.end_hash();
      };
      linear_scan(on, p.gate.view(), p.input.view(), state.view(), p.options());
      add_to(row, state, p.shape), end_call();

      scan_gradients<T> gradients{.gate_grad = gate_grad.view(), .input_grad = input_grad.view()};
      if (all) p.xT = p.tx0, gradients.initial_grad = p.edge(p.xT);
      if (all) gradients.update = update::accumulate;
      linear_scan_vjp(on, p.gate.view(), p.state.view(), p.grad.view(), gradients,
                      p.backward_options());
      add_to(row, gate_grad, p.shape), add_to(row, input_grad, p.shape), end_call();

      linear_scan_jvp(on, p.gate.view(), p.state.view(), p.gate_tangent.view(),
                      p.input_tangent.view(), state.view(), p.tangent_options());
      add_to(row, state, p.shape), end_call();
    }
    for (const bool over_channels : {false, true}) {
      golden_case p(of, false, items);
      extents summed = p.shape;
      if (over_channels)
        summed.channel = 1;
      else
        summed.batch = summed.time = 1;
      array<T> gate_grad(summed, layout::channels_last), input_grad(p.shape, p.l);
      const sequence_view<T> shared = broadcast_to(gate_grad.view(), p.shape);
      linear_scan_vjp(on, p.gate.view(), p.state.view(), p.grad.view(),
                      {.gate_grad = shared, .input_grad = input_grad.view()});
      add_to(sums, gate_grad, summed), add_to(sums, input_grad, p.shape), sums.end_hash();
    }
  }
  return {plain, full, sums};
}
/// Results of an exact type equal those of `sequential`, so the golden files have only rows of
/// `sequential`.
void check_golden(const std::vector<golden::row>& rows, const std::vector<golden::row>& of_loop) {
  for (std::size_t k = 0; k < rows.size(); ++k)
    if (exact<T>)
      CHECK(of_loop[k].begins_with(rows[k]));
    else
      rows[k].check();
}

}  // namespace

TYPED_CASE("results have the golden bits", "[.golden]") {
  const std::vector<golden::row> of_loop = golden_rows(loop(), false, false);
  for (const golden::row& row : of_loop) row.check();
  // The bits do not depend on the number of threads.
  const auto alone = tested::threaded_backends<T>(1, false);
  const auto five = tested::threaded_backends<T>(5, true);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    // Eigen chooses the order of the sums of triangular_matmul.
    const bool by_eigen = alone[i].name.rfind("triangular_matmul", 0) == 0;
    const auto rows = golden_rows(alone[i], by_eigen, false);
    const auto of_five = golden_rows(five[i], by_eigen, false);
    for (std::size_t k = 0; k < rows.size(); ++k) CHECK(rows[k].hashes() == of_five[k].hashes());
    check_golden(rows, of_loop);
  }
  for (const tested::backend<T>& one : tested::all_backends<T>())
    if (one.name.rfind("cuda::", 0) == 0)
      check_golden(golden_rows(one, one.name == "cuda::triangular_matmul", true), of_loop);
}
