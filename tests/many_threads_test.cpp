// SPDX-License-Identifier: BSD-3-Clause
// Tests that long calls give the same bits for 1 to 128 threads, on any number of cores. They cover
// split time, and strips (blocks of adjacent channels) whose width depends on the number of
// threads. Some plans give all tiles of a work item to one worker, in order. Others let workers
// take tiles of any work item.
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/scan.hpp>

#include "catch.hpp"
#include "linear_cell.hpp"
#include "tested_backend.hpp"

namespace {

using namespace scanrec;

constexpr int thread_counts[] = {1, 2, 3, 7, 32, 128};

std::vector<float> random(std::size_t n, unsigned seed) {
  std::mt19937 bits(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> x(n);
  for (float& one : x) one = values(bits);
  return x;
}

bool same_bits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

struct layout {
  const char* name;
  scanrec::strides (*of)(const extents&);
};
const layout layouts[] = {{"channels last", channels_last}, {"time contiguous", time_contiguous}};

/// Compares the outputs of a call for each number of threads with those for one thread.
class outputs {
 public:
  void check(int threads, const std::vector<std::vector<float>>& got) {
    if (threads == 1) first_ = got;
    REQUIRE(got.size() == first_.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      INFO("output " << i << ", " << threads << " threads");
      CHECK(same_bits(got[i], first_[i]));
    }
  }

 private:
  std::vector<std::vector<float>> first_;
};

}  // namespace

TEST_CASE("linear scans have the same bits for 1 to 128 threads",
          "[tiled][forward][vjp][threads]") {
  int whole = 0, split = 0, in_order = 0, out_of_order = 0, several_strips = 0;
  for (const extents& shape :
       {extents{1, 1 << 16, 1}, extents{1, 6000, 100}, extents{2, 2500, 72}, extents{3, 4100, 16},
        extents{1, 1000, 530}, extents{8, 300, 256}, extents{1, 1500, 320}})
    for (const auto& [name, strides_of] : layouts) {
      INFO(to_string(shape) << ", " << name);
      const auto n = static_cast<std::size_t>(detail::element_count(shape));
      std::vector<float> gate = random(n, 1), input = random(n, 2),
                         start = random(shape.batch * shape.channel, 3);
      const scanrec::strides of = strides_of(shape);
      const auto view = [&](std::vector<float>& array) {
        return sequence_view<float>(array.data(), shape, of);
      };
      // A gate per channel, whose gradient is a sum over time and batch.
      extents row = shape;
      row.batch = row.time = 1;
      const auto per_channel = [&](std::vector<float>& array) {
        return broadcast_to(sequence_view<float>(array.data(), row), shape);
      };
      outputs forward, vjp, summed;
      for (const int threads : thread_counts) {
        const tested::backend<float> backend("tiled", tiled{.threads = threads});
        std::vector<float> x(n), end(start.size()), da(n), du(n), d0(start.size());
        const scan_options<float> options{.initial_state = {start.data(), shape},
                                          .final_state = {end.data(), shape}};
        tested::linear_scan(backend, view(gate), view(input), view(x), options);
        forward.check(threads, {x, end});

        const vjp_options<float> back{.initial_state = {start.data(), shape}};
        tested::linear_scan_vjp<float>(
            backend, view(gate), view(x), view(input),
            {.gate_grad = view(da), .input_grad = view(du), .initial_grad = {d0.data(), shape}},
            back);
        vjp.check(threads, {da, du, d0});

        std::vector<float> lambda(gate.begin(), gate.begin() + shape.channel);
        std::vector<float> sum(lambda.size());
        tested::linear_scan_vjp<float>(backend, per_channel(lambda), view(x), view(input),
                                       {.gate_grad = per_channel(sum), .input_grad = view(du)},
                                       back);
        summed.check(threads, {sum, du});

        const tile_plan plan =
            describe(tiled{.threads = threads},
                     linear_scan_problem(view(gate), view(input), view(x), options));
        whole += !plan.time_split, split += plan.time_split;
        in_order += plan.items_whole, out_of_order += !plan.items_whole;
        several_strips += plan.time_split && plan.strips > 1 &&
                          plan.lanes.along == recurrence::lane_axis::channel;
      }
    }
  // All kinds of plans have occurred.
  CHECK(whole > 0);
  CHECK(split > 0);
  CHECK(in_order > 0);
  CHECK(out_of_order > 0);
  CHECK(several_strips > 0);
}

namespace {

/// A cell whose x delays loads. x = 1 in all lanes decrements `ones`, and x = 0 does nothing. Any
/// other x waits until `ones` is at most 0, and another 20 ms.
struct late_cell : tested::linear_cell {
  static inline std::atomic<std::int64_t> ones{0};

