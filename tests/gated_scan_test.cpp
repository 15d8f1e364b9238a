// SPDX-License-Identifier: BSD-3-Clause
// Gated scans beyond their formulas: gradients against central differences for every cell, special
// cases, both directions in one buffer, broadcasts, bad arguments, memory.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <scanrec/cells/log_space.hpp>
#include <scanrec/cells/min_gru.hpp>
#include <scanrec/cells/qrnn.hpp>
#include <scanrec/cells/rg_lru.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/scan.hpp>
#include <scanrec/variants.hpp>

#include "catch.hpp"
#include "central_difference.hpp"
#include "golden.hpp"
#include "reference.hpp"
#include "tested_backend.hpp"

namespace {

using namespace scanrec;
using reference::same_bits;

std::vector<double> random_numbers(std::int64_t n, unsigned seed, double scale = 1) {
  reference::generator bits{seed};
  std::vector<double> x(static_cast<std::size_t>(n));
  for (double& v : x) v = scale * (2 * (bits() * 0x1p-32) - 1);
  return x;
}

// ---- gradients --------------------------------------------------------------------------------

/// One problem in double with a loss: a weighted sum of outputs and final states.
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
  /// Gradients of the pre-activations, then of the initial state.
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

template <class Cell>
void check_gradients(const char* name, Cell cell, const std::function<void(double&)>& place = {}) {
  for (const direction order : {direction::forward, direction::reverse}) {
    loss_of<Cell> loss(cell, order);
    if (place)
      for (double& x : loss.pre) place(x);
    const std::vector<double> gradient = loss.gradient();
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      double& x = i < loss.pre.size() ? loss.pre[i] : loss.start[i - loss.pre.size()];
      const double want = loss.difference(x);
      INFO(name << ", number " << i << " of " << gradient.size());
      CHECK(std::abs(gradient[i] - want) <= 1e-8 * (1 + std::abs(want)));
    }
  }
}

TEST_CASE("gradients are central differences, for every cell", "[sequential][gated]") {
  using namespace activation;
  check_gradients("f_pooling", f_pooling<>{});
  check_gradients("fo_pooling", fo_pooling<>{.forget_bias = 0.5});
  check_gradients("ifo_pooling", ifo_pooling<>{});
  check_gradients("gated_accumulation", gated_accumulation<>{});
  check_gradients("fo_pooling, relu and hard_sigmoid", fo_pooling<relu, hard_sigmoid>{});
  check_gradients("ifo_pooling, identity", ifo_pooling<identity, identity>{});
  check_gradients("min_gru", min_gru<>{});
  check_gradients("min_gru, positive", min_gru<positive>{});
  check_gradients("log_space", log_space<>{});
  check_gradients("log_space, of gates", log_space<exponential, identity>{});
  // The last array of rg_lru is at most 0; here all are.
  check_gradients("rg_lru", rg_lru{}, [](double& x) { x = -0.2 - std::abs(x); });
}

TEST_CASE("every cell has the golden bits", "[.golden]") {
  using namespace activation;
  const auto check = [](const char* name, auto cell, bool negative = false) {
    golden::row row(std::string("gated_scan_vjp, double, sequential, ") + name);
    for (const direction order : {direction::forward, direction::reverse}) {
      loss_of loss(cell, order);
      if (negative)
        for (double& x : loss.pre) x = -0.25 - std::abs(x);
      row.add_all(loss.gradient());
      row.end_hash();
    }
    row.check();
  };
  check("f_pooling", f_pooling<>{.forget_bias = 0.25});
  check("fo_pooling, gelu and hard_sigmoid", fo_pooling<gelu, hard_sigmoid>{});
  check("ifo_pooling, relu and sigmoid", ifo_pooling<relu, sigmoid>{});
  check("gated_accumulation", gated_accumulation<>{});
  check("min_gru", min_gru<>{});
  check("min_gru, positive", min_gru<positive>{});
  check("log_space", log_space<>{});
  check("rg_lru", rg_lru{}, true);
}

