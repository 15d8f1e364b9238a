// SPDX-License-Identifier: BSD-3-Clause
// A stress test of the protocol between blocks of cuda::look_back, for GPUs and the emulator. It
// makes many calls with one kept workspace while other work runs.
//
// Elements are uint32, or doubles that hold integers. A map of uint32 is a message of one word, a
// map of doubles one of two words. Results are exact in any order of operations and equal those of
// `sequential` bit for bit. Gates are odd (1 and -1 for doubles), so every state depends on all
// earlier inputs. Every call scales its inputs, and so its results, by another odd factor (32
// factors in turn for doubles). Stale messages of an earlier call and unwritten results therefore
// change bits. A variant with rounded doubles, scaled by powers of two, shows whether bits depend
// on timing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <scanrec/cuda/scan.cuh>
#include <scanrec/linear_scan.hpp>

#include "catch.hpp"

namespace tested {

/// The sizes of a stress test.
struct stress_sizes {
  std::int64_t lone_steps, wide_steps, row_steps;  // of shapes (1, T, 1), (1, T, 8) and (3, T, 5)
  int rounds;                                      // calls of each kind
  int segment_steps;                               // cuda::look_back::segment_steps
  std::int64_t least_blocks;                       // of each call
  bool rounded = false;  // rounded doubles: the first call of a kind gives the expected bits
};

/// The wrong results in all calls of one kind.
struct stress_finding {
  unsigned long long differences = 0;            // wrong elements, of all calls
  unsigned long long first = ~std::uint64_t{0};  // the first wrong element: call * 2^40 + index

  [[nodiscard]] std::string text() const {
    if (differences == 0) return "none";
    return std::to_string(differences) + " elements, the first in call " +
           std::to_string(first >> 40) + " at " + std::to_string(first & ((1ull << 40) - 1));
  }
};

/// Runs calls of several problems and compares their results. A `Machine` provides
///
/// - `element`: the type of elements;
/// - `array`: elements in device memory, constructed from a std::vector or from their number;
/// - `stream()`: the stream in which all of the following is queued;
/// - `workspace(bytes)`: device memory of zeros;
/// - `multiply(to, from, factor)`: sets every element of `to` to that of `from` times `factor`;
/// - `compare(got, want, factor, kind, call)`: counts elements that differ from factor * want;
/// - `beside(call)`: starts other work, or chooses a schedule until its result is destroyed;
/// - `findings(kinds)`: waits, and returns the differences since its last call.
template <class Machine>
class look_back_stress {
 public:
  using element = typename Machine::element;
  using elements = std::vector<element>;
  using array = typename Machine::array;

  look_back_stress(Machine& machine, const stress_sizes& sizes) : machine_(machine), sizes_(sizes) {
    using scanrec::strides;
    const scanrec::extents lone{.batch = 1, .time = sizes.lone_steps, .channel = 1};
    const scanrec::extents wide{.batch = 1, .time = sizes.wide_steps, .channel = 8};
    const scanrec::extents rows{.batch = 3, .time = sizes.row_steps, .channel = 5};
    shapes_.reserve(3);
    const strides by_channel{0, 0, 1, 0}, by_step{0, 1, 0, 0}, over_batch{0, rows.channel, 1, 0};
    add(lone, "one sequence along time", {{"sums over time", by_channel, by_channel}});
    add(wide, "8 channels", {{"sums over channels", by_step, by_step}});
    add(rows, "3 x 5 sequences",
        {{"sums over the batch, added in turn", over_batch, over_batch},
         {"sums over sequences and over time", by_step, by_channel}});
    workspace_ = machine_.workspace(workspace_bytes_);
    if (sizes.rounded) take_first_results();
  }

  /// Calls every kind once, then every kind again. A call finds the messages of another problem in
  /// the workspace.
  void in_turn() {
    for (int round = 0; round < sizes_.rounds; ++round)
      for (std::size_t kind = 0; kind < kinds_.size(); ++kind) call(kind, round);
    check();
  }
  /// Makes all calls of a kind one after the other. Each overwrites the messages of the previous
  /// call, which differ only by a factor.
  void one_after_the_other() {
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind)
      for (int round = 0; round < sizes_.rounds; ++round) call(kind, round);
    check();
  }

 private:
  struct shape_arrays {
    scanrec::extents shape;
    std::string name;
    array gate, base, state;   // base: the input or cotangent before the factor of a call
    array now, first, second;  // base times the factor, and the results of a call
  };
  struct sums {
    const char* name;
    scanrec::strides of_gates, of_inputs;
  };
  // A forward call has one result, an adjoint two.
  struct kind {
    std::size_t shape;
    std::string name;
    scanrec::strides of_first{}, of_second{};
    array want_first{}, want_second{};
    bool adjoint = false;
  };
  using view = scanrec::sequence_view<element>;

  Machine& machine_;
  stress_sizes sizes_;
  std::vector<shape_arrays> shapes_;
  std::vector<kind> kinds_;
  std::int64_t workspace_bytes_ = 0;
  void* workspace_ = nullptr;
  std::uint64_t seed_ = 1;
  int calls_ = 0;