  template <class Lane>
  static step<Lane> load(Lane rate, Lane x) {
    if (simd::all_zero(x - simd::constant<Lane>(1))) {
      --ones;
    } else if (!simd::all_zero(x)) {
      while (ones > 0) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return {rate, x};
  }
};

}  // namespace

TEST_CASE("strips of channels are summed in order, even if the first finishes last",
          "[tiled][gated][vjp][broadcast][threads]") {
  // Three strips, each on a separate thread. In order, the terms of the first strip are rounded
  // away next to 2^60, and the sum is 0. If the first strip adds last, its terms remain.
  constexpr float of_strips[]{1, 0x1p60f, -0x1p60f};
  const extents shape{1, 16, 3 * 512};
  const auto n = static_cast<std::size_t>(detail::element_count(shape));
  std::vector<float> rate(1), x(n), state(n, 1), grad(n), sum(1);
  const auto view = [&](std::vector<float>& of) { return sequence_view(of.data(), shape); };
  const auto of_all = [&](std::vector<float>& of) {
    return sequence_view(of.data(), shape, strides{1, 0, 0});
  };
  for (std::int64_t t = 0; t < shape.time; ++t)
    for (std::int64_t c = 0; c < shape.channel; ++c) {
      view(grad).at(0, t, c) = of_strips[c / 512];
      view(x).at(0, t, c) = c < 512 ? 0 : 1;
    }
  view(x).at(0, 0, 0) = 2;
  const late_cell::arrays<sequence_view<float>> arrays{of_all(rate), view(x)};
  const late_cell::arrays<sequence_view<float>> gradients{of_all(sum), {}};
  const memory::store kept{view(state)};
  const tile_plan plan = describe(
      tiled{.threads = 3},
      gated_scan_vjp_problem(late_cell{}, arrays, kept, view(grad), {.arrays = gradients}));
  REQUIRE((plan.tasks == 3 && plan.strip == 512 && plan.threads == 3));
  const auto on_threads = [](int workers, const std::function<void(int)>& work) {
    std::vector<std::thread> threads;
    for (int w = 0; w < workers; ++w) threads.emplace_back(std::cref(work), w);
    for (std::thread& t : threads) t.join();
  };
  for (const int threads : {1, 3}) {
    // The run on one thread counts the steps for which the run on three threads waits.
    late_cell::ones = threads == 1 ? std::int64_t{0} : -late_cell::ones;
    gated_scan_vjp(tiled{.threads = threads, .executor = on_threads}, late_cell{}, arrays, kept,
                   view(grad), {.arrays = gradients});
    INFO(threads << " threads");
    CHECK(sum[0] == 0);
  }
  CHECK(late_cell::ones == 0);
}

TEST_CASE("gradients of slow decays have the same bits in place, for 1 to 128 threads",
          "[tiled][gated][vjp][threads]") {
  // With lanes along time, gates near 1 are read twice. In-place gradients must not overwrite them
  // before the second read.
  using cell = tested::linear_cell;
  for (const extents& shape : {extents{1, 1 << 17, 1}, extents{1, 1 << 13, 40}})
    for (const auto& [name, strides_of] : layouts) {
      INFO(to_string(shape) << ", " << name);
      const auto n = static_cast<std::size_t>(detail::element_count(shape));
      std::vector<float> rate = random(n, 1), x = random(n, 2), state = random(n, 3),
                         grad = random(n, 4);
      for (float& a : rate) a = 1 - 1e-4f * std::abs(a);
      const auto view = [&](std::vector<float>& array) {
        return sequence_view<float>(array.data(), shape, strides_of(shape));
      };
      outputs all;
      for (const int threads : thread_counts)
        for (const bool in_place : {false, true}) {
          std::vector<float> of_rate = rate, of_x = x;
          std::vector<float>& from_rate = in_place ? of_rate : rate;
          std::vector<float>& from_x = in_place ? of_x : x;
          const cell::arrays<sequence_view<float>> arrays{view(from_rate), view(from_x)};
          const cell::arrays<sequence_view<float>> gradients{view(of_rate), view(of_x)};
          gated_scan_vjp(tiled{.threads = threads}, cell{}, arrays, memory::store{view(state)},
                         view(grad), {.arrays = gradients});
          INFO((in_place ? "in place" : "out of place"));
          all.check(in_place ? threads + 1 : threads, {of_rate, of_x});
        }
    }
}

TEST_CASE("resets more than a tile apart take effect in sequences whose time is split",
          "[tiled][forward][resets][threads]") {
  // Gates are 1 and -1 and inputs small integers. So states are exact, and equal those of
  // `sequential`.
  constexpr std::int64_t steps = 6000;
  const auto reset_mask = std::make_unique<bool[]>(steps);
  for (std::int64_t t = 0; t < steps; t += 701) reset_mask[static_cast<std::size_t>(t)] = true;
  for (const std::int64_t channels : {1, 3})
    for (const auto& [name, strides_of] : layouts) {
      INFO(channels << " channels, " << name);
      const extents shape{1, steps, channels}, of_resets{1, steps, 1};
      const auto n = static_cast<std::size_t>(detail::element_count(shape));
      std::vector<float> gate = random(n, 1), input = random(n, 2), x(n), by_loop(n);
      for (float& a : gate) a = a < 0 ? -1.0f : 1.0f;
      for (float& u : input) u = std::round(4 * u);
      const scanrec::strides of = strides_of(shape);
      const auto view = [&](std::vector<float>& array) {
        return sequence_view<float>(array.data(), shape, of);
      };
      const scan_options<float> options{
          .resets = {reset_mask.get(), of_resets, channels_last(of_resets)}};
      tested::linear_scan(tested::backend<float>("sequential", sequential{}), view(gate),
                          view(input), view(by_loop), options);
      for (const int threads : {1, 3}) {
        const tiled on{.threads = threads, .tile_steps = 512};
        CHECK(describe(on, linear_scan_problem(view(gate), view(input), view(x), options))
                  .time_split);
        tested::linear_scan(tested::backend<float>("tiled", on), view(gate), view(input), view(x),
                            options);
        CHECK((x == by_loop));
      }
    }
}

TEST_CASE("pooling has the same bits for 1 to 128 threads", "[tiled][gated][vjp][threads]") {
  for (const extents& shape : {extents{1, 6000, 40}, extents{5, 400, 200}}) {
    INFO(to_string(shape));
    extents wide = shape;
    wide.channel *= 3;
    const auto n = static_cast<std::size_t>(detail::element_count(shape));
    std::vector<float> pre = random(3 * n, 4), dh = random(n, 5);
    const auto arrays = packed<fo_pooling<>>(sequence_view(pre.data(), wide));
    const extents few = memory::checkpoint_extents(shape);
    outputs all;
    for (const int threads : thread_counts) {
      const tiled backend{.threads = threads};
      std::vector<float> h(n), grad(3 * n), kept(detail::element_count(few));
      const memory::recompute checkpoints{sequence_view(kept.data(), few)};
      gated_scan(backend, fo_pooling<>{}, arrays, sequence_view(h.data(), shape), checkpoints);
      gated_scan_vjp(backend, fo_pooling<>{}, arrays, checkpoints, sequence_view(dh.data(), shape),
                     {.arrays = packed<fo_pooling<>>(sequence_view(grad.data(), wide))});
      all.check(threads, {h, kept, grad});
    }
  }
}
