// SPDX-License-Identifier: BSD-3-Clause
// Tests of look_back under adversarial schedules, and of the reuse of workspaces. A schedule is the
// interleaving of blocks and threads on the emulator.
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/cuda/scan.cuh>
#include <scanrec/gated_scan.hpp>

#include "catch.hpp"
#include "emulator.hpp"
#include "merge_means.hpp"

namespace {

using namespace scanrec;
// Leaving out the stream does not compile.
static_assert(!std::is_default_constructible_v<cuda::lanes> &&
              !std::is_default_constructible_v<cuda::look_back> &&
              !std::is_default_constructible_v<cuda::automatic>);

using cuda_on_host::favour;
using cuda_on_host::schedule;
using cuda_on_host::scheduled;
using cuda_on_host::stream;
using tested::mean_of;
using tested::merge_means;

/// The arrays of a linear scan and of its adjoint.
template <class T>
struct arrays {
  extents shape;
  std::vector<T> gate, input, state, grad, gate_grad, input_grad, decay_grad, by_step;

  explicit arrays(const extents& s) : shape(s) {
    const auto n = static_cast<std::size_t>(s.batch * s.time * s.channel);
    std::uint32_t seed = 7;
    const auto next = [&] { return (seed = seed * 1664525u + 1013904223u) >> 8; };
    for (auto* all : {&gate, &input, &grad}) {
      all->resize(n);
      for (T& x : *all)
        x = std::is_integral_v<T> ? static_cast<T>(next()) : static_cast<T>(next()) / T(1 << 24);
    }
    // Gates near 1, so that states depend on many tiles.
    if constexpr (!std::is_integral_v<T>)
      for (T& a : gate) a = 1 - a / 64;
    state.resize(n), gate_grad.resize(n), input_grad.resize(n);
    decay_grad.resize(static_cast<std::size_t>(s.channel));
    by_step.resize(static_cast<std::size_t>(s.time));
  }
  sequence_view<T> view(std::vector<T>& v) { return {v.data(), shape}; }

