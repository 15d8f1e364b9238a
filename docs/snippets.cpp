// SPDX-License-Identifier: BSD-3-Clause
// The C++ blocks of README.md and docs/*.md, except those of snippets.cu and of examples/. They are
// compiled, run and checked here.
//
// A block is between a line with its name in brackets and one with a slash before the name.
// Documents show it after a comment with its name. tests/docs_check.py compares the two.
#undef NDEBUG
#include <algorithm>
#include <cassert>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// [minimal]
#include <cassert>
#include <vector>

#include <scanrec/scan.hpp>

using view = scanrec::sequence_view<float>;

void minimal() {
  const scanrec::extents shape{.batch = 2, .time = 1000, .channel = 16};
  std::vector<float> gate(2 * 1000 * 16, 0.5f), input(gate.size(), 1.0f), state(gate.size());
  scanrec::linear_scan(view(gate, shape), view(input, shape), view(state, shape));
  assert(state[0] == 1.0f && state[16] == 1.5f && state[32] == 1.75f);  // channel 0, steps 0, 1, 2

  // The adjoint: the gradients of gates and inputs from the gradient of the states.
  std::vector<float> state_grad(gate.size(), 1.0f), gate_grad(gate.size()), input_grad(gate.size());
  scanrec::linear_scan_vjp(
      view(gate, shape), view(state, shape), view(state_grad, shape),
      {.gate_grad = view(gate_grad, shape), .input_grad = view(input_grad, shape)});
  assert(input_grad[999 * 16] == 1.0f && input_grad[998 * 16] == 1.5f);
}
// [/minimal]

#include <scanrec/planned.hpp>
#include <scanrec/variants.hpp>

