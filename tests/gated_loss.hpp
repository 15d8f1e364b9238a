// SPDX-License-Identifier: BSD-3-Clause
// A loss of a gated scan for tests of cells, with checks of its gradients against central
// differences and golden bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <scanrec/gated_scan.hpp>
#include <scanrec/scan.hpp>

#include "catch.hpp"
#include "central_difference.hpp"
#include "golden.hpp"
#include "reference.hpp"

namespace tested {

using namespace scanrec;

/// A problem in double whose loss is a weighted sum of outputs and final states.
template <class Cell>
struct loss_of {
  static constexpr auto count = static_cast<std::int64_t>(Cell::names.size());
  Cell cell{};
  extents shape{.batch = 2, .time = 7, .channel = 2};
  direction order = direction::forward;
  std::vector<double> pre, start, weight, last_weight;
  bool resets_at[14] = {false, false, true,  false, false, false, false,
                        false, false, false, false, true,  false, true};
  bool zoned_out[28] = {};

  explicit loss_of(Cell of, direction d) : cell(of), order(d) {
    using reference::random_numbers;
    pre = random_numbers(14 * 2 * count, 1, 2), start = random_numbers(4, 2);
    weight = random_numbers(28, 3), last_weight = random_numbers(4, 4);
    for (const int i : {1, 8, 9, 20}) zoned_out[i] = true;
  }
  sequence_view<double> all(std::vector<double>& of) const {
    return {of.data(), {shape.batch, shape.time, shape.channel * count}};
  }
  sequence_view<const bool> resets() const { return {resets_at, {shape.batch, shape.time, 1}}; }
  double value() {
    std::vector<double> h(28), last(4);
    gated_scan(sequential{}, cell, packed<Cell>(all(pre)), sequence_view(h.data(), shape), none,
               {.order = order,
                .initial_state = state_view<const double>(start.data(), shape),
                .final_state = state_view(last.data(), shape),
                .resets = resets(),
                .zoneout = sequence_view<const bool>(zoned_out, shape)});
    double sum = 0;
    for (std::size_t i = 0; i < h.size(); ++i) sum += weight[i] * h[i];
    for (std::size_t i = 0; i < last.size(); ++i) sum += last_weight[i] * last[i];
    return sum;
  }
  /// Returns the gradients of the pre-activations, then of the initial state.
  std::vector<double> gradient() {
    std::vector<double> h(28), states(28), grad(pre.size()), start_grad(4);
    gated_scan(sequential{}, cell, packed<Cell>(all(pre)), sequence_view(h.data(), shape),
               memory::store{sequence_view(states.data(), shape)},
               {.order = order,
                .initial_state = state_view<const double>(start.data(), shape),
                .resets = resets(),
                .zoneout = sequence_view<const bool>(zoned_out, shape)});
    gated_scan_vjp(
        sequential{}, cell, packed<Cell>(all(pre)),
        memory::store{sequence_view(states.data(), shape)}, sequence_view(weight.data(), shape),
        {.arrays = packed<Cell>(all(grad)), .initial_grad = state_view(start_grad.data(), shape)},
        {.order = order,
         .initial_state = state_view<const double>(start.data(), shape),
         .final_grad = state_view<const double>(last_weight.data(), shape),
         .resets = resets(),
         .zoneout = sequence_view<const bool>(zoned_out, shape)});
    grad.insert(grad.end(), start_grad.begin(), start_grad.end());
    return grad;
  }
  double difference(double& x) {
    return central_difference(x, [&] { return value(); });
  }
};

/// Checks that gradients equal central differences. `adjust` moves a pre-activation into the domain
/// of the cell.
template <class Cell>
void check_gradients(const char* name, Cell cell, void (*adjust)(double&) = nullptr) {
  for (const direction order : {direction::forward, direction::reverse}) {
    loss_of<Cell> loss(cell, order);
    if (adjust)
      for (double& x : loss.pre) adjust(x);
    const std::vector<double> gradient = loss.gradient();
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      double& x = i < loss.pre.size() ? loss.pre[i] : loss.start[i - loss.pre.size()];
      const double want = loss.difference(x);
      INFO(name << ", number " << i << " of " << gradient.size());
      CHECK(std::abs(gradient[i] - want) <= 1e-8 * (1 + std::abs(want)));
    }
  }
}

/// Checks the golden bits of the gradients.
template <class Cell>
void check_golden(const char* name, Cell cell, void (*adjust)(double&) = nullptr) {
  golden::row row(std::string("gated_scan_vjp, double, sequential, ") + name);
  for (const direction order : {direction::forward, direction::reverse}) {
    loss_of<Cell> loss(cell, order);
    if (adjust)
      for (double& x : loss.pre) adjust(x);
    row.add_all(loss.gradient());
    row.end_hash();
  }
  row.check();
}

}  // namespace tested
