// SPDX-License-Identifier: BSD-3-Clause
// Tests of messages between blocks under adversarial schedules: more spans (groups of tiles, see
// tiles_before.cuh) in flight than a tile reads, messages that arrive word by word, and sums that
// become visible only after a fence.
//
// In most tests, gates are 0 or have magnitude 1, and inputs are small integers. Results are then
// exact in any order of operations. In all tests they must equal those of `sequential`. A map is
// moderate if it is far from overflow (affine_carries.hpp).
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include <scanrec/cuda/scan.cuh>

#include "catch.hpp"
#include "emulator.hpp"

namespace {

using namespace scanrec;
using cuda_on_host::favour;
using cuda_on_host::schedule;
using cuda_on_host::scheduled;
using cuda_on_host::stream;
using cuda_on_host::weakly_ordered;

/// Schedules with many and with few concurrent blocks, words that arrive late one by one, and
/// threads that poll early.
const std::vector<schedule>& schedules() {
  static const std::vector<schedule> all{
      {.seed = 1, .resident_blocks = 300, .first = favour::newest},
      {.seed = 2,
       .resident_blocks = 300,
       .first = favour::newest,
       .turns_per_word = 40,
       .turns_per_poll = 8},
      {.seed = 3, .resident_blocks = 300, .turns_per_word = 40, .turns_per_poll = 8},
      {.seed = 4, .resident_blocks = 4, .turns_per_word = 40, .turns_per_poll = 8},
      {.seed = 5,
       .resident_blocks = 7,
       .first = favour::newest,
       .turns_per_word = 40,
       .turns_per_poll = 3}};
  return all;
}

/// A workspace, zeroed once and aligned to 16 bytes, as workspaces must be.
using memory = std::vector<double>;
cuda::workspace kept(memory& m) {
  return {m.data(), static_cast<std::int64_t>(m.size() * sizeof(double)),
          cuda::workspace_content::kept};
}

template <class T>
struct arrays {
  extents shape;
  scanrec::strides strides;
  std::vector<T> gate, input, state, grad, input_grad;
  std::vector<char> with_resets;
  bool resets = false;

  explicit arrays(const extents& s, const scanrec::strides& apart, std::uint32_t seed = 5)
      : shape(s), strides(apart) {
    const auto n = static_cast<std::size_t>(s.batch * s.time * s.channel);
    const auto next = [&] { return (seed = seed * 1664525u + 1013904223u) >> 16; };
    for (auto* all : {&gate, &input, &state, &grad, &input_grad}) all->resize(n);
    for (T& a : gate) a = next() % 64 == 0 ? T(0) : unit(next() / 16);
    for (auto* all : {&input, &grad})
      for (T& u : *all) u = next() / 16 % 3 == 0 ? T(0) : unit(next() / 16);
    with_resets.resize(n);
    for (std::size_t i = 0; i < n; ++i) with_resets[i] = next() % 100 == 0;
  }
  static T unit(std::uint32_t i) {
    if constexpr (std::is_same_v<T, std::complex<float>>)
      return i % 4 == 0 ? T(1) : i % 4 == 1 ? T(-1) : i % 4 == 2 ? T(0, 1) : T(0, -1);
    else
      return T(i % 2 == 0 ? 1.0f : -1.0f);
  }
  sequence_view<T> view(std::vector<T>& v) { return {v.data(), shape, strides}; }

  [[nodiscard]] scan_options<compute_t<T>> options() const {
    scan_options<compute_t<T>> chosen;
    if (resets) chosen.resets = {reinterpret_cast<const bool*>(with_resets.data()), shape, strides};
    return chosen;
  }
  template <class Backend>
  void forward(const Backend& on) {
    linear_scan(on, view(gate), view(input), view(state), options());
  }
  problem forward_problem() {
    return linear_scan_problem(view(gate), view(input), view(state), options());
  }
};

/// Whether all numbers are equal. Zeros of either sign are equal, and so are NaNs.
template <class T>
bool same(const std::vector<T>& x, const std::vector<T>& y) {
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const T& a, const T& b) {
    const auto p = static_cast<compute_t<T>>(a), q = static_cast<compute_t<T>>(b);
    return p == q || (p != p && q != q);
  });
}