  template <class Backend>
  void forward(const Backend& on) {
    linear_scan(on, view(gate), view(input), view(state));
  }
  template <class Backend>
  void backward(const Backend& on) {
    linear_scan_vjp(on, view(gate), view(state), view(grad),
                    {.gate_grad = view(gate_grad), .input_grad = view(input_grad)});
    const sequence_view<T> decay(decay_grad.data(), shape, strides{0, 0, 1, 0});
    const sequence_view<T> shared(by_step.data(), shape, strides{0, 1, 0, 0});
    linear_scan_vjp(on, view(gate), view(state), view(grad),
                    {.gate_grad = decay, .input_grad = shared});
  }
  bool operator==(const arrays& o) const {
    const auto same = [](const std::vector<T>& x, const std::vector<T>& y) {
      return std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
    };
    return same(state, o.state) && same(gate_grad, o.gate_grad) && same(input_grad, o.input_grad) &&
           same(decay_grad, o.decay_grad) && same(by_step, o.by_step);
  }
};

/// Runs the adjoint of f-pooling with recomputed states, which `lanes` stores in the workspace.
void recompute_states(const cuda::lanes& on) {
  const extents shape{.batch = 1, .time = 100, .channel = 3}, packed_shape{1, 100, 6};
  std::vector<float> pre(600, 0.5f), grad(600), output_grad(300, 1.0f);
  gated_scan_vjp(on, f_pooling<>{}, packed<f_pooling<>>(sequence_view(pre.data(), packed_shape)),
                 scanrec::memory::recompute<float>{}, sequence_view(output_grad.data(), shape),
                 {.arrays = packed<f_pooling<>>(sequence_view(grad.data(), packed_shape))});
}

/// Memory aligned to 16 bytes, as workspaces must be.
using memory = std::vector<double>;
cuda::look_back on(stream& s, memory& m, cuda::workspace_content content) {
  return {.stream = &s,
          .workspace = {m.data(), static_cast<std::int64_t>(m.size() * sizeof(double)), content},
          .segment_steps = 1};
}

TEST_CASE("bits do not depend on when blocks run", "[determinism][cuda_look_back][forward][vjp]") {
  const auto check = []<class T>(T, const extents& shape,
                                 std::initializer_list<int> resident_blocks) {
    arrays<T> wanted(shape);
    memory room(1 << 18);
    stream s;
    const auto run = [&](arrays<T>& a) {
      a.forward(on(s, room, cuda::workspace_content::unknown));
      a.backward(on(s, room, cuda::workspace_content::unknown));
    };
    run(wanted);
    for (std::uint64_t seed = 1; seed <= 2; ++seed)
      for (const favour first : {favour::any, favour::oldest, favour::newest})
        for (const int resident : resident_blocks) {
          const scheduled as({.seed = seed, .resident_blocks = resident, .first = first});
          arrays<T> got(wanted.shape);
          run(got);
          INFO("seed " << seed << ", " << resident << " blocks");
          CHECK((got == wanted));
        }
  };
  check(float{}, {.batch = 2, .time = 1500, .channel = 3}, {1, 2, 9});
  check(std::uint32_t{}, {.batch = 2, .time = 1500, .channel = 3}, {1, 2, 9});
  // Maps of doubles are doubles, too, so no rounding of states hides the order in which maps were
  // composed. There are 128 tiles in 4 spans (tiles_before.cuh).
  check(double{}, {.batch = 1, .time = 4096, .channel = 3}, {9, 128});
}

TEST_CASE("bits of an operator with products do not depend on when blocks run",
          "[determinism][operator][cuda_look_back]") {
  const extents shape{.batch = 1, .time = 128 * 32 * 4, .channel = 1};
  std::vector<mean_of> in(static_cast<std::size_t>(shape.time)), wanted(in.size()), got(in.size());
  std::uint32_t seed = 7;
  for (mean_of& x : in) {
    seed = seed * 1664525u + 1013904223u;
    x = {1 + static_cast<double>(seed >> 8) / (1 << 24), static_cast<double>(seed % 4096) - 2048};
  }
  const auto view = [&](std::vector<mean_of>& v) {
    return sequence_view<mean_of>(v.data(), shape);
  };
  memory room(1 << 16);
  stream s;
  const auto backend = on(s, room, cuda::workspace_content::unknown);
  inclusive_scan(backend, merge_means{}, view(in), view(wanted));
  for (const int resident : {1, 9, 128})
    for (const favour first : {favour::any, favour::newest}) {
      const scheduled as({.seed = 3, .resident_blocks = resident, .first = first});
      inclusive_scan(backend, merge_means{}, view(in), view(got));
      INFO(resident << " blocks");
      CHECK(std::memcmp(got.data(), wanted.data(), in.size() * sizeof(mean_of)) == 0);
    }
}

TEST_CASE("bits do not depend on when blocks run, even if maps of tiles overflow",
          "[determinism][overflow][cuda_look_back][forward]") {
  // Maps overflow within their tiles. States are 0 up to step 880; step 1100 adds an infinity.
  arrays<float> wanted({.batch = 1, .time = 1500, .channel = 2});
  for (std::size_t i = 0; i < wanted.gate.size(); ++i) {
    const std::size_t t = i / 2;
    wanted.gate[i] = t < 900 ? 1e30f : 0.5f;
    wanted.input[i] = t < 880 ? 0.0f : 1.0f;
    if (t == 1100 && i % 2 == 0) wanted.input[i] = std::numeric_limits<float>::infinity();
  }
  arrays<float> loop = wanted;
  loop.forward(sequential{});
  memory room(1 << 16);
  stream s;
  wanted.forward(on(s, room, cuda::workspace_content::unknown));
  for (std::size_t i = 0; i < loop.state.size(); ++i)
    if (!std::isfinite(loop.state[i]) || loop.state[i] == 0)
      CHECK((loop.state[i] == wanted.state[i] ||
             (std::isnan(loop.state[i]) && std::isnan(wanted.state[i]))));
  for (const favour first : {favour::any, favour::newest})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const scheduled as({.seed = seed, .resident_blocks = 4, .first = first});
      arrays<float> got = wanted;
      got.forward(on(s, room, cuda::workspace_content::unknown));
      CHECK((got == wanted));
    }
}