TEST_CASE("the gradient of a forget gate takes the state before the step", "[sequential][gated]") {
  // Hand-written backward passes have used the state after it, which is close where gates are near
  // 1: the two must be told apart.
  const extents shape{.batch = 1, .time = 64, .channel = 1};
  std::vector<double> z = random_numbers(64, 1), f = random_numbers(64, 2, 2), ones(64, 1), c(64),
                      dz(64), df(64);
  using cell = gated_accumulation<>;
  const auto view = [&](std::vector<double>& v) { return sequence_view(v.data(), shape); };
  gated_scan(sequential{}, cell{}, cell::arrays<sequence_view<double>>{view(z), view(f)}, view(c));
  gated_scan_vjp(sequential{}, cell{}, cell::arrays<sequence_view<double>>{view(z), view(f)},
                 memory::store{view(c)}, view(ones), {.arrays = {view(dz), view(df)}});
  double off = 0, off_wrong = 0, size = 0;
  for (std::size_t t = 0; t < 64; ++t) {
    const auto loss = [&](double at) {
      double x = 0, sum = 0;
      for (std::size_t s = 0; s < 64; ++s) {
        const double gate = std::clamp((s == t ? at : f[s]) / 6 + 0.5, 0.0, 1.0);
        x = gate * x + z[s];
        sum += x;
      }
      return sum;
    };
    const double want = (loss(f[t] + 1e-4) - loss(f[t] - 1e-4)) / 2e-4;
    const double wrong = dz[t] * c[t] / 6;
    off = std::max(off, std::abs(df[t] - want)), size = std::max(size, std::abs(want));
    off_wrong = std::max(off_wrong, std::abs(wrong - want));
  }
  CHECK(off <= 1e-9 * size);
  CHECK(off_wrong >= 0.1 * size);
}

// ---- special cases ----------------------------------------------------------------------------