/// Compares a scan with `sequential` on all schedules. Calls share one workspace, which is not
/// cleared between them. `extremes` replace some inputs, and resets are then set, too.
template <class T>
void check_forward(const extents& shape, const strides& apart, int segment_steps,
                   std::int64_t tiles, const std::vector<T>& extremes = {}) {
  stream s;
  memory room;
  for (const schedule& with : schedules()) {
    arrays<T> wanted(shape, apart, static_cast<std::uint32_t>(with.seed));
    wanted.resets = !extremes.empty();
    for (std::size_t i = 0; i < extremes.size(); ++i)
      wanted.input[(2 * i + 1) * wanted.input.size() / (2 * extremes.size())] = extremes[i];
    arrays<T> got = wanted;
    wanted.forward(sequential{});
    const cuda::detail::look_back_plan plan(got.forward_problem(), segment_steps);
    CHECK(plan.partition.tiles == tiles);
    room.resize(static_cast<std::size_t>(plan.workspace_bytes / 8));
    const cuda::look_back on{.stream = &s, .workspace = kept(room), .segment_steps = segment_steps};
    const weakly_ordered header(room.data(), sizeof(cuda::detail::workspace_header));
    const scheduled as(with);
    got.forward(on);
    INFO("seed " << with.seed);
    CHECK(same(got.state, wanted.state));
  }
}

TEST_CASE("states are right if all blocks run at once and messages arrive word by word",
          "[determinism][cuda_look_back][forward]") {
  // In bfloat16, spans have 8 tiles, so there are 13 spans. That is more than the 8 segments of a
  // tile, each of which reads one boundary.
  const auto check = []<class T>(T, std::int64_t channels, std::int64_t tile_steps,
                                 std::int64_t tiles) {
    const extents shape{.batch = 1, .time = tile_steps * tiles - 3, .channel = channels};
    check_forward<T>(shape, channels_last(shape), 1, tiles);
  };
  check(bfloat16{}, 16, 8, 100);
  check(float{}, 7, 16, 60);
  check(float{}, 1, 128, 70);
  check(std::complex<float>{}, 4, 32, 40);  // messages of two and of four words
}

TEST_CASE("finite states that are not moderate equal those of `sequential`",
          "[determinism][overflow][cuda_look_back][forward]") {
  // 2^100 absorbs all small inputs, in the loop as in every composition, until a gate is zero.
  const auto check = [](std::int64_t channels, std::int64_t tile_steps, std::int64_t tiles) {
    const extents shape{.batch = 1, .time = tile_steps * tiles - 3, .channel = channels};
    check_forward<float>(shape, channels_last(shape), 1, tiles, {0x1p100f, 0x1p100f, 0x1p100f});
  };
  check(8, 16, 40);
  check(1, 128, 40);
}

/// Runs eight channels whose gates are powers of two. Tile k multiplies the state of channel c by
/// 2^exponent(c, k), spread over its steps. The loop may overflow on the way.
template <class Exponent>
void check_exponents(std::int64_t tiles, Exponent exponent) {
  constexpr std::int64_t tile_steps = 16, channels = 8;
  const extents shape{.batch = 1, .time = tile_steps * tiles, .channel = channels};
  stream s;
  memory room;
  for (const schedule& with : schedules()) {
    arrays<float> wanted(shape, channels_last(shape));
    for (std::size_t i = 0; i < wanted.gate.size(); ++i) {
      const auto t = static_cast<std::int64_t>(i) / channels;
      const int all = exponent(static_cast<int>(i % channels), static_cast<int>(t / tile_steps));
      const int part = all / tile_steps, rest = all % tile_steps, step = t % tile_steps;
      wanted.gate[i] = std::ldexp(1.0f, part + (step < std::abs(rest) ? (rest > 0 ? 1 : -1) : 0));
      wanted.input[i] = t == 0 ? 1 + 0.125f * static_cast<float>(i % channels) : 0.0f;
    }
    arrays<float> got = wanted;
    wanted.forward(sequential{});
    const cuda::detail::look_back_plan plan(got.forward_problem(), 1);
    CHECK(plan.partition.tiles == tiles);
    CHECK(plan.partition.span_tiles() == 16);
    room.resize(static_cast<std::size_t>(plan.workspace_bytes / 8));
    const scheduled as(with);
    got.forward(cuda::look_back{.stream = &s, .workspace = kept(room), .segment_steps = 1});
    INFO("seed " << with.seed);
    CHECK(same(got.state, wanted.state));
  }
}