TEST_CASE("bits do not depend on when blocks run, even if states overflow",
          "[determinism][overflow][cuda_look_back][forward]") {
  // The states of channels 0 and 1 grow to 2^255, beyond floats but not beyond doubles. Then gates
  // halve channel 0 and multiply channel 1 by zero. Channel 2 has gates of 1 throughout. Tiles end
  // while the loop is at infinity.
  arrays<float> wanted({.batch = 1, .time = 1500, .channel = 3});
  for (std::size_t i = 0; i < wanted.gate.size(); ++i) {
    const std::size_t t = i / 3;
    const float back = i % 3 == 0 ? 0.5f : 0.0f;
    wanted.gate[i] = i % 3 == 2 || t >= 512 ? 1.0f : t < 256 ? 2.0f : back;
    wanted.input[i] = t == 0 ? 1.0f : 0.0f;
  }
  arrays<float> loop = wanted;
  loop.forward(sequential{});
  memory room(1 << 16);
  stream s;
  wanted.forward(on(s, room, cuda::workspace_content::unknown));
  for (std::size_t i = 0; i < loop.state.size(); ++i) {
    INFO("element " << i);
    CHECK((loop.state[i] == wanted.state[i] ||
           (std::isnan(loop.state[i]) && std::isnan(wanted.state[i]))));
  }
  for (const favour first : {favour::any, favour::oldest, favour::newest})
    for (std::uint64_t seed = 1; seed <= 5; ++seed)
      for (const int resident : {1, 4, 9}) {
        const scheduled as({.seed = seed, .resident_blocks = resident, .first = first});
        arrays<float> got = wanted;
        got.forward(on(s, room, cuda::workspace_content::unknown));
        CHECK((got == wanted));
      }
}

TEST_CASE("a kept workspace serves successive calls of different problems",
          "[workspace][cuda_look_back]") {
  memory room(1 << 18, 0.0);  // zeros, once
  stream s;
  for (int round = 0; round < 3; ++round) {
    arrays<float> floats({.batch = 2, .time = 700 + 100 * round, .channel = 3});
    arrays<std::uint32_t> words({.batch = 1, .time = 900 - 200 * round, .channel = 5});
    const auto run = [&](auto used) {
      auto fresh = used;
      used.forward(on(s, room, cuda::workspace_content::kept));
      used.backward(on(s, room, cuda::workspace_content::kept));
      memory zeros(1 << 18, 0.0);
      fresh.forward(on(s, zeros, cuda::workspace_content::unknown));
      fresh.backward(on(s, zeros, cuda::workspace_content::unknown));
      CHECK((used == fresh));
    };
    run(words), run(floats), run(words);
  }
}

TEST_CASE("messages of different calls are never confused, even if the call counter wraps",
          "[workspace][cuda_look_back]") {
  constexpr std::uint64_t half = std::uint64_t{1} << 31, all = 2 * half;
  const auto header = [](const memory& room) {
    cuda::detail::workspace_header h;
    std::memcpy(&h, room.data(), sizeof h);
    return h;
  };
  const auto set = [](memory& room, std::uint64_t calls, std::uint64_t halves) {
    const cuda::detail::workspace_header h{calls * all, halves};
    std::memcpy(room.data(), &h, sizeof h);
  };
  const extents shape{.batch = 2, .time = 1500, .channel = 3};
  stream s;
  for (const std::uint64_t before : {half - 2, all - 2}) {
    memory room(1 << 18);
    set(room, before, before / half);
    for (std::uint64_t made = 1; made <= 4; ++made) {
      const scheduled as({.seed = made, .resident_blocks = 9, .first = favour::newest});
      arrays<float> wanted(shape), got(shape);
      for (float& u : got.input) u *= static_cast<float>(made);
      wanted.input = got.input;
      memory zeros(1 << 18);
      wanted.forward(on(s, zeros, cuda::workspace_content::unknown));
      got.forward(on(s, room, cuda::workspace_content::kept));
      CHECK((got == wanted));
      CHECK(header(room).drawn == (before + made) % all * all);
      CHECK(header(room).halves == (before + made) / half);
    }
  }
  // Messages of a call are not taken for those of the call 2^32 calls later.
  memory room(1 << 18);
  set(room, 5, 0);
  arrays<float> left(shape), wanted(shape);
  left.forward(on(s, room, cuda::workspace_content::kept));
  for (float& u : wanted.input) u = -u;
  arrays<float> got = wanted;
  memory zeros(1 << 18);
  wanted.forward(on(s, zeros, cuda::workspace_content::unknown));
  set(room, 5, 2);
  const scheduled as({.seed = 1, .resident_blocks = 9, .first = favour::newest});
  got.forward(on(s, room, cuda::workspace_content::kept));
  CHECK((got == wanted));
}

TEST_CASE("a call on a kept workspace queues one kernel and no memset",
          "[workspace][cuda_look_back]") {
  arrays<float> a({.batch = 1, .time = 1024, .channel = 64});
  memory room(1 << 20, 0.0);
  stream kept, unknown;
  a.forward(on(kept, room, cuda::workspace_content::kept));
  CHECK(kept.launches == 1);
  CHECK(kept.clears == 0);
  a.forward(on(unknown, room, cuda::workspace_content::unknown));
  CHECK(unknown.launches == 1);
  CHECK(unknown.clears == 1);
}