namespace {

using namespace scanrec;
using floats = std::vector<float>;

void law() {
  // [law]
  using map = affine<float>;  // x -> a * x + u
  const map steps[]{{2, 1}, {3, -5}, {-1, 4}, {2, 3}};
  float x = 2;
  for (const map& step : steps) x = step.act(x);
  assert(x == -9);

  const map left = combine(combine(combine(steps[0], steps[1]), steps[2]), steps[3]);
  const map pairs = combine(combine(steps[0], steps[1]), combine(steps[2], steps[3]));
  assert(left.a == -12 && left.u == 15);
  assert(pairs.a == left.a && pairs.u == left.u);
  assert(pairs.act(2) == -9);
  // [/law]
}

void resets() {
  // [resets]
  // Two sequences of 3 and 2 steps, packed end to end.
  const extents shape{.time = 5};
  floats gate(5, 2), input{1, 1, 1, 1, 1}, state(5);
  const bool starts[]{true, false, false, true, false};
  linear_scan(view(gate, shape), view(input, shape), view(state, shape),
              {.resets = sequence_view(starts, shape)});
  assert((state == floats{1, 3, 7, 1, 3}));
  // [/resets]
}

void resets_of_chunks() {
  // [resets_of_chunks]
  // The arrays of the first example, scanned in reverse order: steps 3 and 4, then steps 0 to 2.
  floats gate(5, 2), input{1, 1, 1, 1, 1}, state(5), carry(1);
  const bool starts[]{true, false, false, true, false};
  const state_view<float> last(carry, extents{});
  for (const auto& [first, steps] : {std::pair(3, 2), std::pair(0, 3)}) {
    const extents shape{.time = steps};
    extents mask_shape = shape;
    if (first + steps < 5) ++mask_shape.time;  // the reset of the step after the chunk
    linear_scan(sequence_view(&gate[first], shape), sequence_view(&input[first], shape),
                sequence_view(&state[first], shape),
                {.order = direction::reverse,
                 .initial_state = last,
                 .final_state = last,
                 .resets = sequence_view(starts + first, mask_shape)});
  }
  assert((state == floats{7, 3, 1, 3, 1}));
  // [/resets_of_chunks]
}

void segments() {
  // [segmented]
  using map = segmented<affine<float>>;
  const map linked{{INFINITY, 1}, 0}, start{{2, 5}, 1};
  assert(start.act(INFINITY) == 5);
  assert(combine(linked, start).act(7) == 5);  // the product 2 * inf is discarded
  // [/segmented]
}

void final_state_only() {
  // [final_state]
  const extents shape{.batch = 3, .time = 100, .channel = 4};
  floats gate(1200, 0.5f), input(1200, 1), last(12);
  linear_scan(view(gate, shape), view(input, shape), none,
              {.final_state = state_view(last.data(), shape)});
  assert(last[0] == 2.0f);  // 2 - 2^-99, rounded
  // [/final_state]
}

void adjoint() {
  // [vjp]
  const extents shape{.time = 3};
  floats gate{2, 3, 4}, input{1, 1, 1}, state(3), first{5}, first_grad(1);
  const state_view<float> x0(first, shape), x0_grad(first_grad, shape);
  linear_scan(view(gate, shape), view(input, shape), view(state, shape), {.initial_state = x0});
  assert((state == floats{11, 34, 137}));

  // loss = state[0] + 10 * state[2]
  floats state_grad{1, 0, 10}, gate_grad(3), input_grad(3);
  linear_scan_vjp(view(gate, shape), view(state, shape), view(state_grad, shape),
                  {.gate_grad = view(gate_grad, shape),
                   .input_grad = view(input_grad, shape),
                   .initial_grad = x0_grad},
                  {.initial_state = x0});
  assert((input_grad == floats{121, 40, 10}));   // 1 + 3 * 40, 4 * 10, 10
  assert((gate_grad == floats{605, 440, 340}));  // input_grad * (5, 11, 34), the previous states
  assert(first_grad[0] == 242);                  // 2 * 121
  // [/vjp]
}

void broadcast_gradient() {
  const extents shape{.batch = 2, .time = 50, .channel = 3};
  floats input(300, 1), state(300), state_grad(300, 1), lambda(3, 0.5f);
  linear_scan(view(lambda, shape, strides{0, 0, 1}), view(input, shape), view(state, shape));
  // [broadcast_gradient]
  // One gate per channel, for all sequences and steps. Its gradient is the sum over both.
  const strides once{.batch = 0, .time = 0, .channel = 1};
  floats lambda_grad(3);
  linear_scan_vjp(view(lambda, shape, once), view(state, shape), view(state_grad, shape),
                  {.gate_grad = view(lambda_grad, shape, once)});
  // [/broadcast_gradient]
  floats gate(300, 0.5f), gate_grad(300);
  linear_scan_vjp(view(gate, shape), view(state, shape), view(state_grad, shape),
                  {.gate_grad = view(gate_grad, shape)});
  for (int c = 0; c < 3; ++c) {
    double sum = 0;
    for (int i = c; i < 300; i += 3) sum += gate_grad[i];
    assert(std::abs(lambda_grad[c] - sum) < 1e-6 * sum);
  }
  // [accumulate]
  linear_scan_vjp(view(lambda, shape, once), view(state, shape), view(state_grad, shape),
                  {.gate_grad = view(lambda_grad, shape, once), .update = update::accumulate});
  // [/accumulate]
  for (int c = 0; c < 3; ++c) {
    double sum = 0;
    for (int i = c; i < 300; i += 3) sum += gate_grad[i];
    assert(std::abs(lambda_grad[c] - 2 * sum) < 1e-6 * sum);
  }
}

void convention() {
  // [convention]
  using complex = std::complex<double>;
  using numbers = std::vector<complex>;
  using view = sequence_view<complex>;
  const extents shape{.time = 2};
  numbers gate{{0, 1}, {0, 1}}, state{{1, 0}, {0, 2}}, grad{{0, 0}, {1, 0}}, hermitian(2), plain(2);
  linear_scan_vjp(view(gate, shape), view(state, shape), view(grad, shape),
                  {.input_grad = view(hermitian, shape)});
  linear_scan_vjp(view(gate, shape), view(state, shape), view(grad, shape),
                  {.input_grad = view(plain, shape)}, {.convention = conjugation::none});
  assert(hermitian[0] == complex(0, -1) && plain[0] == complex(0, 1));
  // [/convention]
}

void dot_product() {
  // [dot_product]
  const extents shape{.time = 4};
  std::vector<double> a{0.5, -2, 1, 3}, u{1, 2, 3, 4}, x(4), x_dot(4), a_grad(4), u_grad(4);
  std::vector<double> a_dot{1, -1, 2, 0.5}, u_dot{0, 1, -1, 2}, w{1, 2, -3, 1};
  const auto at = [&](std::vector<double>& v) { return sequence_view<double>(v, shape); };
  const auto dot = [](const auto& p, const auto& q) {
    double sum = 0;
    for (std::size_t i = 0; i < p.size(); ++i) sum += p[i] * q[i];
    return sum;
  };
  linear_scan(at(a), at(u), at(x));
  linear_scan_jvp(at(a), at(x), at(a_dot), at(u_dot), at(x_dot));
  linear_scan_vjp(at(a), at(x), at(w), {.gate_grad = at(a_grad), .input_grad = at(u_grad)});
  assert(dot(w, x_dot) == dot(a_grad, a_dot) + dot(u_grad, u_dot));  // exact
  // [/dot_product]
}

void layouts() {
  const extents shape{.batch = 2, .time = 5, .channel = 3};
  const std::int64_t B = 2, T = 5, C = 3;
  floats gates(30), inputs(30, 1), rows(30), columns(30), major(30);
  for (int b = 0; b < 2; ++b)
    for (int t = 0; t < 5; ++t)
      for (int c = 0; c < 3; ++c)
        gates[(b * 5 + t) * 3 + c] = 0.25f * static_cast<float>(b + t + c);
  float* p = rows.data();
  {
    // [channels_last]
    const sequence_view<float> x(p, shape);  // (batch, time, channel), channel fastest
    assert(x.strides == (strides{.batch = T * C, .time = C, .channel = 1, .group = B * T * C}));
    // [/channels_last]
    linear_scan(view(gates, shape), view(inputs, shape), x);
  }
  p = columns.data();
  {
    // [time_contiguous]
    const sequence_view<float> x(p, shape, time_contiguous(shape));  // (batch, channel, time)
    assert(x.strides == (strides{.batch = T * C, .time = 1, .channel = T, .group = B * T * C}));
    // [/time_contiguous]
    linear_scan(view(gates, shape), view(inputs, shape), x);
    assert(columns[1] == rows[3]);
  }
  p = major.data();
  {
    // [time_major]
    const sequence_view<float> x(p, shape, strides{.batch = C, .time = B * C, .channel = 1});
    // [/time_major]
    linear_scan(view(gates, shape), view(inputs, shape), x);
    assert(major[6] == rows[3]);
  }
}

void packed() {
  constexpr std::int64_t B = 2, T = 5, C = 3;
  // [packed]
  // A matrix product wrote gates and inputs side by side: (batch, time, [gate | input] x channel).
  const extents shape{.batch = B, .time = T, .channel = C};
  const strides apart{.batch = T * 2 * C, .time = 2 * C, .channel = 1};
  floats projected(B * T * 2 * C, 0.5f), projected_grad(projected.size());
  const auto half = [&](floats& both, int k) { return view(both.data() + k * C, shape, apart); };
  floats state(B * T * C), state_grad(state.size(), 1);
  linear_scan(half(projected, 0), half(projected, 1), view(state, shape));
  linear_scan_vjp(half(projected, 0), view(state, shape), view(state_grad, shape),
                  {.gate_grad = half(projected_grad, 0), .input_grad = half(projected_grad, 1)});
  // [/packed]
  assert(state[C] == 0.75f);
  assert(projected_grad[C] == 1.9375f);
  assert(projected_grad[(T - 1) * 2 * C + C] == 1.0f);
}

void broadcasts() {
  constexpr std::int64_t T = 4, C = 2, heads = 3;
  {
    // [broadcast]
    const extents shape{.batch = 5, .time = T, .channel = C};
    floats decay(C, 0.5f), schedule(T, 0.5f), input(5 * T * C, 1), state(input.size());
    // One gate per channel, for every sequence and step.
    linear_scan(view(decay, shape, strides{.batch = 0, .time = 0, .channel = 1}),
                view(input, shape), view(state, shape));
    // One gate per step, for every sequence and channel.
    linear_scan(view(schedule, shape, strides{.batch = 0, .time = 1, .channel = 0}),
                view(input, shape), view(state, shape));
    // [/broadcast]
    assert(state[C] == 1.5f);
  }
  {
    // [group]
    // Heads on the group axis: (batch, time, head, channel) in memory, one gate per head and step.
    const extents shape{.batch = 2, .time = T, .channel = C, .group = heads};
    const strides wide{.batch = T * heads * C, .time = heads * C, .channel = 1, .group = C};
    const strides shared{.batch = T * heads, .time = heads, .channel = 0, .group = 1};
    floats gate(2 * T * heads, 0.5f), input(2 * T * heads * C, 1), state(input.size());
    linear_scan(view(gate, shape, shared), view(input, shape, wide), view(state, shape, wide));
    // [/group]
    assert(state[heads * C] == 1.5f);
  }
}

void backwards() {
  // [backwards]
  const extents shape{.time = 4};
  floats gate(4, 2), input{1, 2, 3, 4}, state(4), mirrored(4);
  linear_scan(view(gate, shape), view(input, shape), view(state, shape),
              {.order = direction::reverse});
  assert((state == floats{49, 24, 11, 4}));

  // The same scan with views that start at the last step.
  const view last_first(&mirrored[3], shape, strides{.time = -1});
  linear_scan(view(gate, shape).reversed(), view(input, shape).reversed(), last_first);
  assert(mirrored == state);
  // [/backwards]
}

void algebra() {
  // [view_algebra]
  const extents shape{.batch = 2, .time = 6, .channel = 4};
  floats gates{0.5f, 0.25f, 0.5f, 0.25f}, inputs(2 * 6 * 4, 1), states(inputs.size());
  const view input(inputs, shape), state(states, shape);
  const view gate = broadcast_to(view(gates, {.channel = 4}), shape);  // one per channel

  // Steps 2 to 5 of channels 0 and 1, from the last to the first.
  const auto part = [](const view& x) { return x.steps(2, 6).channels(0, 2).reversed(); };
  linear_scan(part(gate), part(input), part(state));
  assert(state.at(1, 5, 0) == 1 && state.at(1, 4, 0) == 1.5f);  // batch, time, channel
  assert(state.at(1, 1, 0) == 0 && state.at(1, 5, 2) == 0);     // other elements are unchanged

  // A whole container as one sequence, of one channel or of several contiguous channels.
  assert(sequence_view(inputs).shape.time == 48);
  assert(sequence_view(inputs, 4).shape == (extents{.time = 12, .channel = 4}));
  // [/view_algebra]
}

void edges() {
  // [states]
  const extents shape{.batch = 2, .time = 6, .channel = 3};
  floats gate(36, 0.5f), input(36, 1), state(36), carried(6, 4), learned(3, 4);
  // One state per sequence: (batch, channel), contiguous unless strides are given.
  const state_view<float> each(carried, shape);
  // One state for all sequences. A gradient with these strides is a sum over sequences.
  const state_view<float> shared(learned, shape, strides{.batch = 0, .channel = 1});
  linear_scan(view(gate, shape), view(input, shape), view(state, shape),
              {.initial_state = shared, .final_state = each});
  assert(state[0] == 3 && carried[0] == state[15]);
  // [/states]
}

void spans() {
  // [span]
  const extents shape{.batch = 2, .time = 6, .channel = 3};
  const floats input(36, 1);
  floats short_by_one(35);
  const sequence_view x{std::span(input), shape};  // a sequence_view<const float>
  assert(x.data == input.data());
  bool refused = false;
  try {
    const sequence_view y{std::span(short_by_one), shape};
  } catch (const argument_error& error) {
    refused = error.argument() == "data";
  }
  assert(refused);
  // [/span]
}

void in_place() {
  // [in_place]
  const extents shape{.batch = 8, .time = 1, .channel = 4};
  floats gate(32, 0.5f), token(32, 1), carry(32, 0);
  const state_view<float> state(carry, shape);
  for (int step = 0; step < 3; ++step) {
    token.assign(32, 1);
    linear_scan(view(gate, shape), view(token, shape), view(token, shape),  // state is input
                {.initial_state = state, .final_state = state});
  }
  assert(token[0] == 1.75f && carry[0] == 1.75f);
  // [/in_place]
}

void threads_and_bits() {
  // [bits]
  const extents shape{.time = 40000, .channel = 3};
  floats gate(120000), input(120000, 1), one(120000), many(120000);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = std::cos(static_cast<float>(i));
  const tiled alone{.threads = 1}, together{.threads = 3, .stream_bytes = 1};
  linear_scan(alone, view(gate, shape), view(input, shape), view(one, shape));
  linear_scan(together, view(gate, shape), view(input, shape), view(many, shape));
  assert(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)) == 0);
  // [/bits]
}