TEST_CASE("an overflow at the end of a tile is noticed even if later tiles of its span undo it",
          "[determinism][overflow][cuda_look_back][forward]") {
  // The first span raises the state to 2^64 or 2^112. In the second, states exceed the range of
  // floats and come back.
  const auto second_span = [](int start, const std::vector<int>& exponents) {
    check_exponents(40, [&](int, int tile) {
      if (tile < 8) return start / 8;
      return tile >= 16 && tile < 32 ? exponents[static_cast<std::size_t>(tile - 16)] : 0;
    });
  };
  // Every map is moderate, but the product over four warps is not.
  second_span(64, {5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, -20, -40});
  // The state before the span is not moderate.
  second_span(112, {20, 0, 0, -20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  // One map of a warp is not moderate, and it is not the first.
  second_span(64, {0, 70, -70, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  // The first maps of two warps are not moderate.
  second_span(64, {40, 0, 0, 0, 40, 0, 0, -40, 0, 0, 0, -40, 0, 0, 0, 0});
}

TEST_CASE("states equal those of the loop if maps of some channels are not moderate",
          "[determinism][overflow][cuda_look_back][forward]") {
  // States rise by a factor of 2^60 in every seventh tile and fall by it in the next. These tiles
  // differ between neighbouring channels.
  check_exponents(70, [](int channel, int tile) {
    const int position = (tile + 3 * channel) % 7;
    return position == 2 ? 60 : position == 3 ? -60 : 0;
  });
  // Random exponents. States stay between 2^-100 and 2^126.
  std::uint32_t seed = 3;
  std::vector<int> exponents(8 * 70), level(8, 0);
  for (std::size_t i = 0; i < exponents.size(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    const int up = static_cast<int>(seed >> 24) % 64 - 26, now = level[i % 8];
    exponents[i] = now + up > 126 || now + up < -100 ? -now : up;
    level[i % 8] += exponents[i];
  }
  check_exponents(70, [&](int channel, int tile) {
    return exponents[static_cast<std::size_t>(8 * tile + channel)];
  });
}

/// The map x -> factor x + term modulo 2^32, as an operator without an initial element.
struct modular_map {
  std::uint32_t factor, term;
};
struct after {
  modular_map operator()(const modular_map& earlier, const modular_map& later) const {
    return {later.factor * earlier.factor, later.factor * earlier.term + later.term};
  }
};

TEST_CASE("an operator that does not commute runs over many spans without an initial element",
          "[determinism][operator][cuda_look_back]") {
  for (const std::int64_t channels : {1, 4}) {
    const std::int64_t tile_steps = 128 / channels;
    const extents shape{.batch = 1, .time = tile_steps * 70 - 3, .channel = channels};
    std::vector<modular_map> in(static_cast<std::size_t>(shape.time * channels));
    std::uint32_t seed = 9;
    for (modular_map& m : in) {
      seed = seed * 1664525u + 1013904223u;
      m = {seed | 1, seed >> 7};
    }
    std::vector<modular_map> wanted(in.size()), got(in.size());
    const auto view = [&](std::vector<modular_map>& v) {
      return sequence_view<modular_map>(v.data(), shape);
    };
    inclusive_scan(sequential{}, after{}, view(in), view(wanted));
    stream s;
    for (const schedule& with : schedules()) {
      memory room(1 << 16);
      const scheduled as(with);
      inclusive_scan(cuda::look_back{.stream = &s, .workspace = kept(room), .segment_steps = 1},
                     after{}, view(in), view(got));
      INFO("seed " << with.seed << ", " << channels << " channels");
      CHECK(std::memcmp(got.data(), wanted.data(), in.size() * sizeof(modular_map)) == 0);
    }
  }
}

TEST_CASE("every span but the last sends its map if all numbers are moderate",
          "[cuda_look_back][forward]") {
  const extents shape{.batch = 1, .time = 128 * 32 * 4, .channel = 1};
  arrays<float> a(shape, channels_last(shape));
  const cuda::detail::look_back_plan plan(a.forward_problem(), 1);
  CHECK(plan.partition.spans() == 4);
  memory room(static_cast<std::size_t>(plan.workspace_bytes / 8));
  stream s;
  a.forward(cuda::look_back{.stream = &s, .workspace = kept(room), .segment_steps = 1});
  const auto* const words =
      reinterpret_cast<const cuda::device::word*>(room.data()) +
      plan.first_message / static_cast<std::int64_t>(sizeof(cuda::device::word));
  // A map of two words and a state of one, for each tile and each boundary.
  for (int boundary = 0; boundary < 4; ++boundary)
    CHECK(words[(plan.partition.tiles + boundary) * 3].tag == (boundary > 0 ? 1u : 0u));
}

TEST_CASE("states that are not finite are right if all blocks run at once",
          "[determinism][nan][cuda_look_back][forward]") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const extents shape{.batch = 1, .time = 16 * 40, .channel = 8};
  check_forward<float>(shape, channels_last(shape), 1, 40,
                       {infinity, -infinity, std::nanf(""), infinity, 3e38f});
}

TEST_CASE("tiles staged in shared memory are right if all blocks run at once",
          "[determinism][layouts][cuda_look_back][forward]") {
  const auto check = []<class T>(T) {
    const extents lone{.batch = 1, .time = 9000, .channel = 2},
        long_shape{.batch = 2, .time = 700, .channel = 1},
        brief{.batch = 2, .time = 20, .channel = 40};
    check_forward<T>(lone, time_contiguous(lone), 0, 3);
    check_forward<T>(long_shape, time_contiguous(long_shape), 2, 3);
    check_forward<T>(brief, time_contiguous(brief), 4, 1);
  };
  check(bfloat16{});
  check(float{});
}

/// The gradients of an adjoint. Zero strides make them sums.
struct wanted_gradients {
  strides of_gates, of_inputs;
  int segment_steps = 1;
  float extreme = 0;   // if not 0, replaces one cotangent in the last batch row
  bool turns = false;  // whether tiles add to sums in turn
};
/// Runs adjoints on the given schedules. The whole workspace is weakly ordered.
void check_backward(const extents& shape, const strides& apart, const wanted_gradients& with,
                    const std::vector<schedule>& all) {
  stream s;
  memory room;
  for (const schedule& chosen : all) {
    arrays<float> a(shape, apart, static_cast<std::uint32_t>(chosen.seed));
    a.forward(sequential{});
    if (with.extreme != 0) a.grad[a.grad.size() * 5 / 6 - 1] = with.extreme;
    const auto run = [&](auto on, std::vector<float>& gates, std::vector<float>& inputs) {
      gates.resize(a.grad.size()), inputs.resize(a.grad.size());
      const scan_gradients<float> gradients{
          .gate_grad = sequence_view<float>(gates.data(), shape, with.of_gates),
          .input_grad = sequence_view<float>(inputs.data(), shape, with.of_inputs)};
      const auto gate = a.view(a.gate), state = a.view(a.state), grad = a.view(a.grad);
      if constexpr (std::is_same_v<decltype(on), cuda::look_back>) {
        const cuda::detail::look_back_plan plan(
            linear_scan_vjp_problem(gate, state, grad, gradients), with.segment_steps);
        CHECK(plan.sums_by_step == with.turns);
        room.resize(static_cast<std::size_t>(plan.workspace_bytes / 8));
        on.workspace = kept(room);
        const weakly_ordered all_of_it(room.data(), room.size() * 8);
        linear_scan_vjp(on, gate, state, grad, gradients);
        // A call leaves zeros after its messages.
        CHECK(std::all_of(room.begin() + plan.first_sum() / 8, room.end(),
                          [](double x) { return x == 0; }));
      } else {
        linear_scan_vjp(on, gate, state, grad, gradients);
      }
    };
    std::vector<float> wanted_gates, wanted_inputs, gates, inputs;
    run(sequential{}, wanted_gates, wanted_inputs);
    const scheduled as(chosen);
    run(cuda::look_back{.stream = &s, .segment_steps = with.segment_steps}, gates, inputs);
    INFO("seed " << chosen.seed);
    CHECK(same(gates, wanted_gates));
    CHECK(same(inputs, wanted_inputs));
  }
}

TEST_CASE("tiles add to sums in turn even if stores arrive late",
          "[determinism][broadcast][nan][cuda_look_back][vjp]") {
  // Each tile has one channel, and six tiles add to the same sums in turn.
  const extents shape{.batch = 3, .time = 600, .channel = 2};
  for (const float extreme : {0.0f, std::numeric_limits<float>::infinity()})
    check_backward(shape, channels_last(shape),
                   {{0, 1, 0, 0}, channels_last(shape), 1, extreme, true},
                   {schedules()[1], schedules()[2], schedules()[3]});
}

TEST_CASE("sums over time are right if stores arrive late",
          "[determinism][broadcast][cuda_look_back][vjp]") {
  const extents shape{.batch = 2, .time = 32 * 24, .channel = 8};
  check_backward(shape, channels_last(shape), {{0, 0, 1, 0}, {0, 0, 1, 0}},
                 {schedules()[1], schedules()[3]});
}

TEST_CASE("sums over the channels of a tile are right if stores arrive late",
          "[broadcast][cuda_look_back][vjp]") {
  const extents shape{.batch = 2, .time = 300, .channel = 11};
  check_backward(shape, channels_last(shape), {{300, 1, 0, 0}, {300, 1, 0, 0}}, {schedules()[1]});
}

TEST_CASE("tiles of an adjoint are staged with the neighbouring step",
          "[layouts][cuda_look_back][vjp]") {
  for (const std::int64_t steps : {20, 9000}) {
    const extents shape{.batch = 1, .time = steps, .channel = 2};
    const strides apart = time_contiguous(shape);
    check_backward(shape, apart, {apart, apart, 0}, {schedules()[3]});
  }
}

TEST_CASE("the call counter advances even if the header becomes visible late",
          "[workspace][cuda_look_back]") {
  constexpr std::uint64_t half = std::uint64_t{1} << 31;
  const extents shape{.batch = 1, .time = 32 * 9, .channel = 8};
  stream s;
  memory room(1 << 14);
  const auto header = [&] {
    cuda::detail::workspace_header h;
    std::memcpy(&h, room.data(), sizeof h);
    return h;
  };
  const cuda::detail::workspace_header before{(half - 2) << 32, 0};
  for (const bool late : {false, true}) {
    std::memcpy(room.data(), &before, sizeof before);
    const weakly_ordered header_alone(room.data(), late ? sizeof before : 0);
    for (std::uint64_t made = 1; made <= 4; ++made) {
      arrays<float> wanted(shape, channels_last(shape), static_cast<std::uint32_t>(made));
      arrays<float> got = wanted;
      wanted.forward(sequential{});
      const scheduled as(schedules()[2]);
      got.forward(cuda::look_back{.stream = &s, .workspace = kept(room), .segment_steps = 1});
      CHECK(same(got.state, wanted.state));
      CHECK(header().drawn == (half - 2 + made) << 32);
      CHECK(header().halves == (made < 2 ? 0u : 1u));
    }
  }
}

}  // namespace