TEST_CASE("a workspace that is too small, null or misaligned is rejected before any write",
          "[workspace][cuda_look_back][cuda_lanes]") {
  arrays<float> a({.batch = 1, .time = 1024, .channel = 4});
  const auto untouched = a.state;
  stream s;
  const auto problem = linear_scan_problem(a.view(a.gate), a.view(a.input), a.view(a.state));
  cuda::look_back backend{.stream = &s};
  const std::int64_t needed = workspace_bytes(backend, problem);
  const auto refused = [&](const cuda::workspace& w, const std::string& got) {
    backend.workspace = w;
    try {
      a.forward(backend);
      FAIL("nothing thrown");
    } catch (const argument_error& e) {
      CHECK(e.argument() == "workspace");
      CHECK(e.expected() == "at least " + std::to_string(needed) +
                                " bytes of device memory, the value of workspace_bytes()");
      CHECK(e.got() == got);
    }
  };
  memory room(1 << 16);
  refused({}, "a null pointer");
  refused({room.data(), needed - 1}, std::to_string(needed - 1) + " bytes");
  refused({reinterpret_cast<char*>(room.data()) + 4, needed},
          "memory that is not aligned to 16 bytes");
  CHECK((a.state == untouched));
  CHECK(s.launches + s.clears == 0);
  // For linear scans, lanes needs a workspace only if gradients are sums.
  CHECK(workspace_bytes(cuda::lanes{.stream = &s}, problem) == 0);
}

/// An element of several numbers. add_all adds them one by one, modulo 2^32.
template <std::size_t Count>
struct numbers {
  std::array<std::uint32_t, Count> at;
  bool operator==(const numbers&) const = default;
};
struct add_all {
  template <std::size_t Count>
  numbers<Count> operator()(numbers<Count> earlier, const numbers<Count>& later) const {
    for (std::size_t i = 0; i < Count; ++i) earlier.at[i] += later.at[i];
    return earlier;
  }
};

TEST_CASE("elements too large for shared memory are rejected before anything is queued",
          "[operator][cuda_lanes][cuda_look_back]") {
  using path = cuda::launch_plan::path;
  const auto check = []<std::size_t Count>(numbers<Count>, path chosen, bool fits_an_h100) {
    INFO("elements of " << sizeof(numbers<Count>) << " bytes");
    const extents shape{.batch = 1, .time = 300, .channel = 1};
    std::vector<numbers<Count>> in(300), wanted(300), got(300);
    for (std::size_t t = 0; t < in.size(); ++t)
      for (std::size_t i = 0; i < Count; ++i) in[t].at[i] = static_cast<std::uint32_t>(7 * t + i);
    const auto view = [&](auto& v) { return sequence_view<numbers<Count>>(v.data(), shape); };
    inclusive_scan(sequential{}, add_all{}, view(in), view(wanted));
    memory room(1 << 16);
    stream s;
    const auto look_back = on(s, room, cuda::workspace_content::unknown);
    if (fits_an_h100) {
      inclusive_scan(look_back, add_all{}, view(in), view(got));
      CHECK((got == wanted));
    } else {
      std::string said;
      try {
        inclusive_scan(look_back, add_all{}, view(in), view(got));
      } catch (const cuda::error& e) {
        said = e.what();
      }
      CHECK(said.find("bytes of shared memory per block") != std::string::npos);
      CHECK(s.launches + s.clears == 0);
    }
    got.assign(got.size(), {});
    const cuda::automatic automatic{.stream = &s, .workspace = look_back.workspace};
    const auto posed = inclusive_scan_problem(add_all{}, view(in), view(got));
    CHECK((describe(automatic, posed).chosen == chosen));
    inclusive_scan(automatic, add_all{}, view(in), view(got));
    CHECK((got == wanted));
  };
  check(numbers<44>{}, path::look_back, true);
  check(numbers<45>{}, path::lanes, true);
  check(numbers<104>{}, path::lanes, true);
  check(numbers<108>{}, path::lanes, false);
}