void exact() {
  // [exact]
  using words = std::vector<std::uint32_t>;
  using view = sequence_view<std::uint32_t>;
  const extents shape{.time = 5000};
  words gate(5000), input(5000), loop(5000), tiles(5000);
  for (std::uint32_t i = 0; i < 5000; ++i) gate[i] = 2654435761u * i, input[i] = ~i;
  linear_scan(sequential{}, view(gate, shape), view(input, shape), view(loop, shape));
  linear_scan(tiled{.threads = 2, .tile_steps = 320}, view(gate, shape), view(input, shape),
              view(tiles, shape));
  assert(tiles == loop);  // modulo 2^32 every order of composition gives the same bits
  // [/exact]
}

void halves_of_words() {
  // [storage]
  const extents shape{.time = 2};
  std::vector<bfloat16> gate(2, bfloat16(0.5f)), input{bfloat16(1.0f), bfloat16(0.001f)}, state(2);
  floats last(1);  // initial and final states have the compute type
  linear_scan(sequence_view(gate.data(), shape), sequence_view(input.data(), shape),
              sequence_view(state.data(), shape), {.final_state = state_view(last.data(), shape)});
  assert(static_cast<float>(state[1]) == 0.5f);            // 8 bits of precision
  assert(last[0] == 0.5f + static_cast<float>(input[1]));  // not rounded to bfloat16
  // [/storage]
}