TEST_CASE("exponential smoothing is f-pooling with a constant gate", "[tiled][gated]") {
  const extents shape{.batch = 2, .time = 50, .channel = 19};
  const std::int64_t n = 2 * 50 * 19;
  std::vector<float> x(n), smooth(n), want(n), scaled(n);
  const std::vector<double> numbers = random_numbers(n, 1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(numbers[i]);
  // The gate's pre-activation is one zero for all, and its bias says how much is kept: 9 / 10.
  const f_pooling<activation::identity, activation::hard_sigmoid> ema{.forget_bias = 2.4};
  const float zero = 0;
  using arrays = decltype(ema)::arrays<sequence_view<const float>>;
  gated_scan(ema, arrays{{x.data(), shape}, {&zero, shape, strides{0, 0, 0, 0}}},
             sequence_view(smooth.data(), shape));
  const auto f = activation::hard_sigmoid::of(2.4f);
  CHECK(std::abs(f.value - 0.9f) <= 1e-7f);
  for (std::size_t i = 0; i < x.size(); ++i) scaled[i] = f.complement * x[i];
  linear_scan(sequence_view<const float>(&f.value, shape, strides{0, 0, 0, 0}),
              sequence_view<const float>(scaled.data(), shape), sequence_view(want.data(), shape));
  CHECK((same_bits(smooth, want)));
}

TEST_CASE("both directions into one buffer", "[tiled][gated]") {
  const extents shape{.batch = 2, .time = 40, .channel = 5};
  const extents wide{.batch = 2, .time = 40, .channel = 30},
      twice{.batch = 2, .time = 40, .channel = 10};
  std::vector<float> pre(2400), both(800), one(400), flipped(2400);
  const std::vector<double> numbers = random_numbers(2400, 1, 2);
  for (std::size_t i = 0; i < pre.size(); ++i) pre[i] = static_cast<float>(numbers[i]);
  // Six slices of one product: three for each direction.
  const auto half = [](std::vector<float>& all, const extents& of, int i) {
    const extents part{of.batch, of.time, of.channel / 2};
    return sequence_view<float>(all.data() + i * part.channel, part, channels_last(of));
  };
  const fo_pooling<> cell;
  gated_scan(cell, packed<fo_pooling<>>(half(pre, wide, 0)), half(both, twice, 0));
  gated_scan(cell, packed<fo_pooling<>>(half(pre, wide, 1)), half(both, twice, 1), none,
             {.order = direction::reverse});
  for (int i = 0; i < 2; ++i) {
    for (std::size_t b = 0; b < 2; ++b)
      for (std::size_t t = 0; t < 40; ++t)
        for (std::size_t k = 0; k < 30; ++k)
          flipped[(b * 40 + t) * 30 + k] = pre[(b * 40 + (i ? 39 - t : t)) * 30 + k];
    gated_scan(cell, packed<fo_pooling<>>(half(flipped, wide, i)),
               sequence_view(one.data(), shape));
    for (std::size_t b = 0; b < 2; ++b)
      for (std::size_t t = 0; t < 40; ++t)
        for (std::size_t c = 0; c < 5; ++c)
          if (both[(b * 40 + (i ? 39 - t : t)) * 10 + static_cast<std::size_t>(i) * 5 + c] !=
              one[(b * 40 + t) * 5 + c])
            FAIL("direction " << i << ", step " << t);
  }
}

TEST_CASE("float16 computes as float does", "[tiled][gated]") {
  const extents shape{.batch = 2, .time = 150, .channel = 21}, wide{2, 150, 63};
  const std::vector<double> numbers = random_numbers(2 * 150 * 63, 1, 3);
  std::vector<float16> pre16(numbers.size()), h16(6300);
  std::vector<float> pre(numbers.size()), h(6300), last16(42), last(42);
  for (std::size_t i = 0; i < pre.size(); ++i) {
    pre16[i] = float16(static_cast<float>(numbers[i]));
    pre[i] = static_cast<float>(pre16[i]);
  }
  const tiled one{.threads = 1};
  gated_scan(one, fo_pooling<>{}, packed<fo_pooling<>>(sequence_view(pre16.data(), wide)),
             sequence_view(h16.data(), shape), none,
             {.final_state = state_view(last16.data(), shape)});
  gated_scan(one, fo_pooling<>{}, packed<fo_pooling<>>(sequence_view(pre.data(), wide)),
             sequence_view(h.data(), shape), none, {.final_state = state_view(last.data(), shape)});
  CHECK((same_bits(last, last16)));
  for (std::size_t i = 0; i < h.size(); ++i)
    if (h16[i].bits != float16(h[i]).bits) FAIL("element " << i);
}

TEST_CASE("the gradient of an array that is shared is a sum", "[sequential][tiled][gated]") {
  const extents shape{.batch = 3, .time = 90, .channel = 18};
  const std::int64_t n = 3 * 90 * 18;
  std::vector<double> x = random_numbers(n, 1), i = random_numbers(n, 2), r = random_numbers(n, 3),
                      decay(18), full(static_cast<std::size_t>(n)), states(full.size()),
                      dh = random_numbers(n, 4), d[4], summed(18);
  for (std::size_t c = 0; c < 18; ++c) decay[c] = -0.1 - 0.3 * static_cast<double>(c);
  for (std::size_t k = 0; k < full.size(); ++k) full[k] = decay[k % 18];
  for (auto& v : d) v.resize(full.size());
  const auto view = [&](std::vector<double>& v) { return sequence_view(v.data(), shape); };
  const strides once{.batch = 0, .time = 0, .channel = 1};
  using arrays = rg_lru::arrays<sequence_view<double>>;
  const arrays apart{view(x), view(i), view(r), view(full)};
  const arrays shared{view(x), view(i), view(r), sequence_view(decay.data(), shape, once)};
  gated_scan(sequential{}, rg_lru{}, shared, view(states));
  gated_scan_vjp(sequential{}, rg_lru{}, apart, memory::store{view(states)}, view(dh),
                 {.arrays = {view(d[0]), view(d[1]), view(d[2]), view(d[3])}});
  for (int round = 0; round < 2; ++round) {
    const auto run = [&](const auto& backend) {
      gated_scan_vjp(backend, rg_lru{}, shared, memory::store{view(states)}, view(dh),
                     {.arrays = {view(d[0]), view(d[1]), view(d[2]),
                                 sequence_view(summed.data(), shape, once)}});
    };
    round == 0 ? run(sequential{}) : run(tiled{.threads = 2, .tile_steps = 32});
    for (std::size_t c = 0; c < 18; ++c) {
      double want = 0, size = 0;
      for (std::size_t k = c; k < full.size(); k += 18) want += d[3][k], size += std::abs(d[3][k]);
      CHECK(std::abs(summed[c] - want) <= 300 * std::numeric_limits<double>::epsilon() * size);
    }
  }
}

TEST_CASE("a NaN stays in its channel and after its step", "[tiled][gated]") {
  const extents shape{.batch = 1, .time = 200, .channel = 20}, wide{1, 200, 60};
  const std::vector<double> numbers = random_numbers(200 * 60, 1, 2);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (int array = 0; array < 3; ++array) {
      std::vector<float> pre(numbers.begin(), numbers.end()), spoilt = pre, h(4000), hs(4000);
      spoilt[100 * 60 + static_cast<std::size_t>(array) * 20 + 7] = bad;
      for (auto [from, to] : {std::pair{&pre, &h}, std::pair{&spoilt, &hs}})
        gated_scan(fo_pooling<>{}, packed<fo_pooling<>>(sequence_view(from->data(), wide)),
                   sequence_view(to->data(), shape));
      for (std::size_t k = 0; k < h.size(); ++k)
        if ((k / 20 < 100 || k % 20 != 7) && !same_bits(h[k], hs[k]))
          FAIL("array " << array << ", step " << k / 20 << ", channel " << k % 20);
      // A saturated gate or candidate is a number like any other.
      if (std::isinf(bad)) CHECK(std::isfinite(hs[100 * 20 + 7]));
      if (std::isnan(bad)) CHECK(std::isnan(hs[100 * 20 + 7]));
    }
}

TEST_CASE("gradients over pre-activations do not race with states recomputed", "[tiled][gated]") {
  const extents shape{.batch = 1, .time = 4000, .channel = 17}, wide{1, 4000, 34};
  const std::vector<double> numbers = random_numbers(4000 * 34, 1, 2);
  const std::vector<float> pre(numbers.begin(), numbers.end());
  const extents few = memory::checkpoint_extents(shape);
  std::vector<float> h(4000 * 17), checkpoints(few.time * 17), apart(pre.size()),
      dh(h.size(), 1.0f);
  const auto run = [&](std::vector<float>& in, std::vector<float>& gradients, std::int64_t tile) {
    gated_scan_vjp(tiled{.threads = 2, .tile_steps = tile}, f_pooling<>{},
                   packed<f_pooling<>>(sequence_view(in.data(), wide)),
                   memory::recompute{sequence_view(checkpoints.data(), few)},
                   sequence_view(dh.data(), shape),
                   {.arrays = packed<f_pooling<>>(sequence_view(gradients.data(), wide))});
  };
  std::vector<float> in = pre;
  gated_scan(f_pooling<>{}, packed<f_pooling<>>(sequence_view(in.data(), wide)),
             sequence_view(h.data(), shape),
             memory::recompute{sequence_view(checkpoints.data(), few)});
  for (const std::int64_t tile : {0, 16, 37, 200}) {
    run(in, apart, tile);
    for (int round = 0; round < 8; ++round) {
      std::vector<float> both = pre;
      run(both, both, tile);
      CHECK((same_bits(both, apart)));
    }
  }
}

TEST_CASE("zoneout where pre-activations are shared", "[backends][gated]") {
  // One gate for all steps would be one triangle, were it not for the mask.
  const extents shape{.batch = 2, .time = 90, .channel = 6};
  std::vector<double> z = random_numbers(6, 1), f = random_numbers(6, 2), h(1080), want(1080);
  std::vector<std::uint8_t> mask(1080);
  reference::generator bits{3};
  for (auto& m : mask) m = bits() % 3 == 0;
  const sequence_view<const bool> zoneout(reinterpret_cast<const bool*>(mask.data()), shape);
  for (const scanrec::strides& strides : {scanrec::strides{0, 0, 1}, scanrec::strides{}}) {
    const f_pooling<>::arrays<sequence_view<double>> shared{
        sequence_view(z.data(), shape, strides), sequence_view(f.data(), shape, strides)};
    gated_scan(sequential{}, f_pooling<>{}, shared, sequence_view(want.data(), shape), none,
               {.zoneout = zoneout});
    const auto check = [&](const auto& backend) {
      gated_scan(backend, f_pooling<>{}, shared, sequence_view(h.data(), shape), none,
                 {.zoneout = zoneout});
      for (std::size_t i = 0; i < h.size(); ++i) CHECK(std::abs(h[i] - want[i]) <= 1e-14);
    };
    check(tiled{}), check(hillis_steele{}), check(blelloch{});
#if SCANREC_TEST_EIGEN
    check(triangular_matmul{.chunk = 16});
#endif
  }
}

TEST_CASE("what is zoned out has no gradient, whatever it is", "[tiled][gated]") {
  // The same in all channels: a pack and a tail.
  constexpr std::int64_t C = 19;
  const extents shape{.batch = 1, .time = 3, .channel = C};
  const float infinity = std::numeric_limits<float>::infinity();
  const auto spread = [](std::vector<float> steps) {
    std::vector<float> all;
    for (const float x : steps) all.insert(all.end(), C, x);
    return all;
  };
  std::vector<float> candidate = spread({1, -infinity, 2}), update = spread({0, 0, 0}), h(3 * C),
                     dh(3 * C, 1), dc(3 * C), du(3 * C);
  bool mask[3 * C] = {};
  std::fill_n(mask + C, C, true);
  const auto view = [&](std::vector<float>& v) { return sequence_view(v.data(), shape); };
  const min_gru<>::arrays<sequence_view<float>> pre{view(candidate), view(update)};
  gated_scan(min_gru<>{}, pre, view(h), none, {.zoneout = {mask, shape}});
  gated_scan_vjp(min_gru<>{}, pre, memory::store{view(h)}, view(dh),
                 {.arrays = {view(dc), view(du)}}, {.zoneout = {mask, shape}});
  CHECK((h == spread({0.5f, 0.5f, 1.25f})));
  CHECK((dc == spread({1.25f, 0, 0.5f})));
  CHECK((du == spread({0.625f, 0, 0.375f})));
}

// ---- memory -----------------------------------------------------------------------------------

template <class T>
void check_memory() {
  const extents shape{.batch = 2, .time = 4096, .channel = 96}, wide{2, 4096, 3 * 96};
  const std::int64_t n = 2 * 4096 * 96;
  std::vector<T> pre(3 * n), grad(3 * n), dh(n);
  const extents few = memory::checkpoint_extents(shape);
  std::vector<compute_t<T>> checkpoints(
      static_cast<std::size_t>(few.batch * few.time * few.channel));
  CHECK(checkpoints.size() * sizeof(compute_t<T>) * 64 <= n * sizeof(T));
  const int threads = 3;
  const problem p = gated_scan_vjp_problem(
      fo_pooling<>{}, packed<fo_pooling<>>(sequence_view(pre.data(), wide)),
      memory::recompute{sequence_view(checkpoints.data(), few)}, sequence_view(dh.data(), shape),
      {.arrays = packed<fo_pooling<>>(sequence_view(grad.data(), wide))});
  // A stretch of 128 steps and its neighbours; what walks carry; a page to the next worker's.
  const std::int64_t tile = 130 * 96 * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t page = tile_policy::page_bytes;
  CHECK(workspace_bytes(tiled{.threads = threads}, p) <= threads * (tile + 8192 + page));
}
TEST_CASE("recomputing takes a sixty-fourth of an array and a tile per thread", "[tiled][gated]") {
  check_memory<float>();
  check_memory<bfloat16>();
}

// ---- arguments --------------------------------------------------------------------------------

template <class F>
void refuses(const std::string& argument, const std::string& text, F f) {
  try {
    f();
    FAIL("no error for '" << argument << "'");
  } catch (const argument_error& e) {
    INFO(e.what());
    CHECK(std::string(e.what()).find("'" + argument + "'") != std::string::npos);
    CHECK(std::string(e.what()).find(text) != std::string::npos);
  }
}

TEST_CASE("bad arguments of gated scans", "[sequential][gated]") {
  const extents shape{.batch = 2, .time = 300, .channel = 4}, wide{2, 300, 12};
  std::vector<float> pre(7200, 0.5f), h(2400, 7), c(2400, 7), dpre(7200, 7), few(16, 7);
  const auto gates = packed<fo_pooling<>>(sequence_view(pre.data(), wide));
  const auto grads = packed<fo_pooling<>>(sequence_view(dpre.data(), wide));
  const sequence_view H(h.data(), shape), C(c.data(), shape);
  const fo_pooling<> cell;
  refuses("all", "a multiple of 3 channels",
          [&] { packed<fo_pooling<>>(sequence_view(pre.data(), shape)); });
  refuses("output_gate", "an array", [&] {
    auto two = gates;
    two.output_gate = {};
    gated_scan(sequential{}, cell, two, H);
  });
  refuses("forget_gate", "shape", [&] {
    auto short_one = gates;
    short_one.forget_gate.shape.time = 5;
    gated_scan(sequential{}, cell, short_one, H);
  });
  // An absent view of states is `none` where they would be written, missing where they are read.
  std::vector<float> output(2400);
  gated_scan(sequential{}, cell, gates, sequence_view(output.data(), shape),
             memory::store<float>{});
  refuses("states", "an array", [&] {
    gated_scan_vjp(sequential{}, cell, gates, memory::store<float>{}, H, {.arrays = grads});
  });
  refuses("checkpoints", "(batch 2, time 2, channel 4), checkpoint_extents() of 'candidate'", [&] {
    gated_scan(sequential{}, cell, gates, H,
               memory::recompute{sequence_view(few.data(), extents{2, 3, 4})});
  });
  refuses("checkpoints", "shape",
          [&] { gated_scan(sequential{}, cell, gates, H, memory::recompute<float>{}); });
  // Up to 128 steps there are none to keep.
  std::vector<float> short_output(800);
  gated_scan(sequential{}, cell,
             packed<fo_pooling<>>(sequence_view(pre.data(), extents{2, 100, 12})),
             sequence_view(short_output.data(), extents{2, 100, 4}), memory::recompute<float>{});
  refuses("final_state", "neither output nor memory",
          [&] { gated_scan(sequential{}, cell, gates, none); });
  refuses("output", "apart from 'candidate'",
          [&] { gated_scan(sequential{}, cell, gates, sequence_view(pre.data(), shape)); });
  refuses("output", "apart from 'states'",
          [&] { gated_scan(sequential{}, cell, gates, H, memory::store{H}); });
  refuses("zoneout", "shape", [&] {
    const bool mask[8] = {};
    gated_scan(sequential{}, cell, gates, H, none, {.zoneout = {mask, extents{2, 1, 4}}});
  });
  refuses("forget_gate_grad", "apart from 'candidate'", [&] {
    auto crossed = grads;
    crossed.forget_gate = gates.candidate;
    gated_scan_vjp(sequential{}, cell, gates, memory::store{C}, H, {.arrays = crossed});
  });
  refuses("candidate_grad", "apart from 'states'", [&] {
    auto over = grads;
    over.candidate = C;
    gated_scan_vjp(sequential{}, cell, gates, memory::store{C}, H, {.arrays = over});
  });
  for (const std::vector<float>* written : {&h, &c, &dpre, &few})
    for (const float x : *written) CHECK(x == 7);
}

}  // namespace
