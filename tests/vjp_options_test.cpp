// SPDX-License-Identifier: BSD-3-Clause
// Tests of all combinations of the optional arrays of linear_scan_vjp, with resets, broadcasts and
// sums. Every backend must have the bits of the sequential loop, in integers.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <scanrec/scan.hpp>

#include "catch.hpp"
#include "reference.hpp"
#include "tested_backend.hpp"

namespace {

using namespace scanrec;
using word = std::uint32_t;

// There are channels for a pack and a tail, and steps for packs along time with and without a tail.
constexpr std::int64_t with_tail = 69, whole_packs = 64;
constexpr extents shape_of(std::int64_t steps) {
  return {.batch = 2, .time = steps, .channel = 18};
}
constexpr std::int64_t elements = detail::element_count(shape_of(with_tail));

/// Whether an array has a single value along each axis.
struct layout {
  const char* name;
  bool batch, time, channel;
};
constexpr layout dense{"dense", false, false, false};

strides strides_of(const layout& l, const extents& shape, bool along_time, bool edge = false) {
  extents of = shape;
  if (edge) of.time = 1;
  strides s = along_time ? time_contiguous(of) : channels_last(of);
  if (l.batch) s.batch = 0;
  if (l.time || edge) s.time = 0;
  if (l.channel) s.channel = 0;
  return s;
}

struct memory_of_a_call {
  std::vector<word> gate, state, grad, start, last, gate_grad, input_grad, initial_grad;
  std::array<bool, elements> reset_mask;

  memory_of_a_call() : gate(elements), state(elements), grad(elements), start(36), last(36) {
    reference::generator bits{5};
    for (auto* all : {&gate, &state, &grad, &start, &last})
      for (word& x : *all) x = bits();
    for (bool& mark : reset_mask) mark = bits() % 5 == 0;
  }
  void clear() {
    // Values that gradients overwrite or are added to.
    gate_grad.assign(elements, 3), input_grad.assign(elements, 4), initial_grad.assign(36, 5);
  }
  bool operator==(const memory_of_a_call&) const = default;
};

/// One combination of arrays, layouts and options.
struct combination {
  int resets = 0;  // 0: absent, 1: one channel, 2: per channel, 3: shared over batch, 4: over time
  const layout *gate = nullptr, *grad = nullptr;  // grad: null if absent
  bool has_state = true, has_start = false, has_last = false;
  const layout *gate_grad = nullptr, *input_grad = nullptr, *initial_grad = nullptr;
  bool along_time = false, reverse = false, accumulate = false;
  std::int64_t steps = with_tail;
};

void run(const tested::backend<word>& on, const combination& c, memory_of_a_call& m) {
  const extents shape = shape_of(c.steps);
  const auto view = [&](std::vector<word>& of, const layout* l) {
    if (!l) return sequence_view<word>();
    return sequence_view<word>(of.data(), shape, strides_of(*l, shape, c.along_time));
  };
  const auto edge = [&](std::vector<word>& of, const layout* l) {
    if (!l) return state_view<word>();
    return state_view<word>(of.data(), shape, strides_of(*l, shape, c.along_time, true));
  };
  vjp_options<word> options{.order = c.reverse ? direction::reverse : direction::forward,
                            .initial_state = edge(m.start, c.has_start ? &dense : nullptr),
                            .final_grad = edge(m.last, c.has_last ? &dense : nullptr)};
  extents of = shape;
  if (c.resets == 1) of.channel = 1;
  scanrec::strides strides = c.along_time ? time_contiguous(of) : channels_last(of);
  if (c.resets == 3) strides.batch = 0;
  if (c.resets == 4) strides.time = 0;
  if (c.resets > 0) options.resets = {m.reset_mask.data(), of, strides};
  const scan_gradients<word> gradients{
      .gate_grad = view(m.gate_grad, c.gate_grad),
      .input_grad = view(m.input_grad, c.input_grad),
      .initial_grad = edge(m.initial_grad, c.initial_grad),
      .update = c.accumulate ? update::accumulate : update::overwrite};
  using maybe = tested::maybe<word>;
  tested::linear_scan_vjp(on, view(m.gate, c.gate),
                          c.has_state ? maybe(view(m.state, &dense)) : maybe(none),
                          c.grad ? maybe(view(m.grad, c.grad)) : maybe(none), gradients, options);
}

/// A backend runs one in this many cases. GPU backends run fewer, because launches on the emulator
/// are slow.
int every(const tested::backend<word>& backend) {
  return backend.name.starts_with("cuda") ? 60 * backend.every : 3;
}

}  // namespace