void options() {
  // [tiled]
  const extents shape{.time = 3000};
  floats gate(3000, 0.5f), input(3000, 1), state(3000);
  const view a(gate, shape), u(input, shape), x(state, shape);
  linear_scan(tiled{.threads = 2}, a, u, x);       // two workers
  linear_scan(tiled{.tile_steps = 512}, a, u, x);  // tiles of 512 steps: may change bits
  linear_scan(tiled{.stream_bytes = 1}, a, u, x);  // non-temporal stores for any size
  linear_scan(sequential{}, a, u, x);              // the plain loop
  // [/tiled]
  assert(state[2] == 1.75f);
}

void describing() {
  floats gate(64), input(64), state(64);
  const extents shape{.time = 64};
  const view a(gate, shape), u(input, shape), x(state, shape);
  // [describe]
  const tile_plan plan = describe(tiled{}, linear_scan_problem(a, u, x));
  const std::string text = to_string(plan);  // one line per decision
  assert(!plan.time_split && plan.threads == 1);
  assert(plan.workspace_bytes == workspace_bytes(tiled{}, linear_scan_problem(a, u, x)));
  // [/describe]
  assert(text.find("workspace") != std::string::npos);
}

void given_workspace() {
  const extents shape{.time = 5000, .channel = 2000};
  const std::int64_t elements = 5000 * 2000;
  floats gate(elements, 0.5f), input(elements, 1), state(elements), state_grad(elements, 1);
  floats gate_grad(elements);
  const view a(gate, shape), u(input, shape), x(state, shape);
  const view g(state_grad, shape), a_grad(gate_grad, shape);
  // [workspace]
  tiled backend{.threads = 8};
  const std::int64_t bytes =
      std::max(workspace_bytes(backend, linear_scan_problem(a, u, x)),
               workspace_bytes(backend, linear_scan_vjp_problem(a, x, g, {.gate_grad = a_grad})));
  struct alignas(64) line {
    std::byte bytes[64];
  };
  std::vector<line> memory(static_cast<std::size_t>(bytes / 64 + 1));
  backend.workspace = std::as_writable_bytes(std::span(memory));  // a std::span<std::byte>
  linear_scan(backend, a, u, x);                                  // both calls allocate nothing
  linear_scan_vjp(backend, a, x, g, {.gate_grad = a_grad});
  // [/workspace]
  assert(state[2 * 2000] == 1.75f && gate_grad[1] == 0);
}