  // Gates are odd integers, or 1 and -1 for doubles. Other doubles are -1, 0 and 1, so sums of
  // products stay exact. Rounded gates are near 1, so that states depend on many tiles.
  elements random(std::size_t n, bool gates) {
    elements all(n);
    for (element& x : all) {
      seed_ = seed_ * 6364136223846793005u + 1442695040888963407u;
      const auto bits = static_cast<std::uint32_t>(seed_ >> 32);
      if constexpr (std::is_same_v<element, std::uint32_t>)
        x = gates ? bits | 1 : bits;
      else if (sizes_.rounded)
        x = gates ? 1 - bits * 0x1p-46 : bits * 0x1p-32 - 0.5;
      else
        x = gates ? (bits % 2 == 0 ? -1.0 : 1.0) : static_cast<double>(bits % 3) - 1;
    }
    return all;
  }
  // Powers of two scale rounded results exactly.
  [[nodiscard]] element factor_of(int call) const {
    const auto odd = static_cast<std::uint32_t>(2 * call + 1);
    if constexpr (std::is_same_v<element, std::uint32_t>)
      return 2654435769u * odd;
    else
      return sizes_.rounded ? 1 << call % 16 : odd % 64;
  }
  // The number of elements that a view spans.
  static std::size_t span(const scanrec::extents& e, const scanrec::strides& s) {
    return static_cast<std::size_t>((e.batch - 1) * s.batch + (e.time - 1) * s.time +
                                    (e.channel - 1) * s.channel + 1);
  }
  [[nodiscard]] scanrec::cuda::look_back backend() const {
    return {.stream = machine_.stream(),
            .workspace = {workspace_, workspace_bytes_, scanrec::cuda::workspace_content::kept},
            .segment_steps = sizes_.segment_steps};
  }
  void reserve(const std::string& name, const scanrec::problem& p) {
    const auto plan = scanrec::cuda::describe(backend(), p);
    INFO(name << ": " << plan.tiles << " tiles of a sequence, " << plan.blocks << " blocks");
    REQUIRE(plan.tiles > 1);
    REQUIRE(plan.blocks >= sizes_.least_blocks);
    if (plan.workspace_bytes > workspace_bytes_) workspace_bytes_ = plan.workspace_bytes;
  }

  void add(const scanrec::extents& shape, const char* name, std::vector<sums> of) {
    const auto n = static_cast<std::size_t>(shape.batch * shape.time * shape.channel);
    elements gate = random(n, true), base = random(n, false), state(n);
    const view a(gate.data(), shape), u(base.data(), shape), x(state.data(), shape);
    linear_scan(scanrec::sequential{}, a, u, x);
    const std::size_t index = shapes_.size();
    reserve(name, scanrec::linear_scan_problem(a, u, x));
    kinds_.push_back({index, std::string(name) + ", forward", a.strides, {}, array(state), {}});
    of.insert(of.begin(), sums{"a gradient per element", a.strides, a.strides});
    for (const sums& s : of) {
      elements gates(span(shape, s.of_gates)), inputs(span(shape, s.of_inputs));
      const scanrec::scan_gradients<element> gradients{
          .gate_grad = view(gates.data(), shape, s.of_gates),
          .input_grad = view(inputs.data(), shape, s.of_inputs)};
      linear_scan_vjp(scanrec::sequential{}, a, x, u, gradients);
      reserve(s.name, scanrec::linear_scan_vjp_problem(a, x, u, gradients));
      kinds_.push_back({index, std::string(name) + ", " + s.name, s.of_gates, s.of_inputs,
                        array(gates), array(inputs), true});
    }
    shapes_.push_back(
        {shape, name, array(gate), array(base), array(state), array(n), array(n), array(n)});
  }

  void queue(const kind& k, element factor) {
    shape_arrays& s = shapes_[k.shape];
    machine_.multiply(s.now, s.base, factor);
    const view gate(s.gate.data(), s.shape), now(s.now.data(), s.shape);
    if (k.adjoint)
      linear_scan_vjp(backend(), gate, view(s.state.data(), s.shape), now,
                      {.gate_grad = view(s.first.data(), s.shape, k.of_first),
                       .input_grad = view(s.second.data(), s.shape, k.of_second)});
    else
      linear_scan(backend(), gate, now, view(s.first.data(), s.shape, k.of_first));
  }
  // Replaces the expected results of `sequential` by those of a first call of each kind.
  void take_first_results() {
    for (kind& k : kinds_) {
      queue(k, 1);
      machine_.multiply(k.want_first, shapes_[k.shape].first, 1);
      if (k.adjoint) machine_.multiply(k.want_second, shapes_[k.shape].second, 1);
    }
  }
  void call(std::size_t number, int round) {
    const kind& k = kinds_[number];
    const shape_arrays& s = shapes_[k.shape];
    const element factor = factor_of(calls_);
    {
      const auto beside = machine_.beside(calls_++);
      queue(k, factor);
    }
    machine_.compare(s.first, k.want_first, factor, number, round);
    if (k.adjoint) machine_.compare(s.second, k.want_second, factor, number, round);
  }
  void check() {
    const std::vector<stress_finding> found = machine_.findings(kinds_.size());
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      INFO(kinds_[kind].name << ": differences: " << found[kind].text());
      CHECK(found[kind].differences == 0);
    }
  }
};

}  // namespace tested