TEST_CASE("the choice of automatic depends only on the problem", "[cuda_lanes][cuda_look_back]") {
  using path = cuda::launch_plan::path;
  const auto chosen = [](const extents& s) {
    const sequence_view<float> any(reinterpret_cast<float*>(64), s);
    const sequence_view<float> other(reinterpret_cast<float*>(std::intptr_t{1} << 44), s);
    const cuda::automatic on{.stream = nullptr};
    return describe(on, linear_scan_problem(any, any, other)).chosen == path::lanes;
  };
  CHECK(chosen({.batch = 32, .time = 4096, .channel = 1024}));
  CHECK(chosen({.batch = 12, .time = 4096, .channel = 1024}));
  CHECK_FALSE(chosen({.batch = 11, .time = 4096, .channel = 1024}));
  CHECK_FALSE(chosen({.batch = 1, .time = 1 << 21, .channel = 256}));
  CHECK_FALSE(chosen({.batch = 1, .time = 1 << 28, .channel = 1}));
  CHECK(chosen({.batch = 1, .time = 1, .channel = 64}));

  arrays<float> wanted({.batch = 1, .time = 5000, .channel = 3}), got = wanted;
  memory room(1 << 18);
  stream s;
  const cuda::workspace all{room.data(), static_cast<std::int64_t>(room.size() * sizeof(double))};
  wanted.forward(cuda::look_back{.stream = &s, .workspace = all});
  got.forward(cuda::automatic{.stream = &s, .workspace = all});
  CHECK((got == wanted));
  wanted.shape.time = got.shape.time = 20;
  wanted.forward(cuda::lanes{.stream = &s});
  got.forward(cuda::automatic{.stream = &s, .workspace = all});
  CHECK((got == wanted));
}

}  // namespace

TEST_CASE("long sums on GPUs are exact, because partial sums are added in the wide type",
          "[cuda_lanes][cuda_look_back][vjp][broadcast]") {
  // As in sums_test.cpp. A chain of float additions is exact up to a sum of about 256. Beyond that
  // it loses the last bit of every term.
  const extents shape{.batch = 1, .time = 1 << 14, .channel = 2};
  const strides per_channel{0, 0, 1, 0};
  const float term = 1 + 0x1p-16f, zero = 0;
  std::vector<float> ones(1 << 15, 1), grad(1 << 15, term), first(2, 1);
  stream s;
  std::vector<double> room(1 << 16);
  const cuda::workspace all{room.data(), static_cast<std::int64_t>(room.size() * sizeof(double))};
  const auto check = [&](const auto& backend) {
    std::vector<float> gate_sum(2), input_sum(2);
    linear_scan_vjp(backend, sequence_view<const float>(&zero, shape, strides{0, 0, 0, 0}),
                    sequence_view(ones.data(), shape), sequence_view(grad.data(), shape),
                    {.gate_grad = sequence_view<float>(gate_sum.data(), shape, per_channel),
                     .input_grad = sequence_view<float>(input_sum.data(), shape, per_channel)},
                    {.initial_state = state_view(first.data(), shape)});
    for (const auto* sums : {&gate_sum, &input_sum})
      for (const float sum : *sums) CHECK(sum == static_cast<float>(shape.time) * term);
  };
  for (const int ahead : {-1, 4})
    check(cuda::lanes{.stream = &s, .workspace = all, .steps_ahead = ahead});
  check(cuda::look_back{.stream = &s, .workspace = all});
}