void same_bits_in_chunks() {
  const std::int64_t T = 3000, C = 40;
  floats gate(T * C, 0.5f), input(T * C, 1), state(T * C), whole(T * C), carry(C, 0);
  for (std::int64_t i = 0; i < T * C; ++i) input[i] = 1 / static_cast<float>(i + 1);
  // [same_bits]
  const tiled backend{.tile_steps = T};  // T or more: time is not split in a call of T steps
  const extents all{.time = T, .channel = C};
  const view a(gate, all), u(input, all), x(state, all);
  linear_scan(backend, a, u, view(whole, all));
  const state_view<float> last(carry, all);
  for (std::int64_t first = 0; first < T; first += 700) {
    const std::int64_t end = std::min(first + 700, T);
    linear_scan(backend, a.steps(first, end), u.steps(first, end), x.steps(first, end),
                {.initial_state = last, .final_state = last});
  }
  assert(state == whole);
  // [/same_bits]
}

void planning() {
  const extents shape{.batch = 8, .time = 1, .channel = 4};
  floats gate(32, 0.5f), token(32, 1), out(32), carry(32, 0);
  const state_view<float> state(carry, shape);
  // [planned]
  auto step = plan_linear_scan(view(gate, shape), view(token, shape), view(out, shape),
                               {.initial_state = state, .final_state = state});
  step();  // linear_scan with these arguments
  floats next(32, 2), other(32);
  step({.input = next.data(), .state = other.data()});  // other memory with the same layout
  assert(carry[0] == 2.5f && other[0] == 2.5f);
  // [/planned]
  assert(out[0] == 1);
}

void own_executor() {
  const extents shape{.time = 64, .channel = 40};
  floats gate(64 * 40, 0.5f), input(64 * 40, 1), state(64 * 40);
  const view a(gate, shape), u(input, shape), x(state, shape);
  int ran = 0;
  // [executor]
  tiled backend{.threads = 4};
  backend.executor = [&](int workers, work_ref work) {
    // Any threads in any order: those of a pool, or, as here, only the calling thread.
    for (int worker = 0; worker < workers; ++worker) work(worker), ++ran;
  };
  linear_scan(backend, a, u, x);
  // [/executor]
  assert(ran == 4 && state[40] == 1.5f);
}

void errors() {
  // [errors]
  const extents shape{.time = 4}, longer{.time = 5};
  floats gate(4), input(5), state(4);
  std::string message;
  try {
    linear_scan(view(gate, shape), view(input, longer), view(state, shape));
  } catch (const argument_error& error) {
    message = error.what();  // nothing has been written
  }
  assert(
      message ==
      "linear_scan: argument 'input': expected shape (batch 1, time 4, channel 1) as 'gate' has, "
      "got (batch 1, time 5, channel 1)");
  // [/errors]
}

void operators() {
  {
    // [prefixes]
    const extents shape{.time = 5};
    std::vector<int> x{3, 1, 4, 1, 5}, y(5);
    const sequence_view<int> in(x.data(), shape), out(y.data(), shape);
    inclusive_scan(op::sum{}, in, out);
    assert((y == std::vector<int>{3, 4, 8, 9, 14}));
    exclusive_scan(op::sum{}, in, out);
    assert((y == std::vector<int>{0, 3, 4, 8, 9}));
    inclusive_scan(blelloch{}, op::max{}, in, out, {.order = direction::reverse});
    assert((y == std::vector<int>{5, 5, 5, 5, 5}));
    // [/prefixes]
  }
  {
    // [own_operator]
    struct runs {  // first and last value of an interval, and lengths of runs of equal values
      int first, last, length, at_start, at_end, longest;
    };
    const auto join = [](const runs& x, const runs& y) {
      const bool meet = x.last == y.first;
      runs both{x.first, y.last, x.length + y.length, x.at_start, y.at_end, 0};
      if (meet && x.at_start == x.length) both.at_start += y.at_start;
      if (meet && y.at_end == y.length) both.at_end += x.at_end;
      both.longest = std::max({x.longest, y.longest, meet ? x.at_end + y.at_start : 0});
      return both;
    };
    std::vector<runs> intervals;
    for (const int value : {7, 7, 2, 2, 2, 7}) intervals.push_back({value, value, 1, 1, 1, 1});
    const sequence_view<runs> elements(intervals.data(), {.time = 6});
    inclusive_scan(join, elements, elements);
    assert(intervals[1].longest == 2 && intervals[5].longest == 3);
    // [/own_operator]
  }
  {
    // [check_law]
    const std::vector<int> samples{-2, 0, 1, 5};
    assert(!check_associative(op::sum{}, samples));

    const auto minus = [](int x, int y) { return x - y; };
    const auto broken = check_associative(minus, samples);
    assert(broken);
    const auto [x, y, z] = *broken;
    assert(minus(minus(x, y), z) != minus(x, minus(y, z)));
    // [/check_law]
  }
  {
    // [biquad]
    using state = vec<double, 2>;
    using gate = mat<double, 2>;
    const extents shape{.time = 100};
    const strides once{};
    gate a{{{1.6, 1.0}, {-0.8, 0.0}}}, a_grad{};
    std::vector<state> input(100), x(100), x_grad(100);
    input[0] = {1.0, 0.0};  // an impulse
    linear_scan(sequence_view(&a, shape, once), sequence_view(input.data(), shape),
                sequence_view(x.data(), shape));
    assert(x[1][0] == 1.6);

    // loss = x[99][0]: its gradient with respect to the four coefficients, summed over all steps
    x_grad[99] = {1.0, 0.0};
    linear_scan_vjp(sequence_view(&a, shape, once), sequence_view(x.data(), shape),
                    sequence_view(x_grad.data(), shape), {.gate_grad = {&a_grad, shape, once}});
    // [/biquad]
    const double loss = x[99][0], h = 1e-6;
    a(1, 0) += h;
    linear_scan(sequence_view(&a, shape, once), sequence_view(input.data(), shape),
                sequence_view(x.data(), shape));
    assert(std::abs((x[99][0] - loss) / h - a_grad(1, 0)) < 1e-4);
  }
}

}  // namespace