TEST_CASE("adjoints equal those of sequential bit for bit, for all combinations of arrays",
          "[vjp_options]") {
  const std::array gates{dense, layout{"of a step", true, false, true},
                         layout{"of a channel", true, true, false},
                         layout{"of a row", false, true, true}};
  const std::array grads{dense, layout{"the same at every step", false, true, false}};
  const std::array sums{dense, layout{"over time", false, true, false},
                        layout{"over batch and channel", true, false, true}};
  const std::array boundary_states{dense, layout{"over batch", true, false, false}};
  const auto or_null = [](const auto& list, int i) {
    return i < static_cast<int>(list.size()) ? &list[i] : nullptr;
  };

  const auto& backends = tested::backends<word>();
  REQUIRE(backends.front().name == "sequential");
  memory_of_a_call want, got;
  int number = 0;
  combination c;
  tested::sampler turns;
  const auto check = [&] {
    // The remaining options cycle with different periods, so that all pairs occur.
    ++number;
    c.along_time = number % 2 == 1, c.reverse = number / 3 % 2 == 1;
    c.accumulate = number / 5 % 2 == 1;
    c.has_start = number / 7 % 2 == 1, c.has_last = number / 11 % 2 == 1;
    c.steps = number / 13 % 2 == 1 ? whole_packs : with_tail;
    want.clear();
    run(backends.front(), c, want);
    turns.next_round();
    for (std::size_t k = 1; k < backends.size(); ++k) {
      const auto& backend = backends[k];
      if (!turns.takes(every(backend))) continue;
      got.clear();
      run(backend, c, got);
      if (got == want) continue;
      const auto name = [](const layout* l) { return l ? l->name : "absent"; };
      INFO(backend.name << ", case " << number << ": resets " << c.resets << ", gate "
                        << name(c.gate) << ", state_grad " << name(c.grad) << ", gate_grad "
                        << name(c.gate_grad) << ", input_grad " << name(c.input_grad)
                        << ", initial_grad " << name(c.initial_grad) << ", state " << c.has_state
                        << ", along time " << c.along_time << ", " << c.steps << " steps");
      CHECK(false);
    }
  };
  for (c.resets = 0; c.resets < 5; ++c.resets)
    for (const layout& gate : gates)
      for (int grad = 0; grad < 3; ++grad)
        for (int gate_grad = 0; gate_grad < 3; ++gate_grad)
          for (int input_grad = 0; input_grad < 4; ++input_grad)
            for (int initial_grad = 0; initial_grad < 3; ++initial_grad)
              for (const bool has_state : {true, false}) {
                c.gate = &gate, c.grad = or_null(grads, grad);
                // The gradient of the gate has one value per element, is the sum that the layout of
                // the gate implies, or is absent.
                c.gate_grad = gate_grad == 0 ? &dense : gate_grad == 1 ? &gate : nullptr;
                if (!has_state && c.gate_grad) continue;
                c.has_state = has_state;
                c.input_grad = or_null(sums, input_grad);
                c.initial_grad = or_null(boundary_states, initial_grad);
                check();
              }
  CHECK(number == 5 * 4 * 3 * 4 * 3 * 4);
}

TEST_CASE("adjoints equal those of sequential bit for bit, for all combinations of boundary states",
          "[vjp_options]") {
  const auto& backends = tested::backends<word>();
  memory_of_a_call want, got;
  combination c;
  tested::sampler turns;
  c.gate = &dense;
  for (int i = 0; i < 1 << 10; ++i) {
    const auto has = [i](int k) { return (i >> k & 1) != 0; };
    c.resets = has(0) ? 1 + has(1) : 0;
    if (!has(0) && has(1)) continue;
    c.along_time = has(2), c.reverse = has(3), c.accumulate = has(4);
    c.has_start = has(5), c.has_last = has(6);
    c.gate_grad = has(7) ? &dense : nullptr, c.input_grad = has(8) ? &dense : nullptr;
    c.initial_grad = has(9) ? &dense : nullptr;
    c.grad = has(8) || has(7) ? &dense : nullptr;
    want.clear();
    run(backends.front(), c, want);
    turns.next_round();
    for (std::size_t k = 1; k < backends.size(); ++k) {
      const auto& backend = backends[k];
      if (!turns.takes(every(backend))) continue;
      INFO(backend.name << ", case " << i);
      got.clear();
      run(backend, c, got);
      CHECK((got == want));
    }
  }
}