TEST_CASE("time-contiguous tiles pass through shared memory exactly",
          "[cuda_look_back][forward][vjp][layout]") {
  // With gates of 0 and 1 and small inputs, every state is exact in every type and every order.
  const auto check_shape = []<class T>(T, const extents& shape) {
    INFO("T " << shape.time << ", C " << shape.channel);
    const auto n = static_cast<std::size_t>(shape.time * shape.channel);
    std::vector<T> gate(n), input(n), grad(n);
    std::uint32_t seed = 3;
    const auto next = [&] { return (seed = seed * 1664525u + 1013904223u) >> 24; };
    const auto number = [](std::uint32_t x) { return static_cast<T>(static_cast<float>(x)); };
    for (std::size_t i = 0; i < n; ++i) {
      gate[i] = number(next() % 8 == 0 ? 0 : 1);
      input[i] = number(next() % 2), grad[i] = number(next() % 2);
    }
    const auto view = [&](std::vector<T>& v) {
      return sequence_view<T>(v.data(), shape, time_contiguous(shape));
    };
    std::vector<double> room(1 << 18);
    stream s;
    const cuda::look_back on{
        .stream = &s,
        .workspace = {room.data(), static_cast<std::int64_t>(room.size() * sizeof(double))}};
    for (const direction order : {direction::forward, direction::reverse}) {
      std::vector<T> x(n), da(n), du(n), wanted_x(n), wanted_da(n), wanted_du(n);
      linear_scan(sequential{}, view(gate), view(input), view(wanted_x), {.order = order});
      linear_scan_vjp(sequential{}, view(gate), view(wanted_x), view(grad),
                      {.gate_grad = view(wanted_da), .input_grad = view(wanted_du)},
                      {.order = order});
      linear_scan(on, view(gate), view(input), view(x), {.order = order});
      CHECK(std::memcmp(x.data(), wanted_x.data(), n * sizeof(T)) == 0);
      linear_scan_vjp(on, view(gate), view(wanted_x), view(grad),
                      {.gate_grad = view(da), .input_grad = view(du)}, {.order = order});
      CHECK(std::memcmp(da.data(), wanted_da.data(), n * sizeof(T)) == 0);
      CHECK(std::memcmp(du.data(), wanted_du.data(), n * sizeof(T)) == 0);
    }
  };
  // Whole tiles of one sequence, and sequences that share a tile, with more and fewer steps than a
  // block has threads.
  const auto check = [&]<class T>(T x) {
    check_shape(x, {.batch = 1, .time = 9000, .channel = 2});
    check_shape(x, {.batch = 1, .time = 1000, .channel = 7});
    check_shape(x, {.batch = 1, .time = 512, .channel = 9});
    check_shape(x, {.batch = 1, .time = 300, .channel = 17});
    check_shape(x, {.batch = 1, .time = 100, .channel = 50});
  };
  check(float{});
  check(double{});
  check(bfloat16{});
  check(std::complex<float>{});
  check(std::uint32_t{});
}

TEST_CASE(
    "a channel that is not finite affects the gradient of a shared gate only at its own steps",
    "[nan][workspace][cuda_look_back][vjp][broadcast]") {
  // Tiles are 16 channels wide, so all 11 channels share one. In batch row 0, the gradients of
  // channel 5 are not finite at step 700 and earlier steps.
  const extents shape{.batch = 2, .time = 1500, .channel = 11};
  const strides by_step{1500, 1, 0, 0};
  arrays<float> a(shape);
  std::vector<float> shared(3000), want(3000), got(3000);
  for (std::size_t i = 0; i < shared.size(); ++i) shared[i] = a.gate[i];
  a.grad[700 * 11 + 5] = std::numeric_limits<float>::infinity();
  stream s;
  const auto run = [&](auto backend, std::vector<float>& sums) {
    const sequence_view<const float> gate(shared.data(), shape, by_step);
    const scan_gradients<float> gradients{
        .gate_grad = sequence_view<float>(sums.data(), shape, by_step),
        .input_grad = a.view(a.input_grad)};
    const auto posed = linear_scan_vjp_problem(gate, a.view(a.input), a.view(a.grad), gradients);
    const auto plan = describe(backend, posed);
    std::vector<double> room(static_cast<std::size_t>(plan.workspace_bytes / 8 + 1));
    backend.workspace = {room.data(), plan.workspace_bytes};
    s.launches = 0;
    linear_scan_vjp(backend, gate, a.view(a.input), a.view(a.grad), gradients);
    CHECK(s.launches == plan.kernels);
    CHECK(plan.kernels == 2);
    return plan;
  };
  run(cuda::lanes{.stream = &s}, want);
  for (const int steps : {0, 1}) {
    CHECK(run(cuda::look_back{.stream = &s, .segment_steps = steps}, got).tile_channels == 16);
    std::size_t nonfinite = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      INFO("step " << i);
      if (std::isfinite(want[i]))
        CHECK(std::abs(got[i] - want[i]) <= 1e-4f * (1 + std::abs(want[i])));
      else
        CHECK_FALSE(std::isfinite(got[i]));
      nonfinite += std::isfinite(want[i]) ? 0 : 1;
    }
    CHECK(nonfinite > 0);
    CHECK(nonfinite < 1500);
  }
}