#if __has_include(<Eigen/Core>)
// [eigen]
#include <scanrec/eigen.hpp>

void eigen_matrices() {
  using rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  rows input = rows::Ones(10, 4), state(10, 4), last(2, 4);       // rows are time steps
  Eigen::MatrixXf gate = Eigen::MatrixXf::Constant(10, 4, 0.5f);  // column-major: time-contiguous
  // Two sequences of five steps, one below the other.
  scanrec::linear_scan(scanrec::as_sequence(gate, 2), scanrec::as_sequence(input, 2),
                       scanrec::as_sequence(state, 2), {.final_state = scanrec::as_state(last)});
  assert(last.row(1) == state.row(9) && state(5, 0) == 1.0f);

  // Blocks and maps also work, if they are named variables.
  Eigen::Map<const rows> map(input.data(), 10, 4);
  auto half = map.middleCols(2, 2);
  auto gates = gate.middleCols(2, 2);
  rows part(10, 2);
  scanrec::linear_scan(scanrec::as_sequence(gates), scanrec::as_sequence(half),
                       scanrec::as_sequence(part));
}
// [/eigen]

#include <random>

#include <scanrec/s5_init.hpp>

void state_space() {
  // [s5]
  using namespace scanrec;
  std::mt19937 random(1);
  // Four channels and 32 real dimensions of state: 16 complex states, one per conjugate pair.
  s5_system<float> system = make_s5<float>({.channels = 4, .states = 32, .blocks = 2}, random);
  const extents shape{.batch = 2, .time = 100, .channel = 4};
  const extents wide{.batch = 2, .time = 100, .channel = system.state_channels()};
  floats u(800, 1.0f), y(800), y_grad(800, 1.0f), u_grad(800);
  std::vector<std::complex<float>> states(2 * 100 * 16), scratch(states.size());
  s5(system, view(u, shape), sequence_view(states.data(), wide), view(y, shape));

  s5_system<float> gradients = system.zeros();  // s5_vjp adds to them
  s5_vjp(system, view(u, shape), sequence_view(states.data(), wide), view(y_grad, shape),
         sequence_view(scratch.data(), wide), gradients, view(u_grad, shape));
  for (Eigen::Index p = 0; p < 16; ++p) system.lambda[p] -= 1e-3f * gradients.lambda[p];
  // [/s5]
  assert(u_grad[0] != 0);
}

#include <scanrec/layers/mamba.hpp>

void mamba() {
  // [mamba_layer]
  using namespace scanrec;
  using rows = mamba_layer<float>::matrix;  // row t * batch + b: step t of sequence b
  std::mt19937 random(1);
  mamba_layer<float> layer({.channels = 24});  // 48 inner channels, 16 states each
  layer.randomise(random);
  const rows x = rows::Random(300 * 2, 24);
  rows y, x_grad;
  mamba_stream<float> stream;  // begins with zeros
  mamba_memory<float> memory;
  layer.forward(x, 2, stream, memory, y);

  auto gradients = layer.zeros();                       // backward adds to them
  layer.backward(x, 2, memory, y, gradients, &x_grad);  // the loss is half the sum of squares of y
  layer.weights.input -= 1e-3f * gradients.input;
  layer.step(rows::Random(2, 24), stream, memory, y);  // continues the stream
  // [/mamba_layer]
  assert(y.rows() == 2 && x_grad.cols() == 24);
}
#else
void eigen_matrices() {}
void state_space() {}
void mamba() {}
#endif

#include <scanrec/selective_scan.hpp>

void selective() {
  // [selective_scan]
  using namespace scanrec;
  const extents shape{.batch = 2, .time = 300, .channel = 24};
  const extents bc{.batch = 2, .time = 300, .group = 4};  // B and C are shared by all channels
  const extents own{.channel = 24, .group = 4};
  floats u(14400, 1.0f), delta(14400, 0.5f), a(96, -1.0f), b(2400, 0.1f), c(2400, 0.1f), out(14400);
  const selective_arrays<float> arrays{.u = view(u, shape),
                                       .delta = view(delta, shape),
                                       .a = state_view(a, own),
                                       .b = sequence_view(b, bc, states_last(bc)),
                                       .c = sequence_view(c, bc, states_last(bc)),
                                       .softplus = true};
  selective_scan(arrays, view(out, shape));

  floats u_grad(14400), a_grad(96), b_grad(2400);
  selective_scan_vjp(arrays, view(out, shape),  // the loss is half the sum of squares of out
                     {.u = view(u_grad, shape),
                      .a = state_view(a_grad, own),
                      .b = sequence_view(b_grad, bc, states_last(bc))});
  // [/selective_scan]
  assert(out[0] > 0 && u_grad[0] > 0 && b_grad[0] > 0 && a_grad[0] > 0);
}

