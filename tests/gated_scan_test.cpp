// SPDX-License-Identifier: BSD-3-Clause
// Tests of gated scans: two directions in one buffer, broadcast arrays, NaN and infinity, zoneout,
// gradients in place and invalid arguments.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <scanrec/cells/min_gru.hpp>
#include <scanrec/cells/qrnn.hpp>
#include <scanrec/cells/rg_lru.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/scan.hpp>
#include <scanrec/variants.hpp>

#include "catch.hpp"
#include "reference.hpp"
#include "tested_backend.hpp"

namespace {

using namespace scanrec;
using reference::random_numbers;
using reference::same_bits;

TEST_CASE("forward and reverse scans may write to slices of one buffer", "[tiled][gated]") {
  const extents shape{.batch = 2, .time = 40, .channel = 5};
  const extents wide{.batch = 2, .time = 40, .channel = 30},
      twice{.batch = 2, .time = 40, .channel = 10};
  std::vector<float> pre(2400), both(800), one(400), flipped(2400);
  const std::vector<double> numbers = random_numbers(2400, 1, 2);
  for (std::size_t i = 0; i < pre.size(); ++i) pre[i] = static_cast<float>(numbers[i]);
  // Six slices of one matrix product, three for each direction.
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

TEST_CASE("float16 scans equal float scans with rounded outputs", "[tiled][gated]") {
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

TEST_CASE("the gradient of a broadcast array is a sum", "[sequential][tiled][gated]") {
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

TEST_CASE("NaN and infinity stay in their channel and never reach earlier steps",
          "[tiled][gated]") {
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
      // An infinite pre-activation saturates the gate or candidate, and the output stays finite.
      if (std::isinf(bad)) CHECK(std::isfinite(hs[100 * 20 + 7]));
      if (std::isnan(bad)) CHECK(std::isnan(hs[100 * 20 + 7]));
    }
}

TEST_CASE("gradients in place do not race with recomputed states", "[tiled][gated]") {
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

TEST_CASE("zoneout with broadcast pre-activations gives the states of the sequential backend",
          "[backends][gated]") {
  // With one gate for all steps, triangular_matmul uses one matrix for all chunks of steps, except
  // if there is a zoneout mask.
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

TEST_CASE("zoned-out steps have zero gradients, even for infinite pre-activations",
          "[tiled][gated]") {
  // The 19 channels are a pack and a tail. All have the same values.
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

TEST_CASE("gated scans reject invalid arguments", "[sequential][gated]") {
  const extents shape{.batch = 2, .time = 300, .channel = 4}, wide{2, 300, 12};
  std::vector<float> pre(7200, 0.5f), h(2400, 7), c(2400, 7), dpre(7200, 7), few(16, 7);
  const auto gates = packed<fo_pooling<>>(sequence_view(pre.data(), wide));
  const auto grads = packed<fo_pooling<>>(sequence_view(dpre.data(), wide));
  const sequence_view H(h.data(), shape), C(c.data(), shape);
  const fo_pooling<> cell;
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
  // An absent view of states is allowed where they would be written, and an error where they are
  // read.
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
  // Sequences of up to 128 steps need no checkpoints.
  std::vector<float> short_output(800);
  gated_scan(sequential{}, cell,
             packed<fo_pooling<>>(sequence_view(pre.data(), extents{2, 100, 12})),
             sequence_view(short_output.data(), extents{2, 100, 4}), memory::recompute<float>{});
  refuses("final_state", "output and states are absent",
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