TEST_CASE("sums are formed by column if their terms fit in shared memory",
          "[workspace][cuda_look_back][broadcast]") {
  // A problem with one input and gradients summed over channels. States are numbers (dimension 1),
  // or vectors whose gates are matrices.
  const auto plan = [](std::int64_t number, std::int64_t dimension, int sums) {
    problem p;
    p.shape = {.batch = 1, .time = 5000, .channel = 64};
    p.count = 1 + sums;
    p.step_bytes = number * dimension * (dimension + 1);
    p.carry_bytes = number * dimension;
    p.carry_map_bytes = number * dimension * (dimension + 1);
    for (int i = 0; i < p.count; ++i) {
      array_use& array = p.arrays[static_cast<std::size_t>(i)];
      array.data = reinterpret_cast<const std::byte*>(std::intptr_t{i + 1} << 20);
      array.shape = p.shape;
      array.strides = i == 0 ? channels_last(p.shape) : strides{0, 1, 0, 0};
      array.element_bytes = 2 * dimension, array.wide_bytes = number * dimension * dimension;
      array.use = i == 0 ? access::read : access::accumulate;
      array.given = true;
    }
    return cuda::detail::look_back_plan(p, 0);
  };
  for (const int sums : {1, 3}) {
    const auto of_numbers = plan(8, 1, sums);
    CHECK(of_numbers.sums_by_column);
    CHECK_FALSE(of_numbers.sums_by_step);
    CHECK(of_numbers.terms_bytes() + 4 * 128 * 16 < cuda::detail::most_shared_bytes);
  }
  for (const std::int64_t dimension : {4, 5}) {
    const auto of_vectors = plan(8, dimension, 2);
    CHECK_FALSE(of_vectors.sums_by_column);
    CHECK(of_vectors.sums_by_step);
    CHECK(of_vectors.terms_bytes() == 0);
    CHECK(of_vectors.partition.width == 1);
  }
}

TEST_CASE("a plan matches what a call queues", "[workspace][cuda_lanes][cuda_look_back][vjp]") {
  stream s;
  const extents rows{.batch = 4, .time = 5000, .channel = 3};
  const auto check = [&](const scanrec::strides& strides, cuda::launch_plan::path chosen) {
    arrays<float> a(rows);
    const sequence_view<float> x(a.state.data(), rows, strides);
    const sequence_view<float> decay(a.decay_grad.data(), rows, scanrec::strides{0, 0, 1, 0});
    const scan_gradients<float> gradients{.gate_grad = decay};
    const auto posed = linear_scan_vjp_problem(x, x, x, gradients);
    cuda::automatic backend{.stream = &s};
    const cuda::launch_plan plan = describe(backend, posed);
    CHECK((plan.chosen == chosen));
    CHECK(plan.workspace_bytes == workspace_bytes(backend, posed));
    CHECK(plan.blocks > 0);
    std::vector<double> room(static_cast<std::size_t>(plan.workspace_bytes / 8 + 1));
    backend.workspace = {room.data(), plan.workspace_bytes};
    s.launches = 0;
    linear_scan_vjp(backend, x, x, x, gradients);
    CHECK(s.launches == plan.kernels);
    return plan;
  };
  // Four rows of three channels: contiguous channels share a tile; along time each channel has
  // separate tiles.
  CHECK(check(channels_last(rows), cuda::launch_plan::path::look_back).tile_channels == 4);
  const cuda::launch_plan along = check(time_contiguous(rows), cuda::launch_plan::path::look_back);
  CHECK(along.tile_channels == 1);
  CHECK(along.tiles == (rows.time + along.tile_steps - 1) / along.tile_steps);
  CHECK(to_string(along).find("look_back") != std::string::npos);
  // Short time-contiguous sequences share tiles, too.
  const auto forward = [&s](const extents& shape, const scanrec::strides& strides) {
    static std::vector<float> input(2000000), state(input.size());
    const float gate = 1;
    const auto posed = linear_scan_problem(
        sequence_view(&gate, shape, scanrec::strides{0, 0, 0, 0}),
        sequence_view(input.data(), shape, strides), sequence_view(state.data(), shape, strides));
    return describe(cuda::automatic{.stream = &s}, posed);
  };
  const extents brief{.batch = 1, .time = 70, .channel = 100};
  const cuda::launch_plan together = forward(brief, time_contiguous(brief));
  CHECK((together.chosen == cuda::launch_plan::path::look_back));
  CHECK(together.tile_channels == 32);
  // If there are enough sequences to fill a GPU, they are not split when channels are contiguous.
  // When time is contiguous, they still use look_back.
  const extents many{.batch = 1, .time = 100, .channel = 20000};
  CHECK((forward(many, channels_last(many)).chosen == cuda::launch_plan::path::lanes));
  CHECK((forward(many, time_contiguous(many)).chosen == cuda::launch_plan::path::look_back));
}