#include <scanrec/causal_conv1d.hpp>

void convolution() {
  // [causal_conv1d]
  using namespace scanrec;
  const extents shape{.batch = 2, .time = 300, .channel = 24};
  const extents past{.batch = 2, .time = 3, .channel = 24};  // four taps need three earlier steps
  const extents taps{.channel = 24, .group = 4};             // the oldest step's tap is first
  floats x(14400, 1.0f), out(14400), weight(96, 0.25f), bias(24), state(144);
  const causal_conv1d_arrays<float> arrays{
      .x = view(x, shape),
      .weight = state_view(weight, taps, {.channel = 4, .group = 1}),
      .bias = state_view(bias, {.channel = 24}),
      .activation = conv1d_activation::silu};
  causal_conv1d(arrays, view(out, shape),
                {.final_state = view(state, past)});  // the next call's initial_state

  floats x_grad(14400), weight_grad(96);
  causal_conv1d_vjp(arrays, view(out, shape),  // the loss is half the sum of squares of out
                    {.x = view(x_grad, shape),
                     .weight = state_view(weight_grad, taps, {.channel = 4, .group = 1})});
  // [/causal_conv1d]
  assert(out[3 * 24] > 0.73f && out[3 * 24] < 0.74f && state[0] == 1.0f);
  assert(x_grad[0] > 0 && weight_grad[0] > 0);
}

#include <scanrec/linear_attention.hpp>

void attention() {
  // [linear_attention]
  using namespace scanrec;
  // Gated DeltaNet with 4 heads of values, 2 of queries and keys, dk = 8 and dv = 16.
  const extents values{.batch = 2, .time = 300, .channel = 16, .group = 4};
  const extents keys{.batch = 2, .time = 300, .channel = 8, .group = 2};
  const extents numbers{.batch = 2, .time = 300, .group = 4};  // one per step and head
  const extents states{.batch = 2, .time = 8, .channel = 16, .group = 4};
  floats query(9600, 1.0f), key(9600, 1.0f), value(38400, 1.0f), gate(2400, -0.1f);
  floats beta(2400, 0.5f), out(38400), state(1024);
  const auto inside = [](floats& x, const extents& e) { return view(x, e, heads_inside(e)); };
  const linear_attention_arrays<float> arrays{.query = inside(query, keys),
                                              .key = inside(key, keys),
                                              .value = inside(value, values),
                                              .gate = inside(gate, numbers),  // logarithms
                                              .beta = inside(beta, numbers),
                                              .scale = 1 / std::sqrt(8.0f),
                                              .normalise = true};
  linear_attention(arrays, inside(out, values),
                   {.final_state = view(state, states, heads_outside(states))});
  // [/linear_attention]
  assert(std::abs(out[0] - 0.5f * arrays.scale) < 1e-5f && out[0] == out[16]);
  assert(state[0] > 0.2f && state[0] < 0.36f);
  // [linear_attention_vjp]
  floats query_grad(9600), key_grad(9600), value_grad(38400), gate_grad(2400), beta_grad(2400);
  linear_attention_vjp(arrays, inside(out, values),  // the loss is half the sum of squares of out
                       {.query = inside(query_grad, keys),
                        .key = inside(key_grad, keys),
                        .value = inside(value_grad, values),
                        .gate = inside(gate_grad, numbers),
                        .beta = inside(beta_grad, numbers)});
  // [/linear_attention_vjp]
  assert(value_grad[0] > 0 && beta_grad[0] > 0 && gate_grad[0] == 0 && gate_grad[4] > 0);
  // [linear_attention_stream]
  linear_attention_stream<float> stream(states);
  floats again(38400);
  for (std::int64_t t = 0; t < 300; t += 7) {
    const auto steps = [&](floats& x, const extents& e) {
      return inside(x, e).steps(t, std::min<std::int64_t>(t + 7, 300));
    };
    linear_attention_arrays<float> part = arrays;
    part.query = steps(query, keys), part.key = steps(key, keys), part.value = steps(value, values);
    part.gate = steps(gate, numbers), part.beta = steps(beta, numbers);
    linear_attention(part, steps(again, values), {.stream = &stream});
  }
  assert(again == out);
  // [/linear_attention_stream]
}

#include <scanrec/cells/log_space.hpp>
#include <scanrec/cells/qrnn.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/sensitivity.hpp>

// [own_cell]
namespace mine {

struct leaky_integrator {
  template <class View>
  struct arrays {
    View rate, x;
  };
  static constexpr std::array names{scanrec::array_name{"rate", "rate_grad"},
                                    scanrec::array_name{"x", "x_grad"}};
  using outputs = scanrec::output_is_state;

