// SPDX-License-Identifier: BSD-3-Clause
// Tests that at most 256 terms of a summed gradient are added in the compute type.
//
// All terms are 1 + 2^-16. Up to 256 of them add up exactly in a float, and each further one loses
// its last bit: a chain of n > 256 floats is off by n - 256 units of 2^-16. A sum is therefore
// exact if and only if partial sums of at most 256 terms are added in the wide type (wide_t, here
// double).
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/scan.hpp>
#include <scanrec/variants.hpp>

#include "catch.hpp"
#include "linear_cell.hpp"
#include "tested_backend.hpp"
#if SCANREC_TEST_EIGEN
#include <scanrec/triangular_matmul.hpp>
#endif

namespace {

using namespace scanrec;

constexpr float term = 1 + 0x1p-16f;
constexpr float sum_of(std::int64_t terms) { return static_cast<float>(terms) * term; }

struct layout {
  const char* name;
  extents shape;
  scanrec::strides strides;
  std::int64_t tile_steps;
  bool split;  // whether time is split
};
std::vector<layout> layouts() {
  constexpr std::int64_t many = 1 << 15, per_lane = 1 << 19;
  const extents last{1, 2 * many, 2}, rows{5, many, 2}, one{1, 2 * per_lane, 1};
  const extents whole{1, per_lane, 4}, gaps{1, 2 * per_lane, 1};
  const extents packs{1, many / 4, 160};  // sums exceed registers; arrays exceed a cache
  return {{"channels last, default tiles", last, channels_last(last), 0, true},
          {"channels last, long tiles", last, channels_last(last), many, true},
          {"channels last, time whole", rows, channels_last(rows), many, false},
          {"channels apart, long tiles", last, {0, 4, 2}, many, true},
          {"packs of channels, default tiles", packs, channels_last(packs), 0, true},
          {"packs of channels, time whole", packs, channels_last(packs), many / 4, false},
          {"time last, long tiles", one, time_contiguous(one), per_lane, true},
          {"time last, time whole", whole, time_contiguous(whole), per_lane, false},
          {"steps apart, long tiles", gaps, {0, 2, 0}, per_lane, true}};
}
std::size_t room(const layout& l) {
  const extents& s = l.shape;
  return static_cast<std::size_t>((s.batch - 1) * l.strides.batch + (s.time - 1) * l.strides.time +
                                  (s.channel - 1) * l.strides.channel + 1);
}
/// One sum per channel, over batch and time.
constexpr strides per_channel{0, 0, 1, 0};

template <class F>
void for_backends(const layout& l, F f) {
  for (const int threads : {1, 3})
    f("tiled, threads " + std::to_string(threads),
      tiled{.threads = threads, .tile_steps = l.tile_steps});
  f("sequential", sequential{});
  f("hillis_steele", hillis_steele{});
  f("blelloch", blelloch{});
}

void check(const std::vector<float>& sums, const layout& l) {
  for (std::int64_t c = 0; c < l.shape.channel; ++c)
    CHECK(sums[static_cast<std::size_t>(c)] == sum_of(l.shape.batch * l.shape.time));
}

}  // namespace

TEST_CASE("at most 256 terms of a sum are added in the compute type",
          "[sequential][tiled][hillis_steele][blelloch][vjp][broadcast]") {
  for (const layout& l : layouts()) {
    const std::size_t n = room(l);
    const float zero = 0;
    const auto channels = static_cast<std::size_t>(l.shape.channel);
    std::vector<float> ones(n, 1), grad(n, term), gate_sum(channels), input_sum(channels);
    std::vector<float> first(static_cast<std::size_t>(l.shape.batch) * channels, 1);
    const sequence_view<const float> gate(&zero, l.shape, strides{0, 0, 0, 0});
    const sequence_view<const float> state(ones.data(), l.shape, l.strides),
        state_grad(grad.data(), l.shape, l.strides);
    const scan_gradients<float> gradients{.gate_grad = {gate_sum.data(), l.shape, per_channel},
                                          .input_grad = {input_sum.data(), l.shape, per_channel}};
    const tiled tiles{.tile_steps = l.tile_steps};
    CHECK(describe(tiles, linear_scan_vjp_problem(gate, state, state_grad, gradients)).time_split ==
          l.split);
    const auto run = [&](const std::string& name, const auto& backend) {
      for (const direction order : {direction::forward, direction::reverse}) {
        INFO(l.name << ", " << name);
        linear_scan_vjp(backend, gate, state, state_grad, gradients,
                        {.order = order, .initial_state = state_view(first.data(), l.shape)});
        check(gate_sum, l);
        check(input_sum, l);
      }
    };
    for_backends(l, run);
#if SCANREC_TEST_EIGEN
    run("triangular_matmul", triangular_matmul{});
#endif
  }
}

TEST_CASE("at most 256 terms are added in the compute type for vector states", "[matrix]") {
  const layout l{"", {1, 1 << 15, 2}, {0, 2, 1, 0}, 1 << 14, true};
  using V = vec<float, 2>;
  using M = mat<float, 2>;
  const M zero{};
  std::vector<V> ones(room(l), {1, 1}), grad(room(l), {term, term}), first(2, {1, 1});
  std::vector<M> sums(2);
  const sequence_view<const M> gate(&zero, l.shape, strides{0, 0, 0, 0});
  for_backends(l, [&](const std::string& name, const auto& backend) {
    INFO(name);
    linear_scan_vjp(backend, gate, sequence_view(ones.data(), l.shape, l.strides),
                    sequence_view(grad.data(), l.shape, l.strides),
                    {.gate_grad = sequence_view(sums.data(), l.shape, per_channel)},
                    {.initial_state = state_view(first.data(), l.shape)});
    for (const M& sum : sums)
      for (const auto& row : sum.at)
        for (const float x : row) CHECK(x == sum_of(l.shape.time));
  });
}

TEST_CASE("at most 256 terms are added in the compute type for recomputed states", "[gated]") {
  for (const layout& l : layouts()) {
    const std::size_t n = room(l);
    const float zero = 0;
    const extents few = memory::checkpoint_extents(l.shape);
    const auto channels = static_cast<std::size_t>(l.shape.channel);
    std::vector<float> ones(n, 1), grad(n, term), rate_sum(channels), x_sum(channels),
        first(static_cast<std::size_t>(l.shape.batch) * channels, 1),
        checkpoints(static_cast<std::size_t>(few.batch * few.time * few.channel), 1);
    const auto summed = [&](std::vector<float>& sums) {
      return sequence_view<float>(sums.data(), l.shape, per_channel);
    };
    const tested::linear_cell::arrays<sequence_view<const float>> arrays{
        {&zero, l.shape, strides{0, 0, 0, 0}}, {ones.data(), l.shape, l.strides}};
    for_backends(l, [&](const std::string& name, const auto& backend) {
      INFO(l.name << ", " << name);
      gated_scan_vjp(backend, tested::linear_cell{}, arrays,
                     memory::recompute{sequence_view(checkpoints.data(), few)},
                     sequence_view(grad.data(), l.shape, l.strides),
                     {.arrays = {summed(rate_sum), summed(x_sum)}},
                     {.initial_state = state_view(first.data(), l.shape)});
      check(rate_sum, l);
      check(x_sum, l);
    });
  }
}