TEST_CASE("every backend but look_back leaves a kept workspace as it was",
          "[workspace][cuda_lanes][cuda_hillis_steele][cuda_blelloch][cuda_triangular_matmul]"
          "[vjp]") {
  // The header counts the calls of look_back. The bytes after it are zero again, so any call may
  // follow.
  stream s;
  std::vector<double> room(1 << 18);
  room[0] = 5, room[1] = 6;
  const std::vector<double> before = room;
  const cuda::workspace kept{room.data(), static_cast<std::int64_t>(room.size() * sizeof(double)),
                             cuda::workspace_content::kept};
  const auto check = [&](const auto& backend) {
    arrays<float> used({.batch = 2, .time = 700, .channel = 3});
    used.forward(backend), used.backward(backend);
    CHECK((room == before));
  };
  check(cuda::lanes{.stream = &s, .workspace = kept});
  check(cuda::hillis_steele{.stream = &s, .workspace = kept});
  check(cuda::blelloch{.stream = &s, .workspace = kept});
  check(cuda::triangular_matmul<>{.stream = &s, .workspace = kept});
  recompute_states(cuda::lanes{.stream = &s, .workspace = kept});
  CHECK((room == before));
}

TEST_CASE("a small call of another backend on a kept workspace does not revive old messages",
          "[workspace][cuda_look_back][cuda_lanes][cuda_hillis_steele][cuda_blelloch]"
          "[cuda_triangular_matmul]") {
  const extents shape{.batch = 2, .time = 5000, .channel = 3};
  stream s;
  const auto check = [&](auto other) {
    std::vector<double> room(1 << 18), zeros(1 << 18);
    arrays<float> first(shape), got(shape), between({.batch = 1, .time = 3, .channel = 2});
    for (float& u : got.input) u = -u;
    arrays<float> wanted = got;
    wanted.forward(on(s, zeros, cuda::workspace_content::unknown));
    other.workspace = {room.data(), static_cast<std::int64_t>(room.size() * sizeof(double)),
                       cuda::workspace_content::kept};
    first.forward(on(s, room, cuda::workspace_content::kept));
    between.forward(other), between.backward(other);
    const scheduled as({.seed = 1, .resident_blocks = 9, .first = favour::newest});
    got.forward(on(s, room, cuda::workspace_content::kept));
    CHECK((got == wanted));
  };
  check(cuda::lanes{.stream = &s});
  check(cuda::hillis_steele{.stream = &s});
  check(cuda::blelloch{.stream = &s});
  check(cuda::triangular_matmul<>{.stream = &s});
}

TEST_CASE("a scan of no channels needs no workspace", "[empty][workspace]") {
  stream s;
  for (const std::int64_t steps : {300, 20000}) {
    const extents shape{.batch = 2, .time = steps, .channel = 0};
    float nothing = 0;
    const sequence_view<float> x(&nothing, shape);
    const problem p = linear_scan_problem(x, x, x);
    CHECK(workspace_bytes(cuda::lanes{.stream = &s}, p) == 0);
    CHECK(workspace_bytes(cuda::hillis_steele{.stream = &s}, p) == 0);
    CHECK(workspace_bytes(cuda::blelloch{.stream = &s}, p) == 0);
    CHECK(workspace_bytes(cuda::triangular_matmul<>{.stream = &s}, p) == 0);
  }
}

TEST_CASE("a gradient summed over an empty batch or channel axis is zero",
          "[empty][cuda_lanes][cuda_look_back][cuda_hillis_steele][cuda_blelloch]"
          "[cuda_triangular_matmul][vjp][broadcast]") {
  const auto check = [](auto backend) {
    stream s;
    backend.stream = &s;
    for (const bool no_channel : {false, true}) {
      const extents shape{.batch = no_channel ? 2 : 0, .time = 300, .channel = no_channel ? 0 : 3};
      float nothing = 0;
      const sequence_view<float> none_there(&nothing, shape);
      std::vector<float> sums(300, 7.0f);
      const scan_gradients<float> gradients{
          .gate_grad = sequence_view<float>(sums.data(), shape, strides{0, 1, 0, 0})};
      std::vector<double> room(static_cast<std::size_t>(
          workspace_bytes(backend,
                          linear_scan_vjp_problem(none_there, none_there, none_there, gradients)) /
              8 +
          1));
      backend.workspace = {room.data(), static_cast<std::int64_t>(room.size() * 8)};
      linear_scan_vjp(backend, none_there, none_there, none_there, gradients);
      CHECK((sums == std::vector<float>(300, 0.0f)));
    }
  };
  check(cuda::lanes{.stream = nullptr});
  check(cuda::look_back{.stream = nullptr});
  check(cuda::hillis_steele{.stream = nullptr});
  check(cuda::blelloch{.stream = nullptr});
  check(cuda::triangular_matmul<>{.stream = nullptr});
}