  template <class Lane>
  struct step {
    scanrec::activated<Lane> r;
    Lane x;
  };
  template <class Lane>
  static SCANREC_INLINE step<Lane> load(Lane rate, Lane x) {
    return {scanrec::activation::sigmoid::of(rate), x};
  }
  template <class Lane>
  static SCANREC_INLINE scanrec::affine<Lane> map(const step<Lane>& s) {
    return {s.r.complement, scanrec::simd::mul(s.r.value, s.x)};
  }
  template <class Lane>
  static SCANREC_INLINE std::array<Lane, 2> gradients(const step<Lane>& s,
                                                      const scanrec::cell_cotangents<Lane>& d) {
    return {scanrec::through(d.state, s.x - d.before, s.r.slope),
            scanrec::simd::mul(d.state, s.r.value)};
  }
};

}  // namespace mine
// [/own_cell]

void gated_cells() {
  // [qrnn]
  using namespace scanrec;
  const std::int64_t B = 2, T = 50, C = 4;
  // `pre` stands for the result of a matrix product: z, f and o of each step, side by side.
  floats pre(B * T * 3 * C), output(B * T * C), states(output.size());
  for (std::size_t i = 0; i < pre.size(); ++i) pre[i] = std::sin(static_cast<float>(i));
  const extents shape{.batch = B, .time = T, .channel = C};
  const extents wide{.batch = B, .time = T, .channel = 3 * C};
  const auto gates = packed<fo_pooling<>>(view(pre, wide));  // three views, no copies
  gated_scan(fo_pooling<>{}, gates, view(output, shape), memory::store{view(states, shape)});

  // The gradients of z, f and o are side by side too: the input of the product's backward pass.
  floats output_grad(output.size(), 1.0f), pre_grad(pre.size());
  gated_scan_vjp(fo_pooling<>{}, gates, memory::store{view(states, shape)},
                 view(output_grad, shape), {.arrays = packed<fo_pooling<>>(view(pre_grad, wide))});

  // Both calls again, with checkpoints every 128 steps instead of states. 50 steps need none.
  const extents few = memory::checkpoint_extents(shape);
  floats checkpoints(few.batch * few.time * few.channel), again(pre.size());
  gated_scan(fo_pooling<>{}, gates, view(output, shape),
             memory::recompute{sequence_view(checkpoints.data(), few)});
  gated_scan_vjp(fo_pooling<>{}, gates, memory::recompute{sequence_view(checkpoints.data(), few)},
                 view(output_grad, shape), {.arrays = packed<fo_pooling<>>(view(again, wide))});
  assert(pre_grad == again);
  // [/qrnn]
  // [log_space]
  floats log_gate{-0.5f, -0.25f, -0.125f}, log_input{0, 0, -INFINITY};
  const extents steps{.time = 3};
  floats decaying(3), log_gate_grad(3), log_input_grad(3), ones(3, 1.0f);
  const log_space<>::arrays<sequence_view<float>> logarithms{view(log_gate, steps),
                                                             view(log_input, steps)};
  gated_scan(log_space<>{}, logarithms, view(decaying, steps));
  gated_scan_vjp(log_space<>{}, logarithms, memory::store{view(decaying, steps)}, view(ones, steps),
                 {.arrays = {view(log_gate_grad, steps), view(log_input_grad, steps)}});
  assert(log_input_grad[2] == 0 && log_gate_grad[2] == decaying[2]);
  // [/log_space]
  // [use_own_cell]
  floats rate{0, 0, 0}, x{1, 0, 0}, leaky(3);
  const extents three{.time = 3};
  gated_scan(
      mine::leaky_integrator{},
      mine::leaky_integrator::arrays<sequence_view<float>>{view(rate, three), view(x, three)},
      view(leaky, three));
  assert((leaky == floats{0.5f, 0.25f, 0.125f}));
  // [/use_own_cell]
}

void sensitivities() {
  using namespace scanrec;
  // [sensitivity]
  // Learn a decay online. The target is the next state that a decay of 0.8 would give.
  float lambda = 0.5f, state = 0, sensitivity = 0;
  const extents one{.time = 1};
  for (int t = 0; t < 2000; ++t) {
    const float sample = std::sin(0.1f * static_cast<float>(t));
    const float target = 0.8f * state + sample;
    const float before = state;
    linear_scan_sensitivity(
        sequence_view<const float>(&lambda, one), sequence_view<const float>(&sample, one),
        sequence_view<float>(&state, one), sequence_view<float>(&sensitivity, one),
        {.initial_state = state_view<const float>(&before, one)});
    lambda -= 0.01f * (state - target) * sensitivity;
  }
  assert(std::abs(lambda - 0.8f) < 1e-3f);
  // [/sensitivity]
}

int main() {
  minimal();
  law();
  resets();
  resets_of_chunks();
  segments();
  final_state_only();
  adjoint();
  broadcast_gradient();
  convention();
  dot_product();
  layouts();
  packed();
  broadcasts();
  backwards();
  algebra();
  edges();
  spans();
  in_place();
  threads_and_bits();
  exact();
  halves_of_words();
  options();
  describing();
  given_workspace();
  same_bits_in_chunks();
  planning();
  own_executor();
  errors();
  eigen_matrices();
  operators();
  gated_cells();
  sensitivities();
  state_space();
  mamba();
  selective();
  convolution();
  attention();
  std::puts("ok");
}
