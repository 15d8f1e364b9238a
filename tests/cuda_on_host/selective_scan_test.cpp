// SPDX-License-Identifier: BSD-3-Clause
// Tests of selective scans for GPUs, on the emulator. Results are within proven bounds of results
// in long double, in every layout and with every combination of optional arrays. Bits do not depend
// on the schedule. Also covers chunks, resets, invalid arguments and the mapping of calls to
// blocks.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <scanrec/cuda/selective_scan.cuh>

#include "catch.hpp"
#include "emulator.hpp"
#include "reference.hpp"
#include "refused.hpp"
#include "selective_calls.hpp"
#include "selective_golden.hpp"
#include "selective_reference.hpp"

namespace {

using namespace scanrec;
using selective_calls::all_orders;
using selective_calls::call;
using selective_calls::doubled;
using selective_calls::order;
using selective_calls::steps_of;
using selective_calls::usual;
using selective_reference::problem;
using tested::refused;

/// A backend whose calls get a workspace of exactly the required size, filled with 0xff.
struct on_emulator {
  cuda_on_host::stream* stream;
};
struct lent {
  std::unique_ptr<std::byte[]> memory;
  cuda::automatic on;

  lent(const on_emulator& gpu, std::int64_t bytes)
      : memory(new std::byte[static_cast<std::size_t>(bytes) + 1]), on{.stream = gpu.stream} {
    std::memset(memory.get(), 0xff, static_cast<std::size_t>(bytes));
    on.workspace = {memory.get(), bytes};
  }
};
template <class V>
void selective_scan(const on_emulator& gpu, const selective_arrays<V>& arrays,
                    const std::type_identity_t<stored_sequence<detail::real_part_of<V>>>& out,
                    const std::type_identity_t<selective_options<V>>& options) {
  const cuda::automatic on{.stream = gpu.stream};
  const std::int64_t bytes = selective_scan_workspace_bytes(on, arrays, out, options);
  CHECK(bytes == 0);
  selective_scan(on, arrays, out, options);
}
template <class V>
void selective_scan_vjp(
    const on_emulator& gpu, const selective_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<const detail::real_part_of<V>>>& out_grad,
    const std::type_identity_t<selective_gradients<V>>& gradients,
    const std::type_identity_t<selective_vjp_options<V>>& options) {
  const lent room(gpu, selective_scan_vjp_workspace_bytes(cuda::automatic{.stream = gpu.stream},
                                                          arrays, out_grad, gradients, options));
  selective_scan_vjp(room.on, arrays, out_grad, gradients, options);
}

// A GPU computes exponentials as powers of 2, which rounds float rates (A) once more.
template <class V>
constexpr long double rate_error = std::is_same_v<detail::real_part_of<V>, float> ? 0x1p-24L : 0.0L;
using complexes = std::complex<float>;
using double_complexes = std::complex<double>;

template <class V, class S>
void check_random_problems(int count, std::uint64_t seed) {
  cuda_on_host::stream stream;
  selective_calls::check_random_problems<V, S>(
      count, seed, on_emulator{&stream},
      [](problem& p) {
        p.shape.batch = 1 + p.shape.batch % 2;
        p.grows = p.grows && !p.softplus;  // step sizes of 30 would overflow floats
      },
      rate_error<V>);
}

TEST_CASE("selective scans on GPUs are within the error bound, float", "[selective]") {
  check_random_problems<float, float>(20, 1);
}
TEST_CASE("selective scans on GPUs are within the error bound, double", "[selective]") {
  check_random_problems<double, double>(12, 2);
}
TEST_CASE("selective scans on GPUs are within the error bound, 16 bits", "[selective]") {
  check_random_problems<float, bfloat16>(12, 3);
  check_random_problems<float, float16>(6, 4);
}

TEST_CASE("selective scans on GPUs are within the error bound, complex", "[selective]") {
  check_random_problems<complexes, float>(12, 5);
  check_random_problems<complexes, bfloat16>(6, 6);
  check_random_problems<double_complexes, double>(8, 7);
}

TEST_CASE("selective scans on GPUs are within the error bound for every block shape",
          "[selective]") {
  cuda_on_host::stream stream;
  const auto check = [&]<class V, class S>(const problem& p, V, S,
                                           order lies = order::channels_last) {
    INFO(selective_calls::to_string(p));
    call<V, S> of(p, lies, 5);
    of.run(on_emulator{&stream});
    of.check(rate_error<V>);
  };
  // Some blocks have all of their channels, others only a part. The number of blocks selects four
  // states per lane in the forward scan. In the adjoint it selects two, and four for a batch of 23.
  // The 35 steps make
  // one complete and one incomplete chunk. Elements and states have aligned runs along every axis.
  problem many;
  many.shape = {.batch = 22, .time = 35, .channel = 216}, many.groups = 6, many.states = 5;
  many.resets = 2;
  check(many, 0.0f, bfloat16());
  many.intervals = true;
  check(many, 0.0f, bfloat16());
  many.resets = 0, many.intervals = false, many.states = 16, many.shape.time = 67;
  check(many, 0.0f, 0.0f);
  many.shape.time = 68;
  check(many, 0.0f, bfloat16(), order::time_contiguous);
  many.shape.batch = 23, many.shape.time = 35, many.intervals = true;
  check(many, 0.0f, bfloat16());
  problem wide;
  wide.shape = {.batch = 1, .time = 145, .channel = 9};
  for (const std::int64_t states : {16, 37, 64, 65, 256}) {
    wide.states = states;
    check(wide, 0.0f, 0.0f);
    wide.resets = wide.resets == 0 ? 2 : 0, wide.intervals = states > 37;
  }
  for (const std::int64_t states : {64, 128}) wide.states = states, check(wide, 0.0, 0.0);
  for (const std::int64_t states : {37, 128}) wide.states = states, check(wide, complexes(), 0.0f);
  wide.states = 64;
  check(wide, double_complexes(), 0.0);
}

TEST_CASE("selective scans on GPUs accept empty shapes", "[selective]") {
  cuda_on_host::stream stream;
  for (const extents shape : {extents{2, 0, 5}, extents{0, 9, 5}, extents{2, 9, 0}}) {
    problem empty;
    empty.shape = shape, empty.states = 3;
    call<float, float> c(empty, order::channels_last, 14);
    c.run(on_emulator{&stream});
    c.check(rate_error<float>);
  }
}

template <class V>
void check_bits() {
  for (const bool reverse : {false, true}) {
    problem p = usual();
    p.intervals = true;
    if (reverse) p.order = direction::reverse;
    const auto run = [&](std::uint64_t seed, int resident, bool kept) {
      const cuda_on_host::scheduled in{{.seed = seed, .resident_blocks = resident}};
      cuda_on_host::stream stream;
      call<V, float> c(p, order::channels_last, 7);
      c.run(on_emulator{&stream}, kept);
      // The launches are: forward; adjoint; the sums of B, of C and of intervals; the other sums.
      // Without checkpoints, the forward scan runs again. Complex B and C have two sums each.
      CHECK(stream.launches == (kept ? 6 : 7) + (detail::is_complex<V> ? 2 : 0));
      CHECK(stream.clears == 0);
      return std::move(c.got);
    };
    const auto one = run(1, 3, true), other = run(2, 1, false), third = run(3, 9, true);
    CHECK(one == other);
    CHECK(one == third);
  }
}

TEST_CASE("bits on GPUs do not depend on the schedule or on checkpoints", "[selective]") {
  check_bits<float>();
  check_bits<complexes>();
}

TEST_CASE("the layout of arrays changes no bit on GPUs", "[selective]") {
  cuda_on_host::stream stream;
  problem p = usual();
  p.shape.time = 140;
  call<float, bfloat16> first(p, order::channels_last, 8);
  first.run(on_emulator{&stream});
  for (const order lies : all_orders) {
    call<float, bfloat16> other(p, lies, 8);
    other.run(on_emulator{&stream});
    CHECK(selective_calls::bits_of(first) == selective_calls::bits_of(other));
    CHECK(first.got.a == other.got.a);
  }
}

template <class V>
void check_pieces() {
  cuda_on_host::stream stream;
  const on_emulator gpu{&stream};
  problem p = usual();
  p.resets = 0, p.intervals = true;
  call<V, float> whole(p, order::channels_last, 9);
  whole.run(gpu);
  for (const std::int64_t piece : {7, 130}) {
    call<V, float> parts(p, order::channels_last, 9);
    auto& state = parts.in.initial;
    for (std::int64_t t = 0; t < p.shape.time; t += piece) {
      const std::int64_t end = std::min(t + piece, p.shape.time);
      selective_scan(gpu, steps_of(parts, t, end), parts.got.out.sequence().steps(t, end),
                     {.initial_state = state.state(), .final_state = state.state()});
    }
    CHECK(parts.got.out == whole.got.out);
    CHECK(state.elements == whole.got.final_state.elements);
  }
}

TEST_CASE("streams of chunks have the bits of the whole sequence on GPUs", "[selective]") {
  check_pieces<float>();
  check_pieces<complexes>();
}

TEST_CASE("a NaN stays in its channel and ends at a reset on GPUs", "[selective]") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  cuda_on_host::stream stream;
  problem p = usual();
  p.resets = 1, p.intervals = true;
  const auto make = [&] {
    call<float, float> c(p, order::channels_last, 11);
    for (std::int64_t i = 0; i < 600; ++i) c.in.reset_mask[i] = i % 300 == 250;
    return c;
  };
  auto good = make(), bad = make();
  bad.in.u.at(1, 200, 17, 0) = nan;
  bad.in.b.steps.at(0, 200, 1, 2) = nan;  // reaches all channels of its group
  bad.in.initial.at(1, 0, 3, 0) = nan;
  good.run(on_emulator{&stream}), bad.run(on_emulator{&stream});
  const auto touched = [&](std::int64_t b, std::int64_t t, std::int64_t d) {
    if (t >= 250) return false;
    return t >= 200 ? b == 0 ? d >= 21 : d == 3 || d == 17 : b == 1 && d == 3;
  };
  int wrong = 0;
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t t = 0; t < 300; ++t)
      for (std::int64_t d = 0; d < 42; ++d) {
        const float is = bad.got.out.at(b, t, d, 0), was = good.got.out.at(b, t, d, 0);
        wrong += touched(b, t, d) ? !std::isnan(is) : is != was;
        const float of_u = bad.got.u.at(b, t, d, 0), of_u_was = good.got.u.at(b, t, d, 0);
        wrong += b == 1 && d != 17 && d != 3 && of_u != of_u_was;
      }
  CHECK(wrong == 0);
  // After the reset, the gradients of C and of intervals have no NaN. The gradient of C of the
  // other group never has one.
  for (std::int64_t t = 250; t < 300; ++t)
    wrong += bad.got.intervals.at(0, t, 0, 0) != good.got.intervals.at(0, t, 0, 0);
  for (std::int64_t t = 0; t < 300; ++t)
    for (std::int64_t n = 0; n < 6; ++n) {
      if (t >= 250) wrong += bad.got.c.steps.at(0, t, 1, n) != good.got.c.steps.at(0, t, 1, n);
      wrong += bad.got.c.steps.at(0, t, 0, n) != good.got.c.steps.at(0, t, 0, n);
    }
  CHECK(wrong == 0);
}

TEST_CASE("selective_scan_vjp leaves a kept workspace as it was", "[selective][workspace]") {
  // The header, which counts the calls of look_back, stays. The bytes after it are zero again.
  cuda_on_host::stream stream;
  problem p = usual();
  p.shape.channel = 10, p.shape.time = 300;
  call<float, float> used(p, order::time_contiguous, 13);
  cuda::automatic gpu{.stream = &stream};
  const std::int64_t bytes = selective_scan_vjp_workspace_bytes(
      gpu, used.arrays(), used.in.out_grad.sequence(), used.gradients(), used.vjp_options(false));
  std::vector<double> room(static_cast<std::size_t>(bytes / 8 + 1));
  room[0] = 5, room[1] = 6;
  const std::vector<double> before = room;
  gpu.workspace = {room.data(), bytes, cuda::workspace_content::kept};
  selective_scan_vjp(gpu, used.arrays(), used.in.out_grad.sequence(), used.gradients(),
                     used.vjp_options(false));
  CHECK((room == before));
}

template <class V>
void check_added_gradients() {
  cuda_on_host::stream stream;
  const on_emulator gpu{&stream};
  problem p = usual();
  p.shape.channel = 10, p.shape.time = 150, p.intervals = true;
  call<V, double> once(p, order::time_contiguous, 13), twice(p, order::time_contiguous, 13);
  once.run(gpu), twice.run(gpu);
  auto gradients = twice.gradients();
  gradients.update = update::accumulate;
  selective_scan_vjp(gpu, twice.arrays(), twice.in.out_grad.sequence(), gradients,
                     twice.vjp_options());
  CHECK(doubled(once.got.u, twice.got.u));
  CHECK(doubled(once.got.z, twice.got.z));
  CHECK(doubled(once.got.a, twice.got.a));
  CHECK(doubled(once.got.b.steps, twice.got.b.steps));
  CHECK(doubled(once.got.b.imaginary, twice.got.b.imaginary));
  CHECK(doubled(once.got.initial, twice.got.initial));
  CHECK(doubled(once.got.d, twice.got.d));
  CHECK(doubled(once.got.bias, twice.got.bias));
  CHECK(doubled(once.got.intervals, twice.got.intervals));

  // The gradient of delta overwrites delta, that of u overwrites the gradient of the output, and
  // the output overwrites u.
  call<V, double> aliased(p, order::time_contiguous, 13);
  gradients = aliased.gradients();
  gradients.delta = aliased.in.delta.sequence(), gradients.u = aliased.in.out_grad.sequence();
  gradients.b = {}, gradients.d = {}, gradients.a = {};
  selective_scan_vjp(gpu, aliased.arrays(), aliased.in.out_grad.sequence(), gradients,
                     aliased.vjp_options(false));
  CHECK(aliased.in.delta.elements == once.got.delta.elements);
  CHECK(aliased.in.out_grad.elements == once.got.u.elements);
  CHECK(aliased.got.c == once.got.c);
  CHECK(aliased.got.bias == once.got.bias);
  CHECK(aliased.got.intervals == once.got.intervals);
  call<V, double> over(p, order::time_contiguous, 13);
  selective_scan(gpu, over.arrays(), over.in.u.sequence(), over.options());
  CHECK(over.in.u.elements == once.got.out.elements);
  CHECK(over.got.final_state == once.got.final_state);

  // A call that computes only the final state.
  call<V, double> last(p, order::time_contiguous, 13);
  auto arrays = last.arrays();
  selective_scan(gpu, arrays, {}, last.options());
  CHECK(last.got.final_state == once.got.final_state);
}

TEST_CASE("gradients on GPUs accumulate, alias their inputs and may be absent", "[selective]") {
  check_added_gradients<double>();
  check_added_gradients<double_complexes>();
}

TEST_CASE("selective scans on GPUs reject invalid arguments", "[selective][errors]") {
  cuda_on_host::stream stream;
  const on_emulator gpu{&stream};
  problem p = usual();
  p.shape.time = 4;
  call<float, float> c(p, order::channels_last, 16);
  auto arrays = c.arrays();
  arrays.delta = {};
  CHECK(refused([&] { selective_scan(gpu, arrays, c.got.out.sequence(), c.options()); }) ==
        "delta");
  CHECK(refused([&] {
          selective_scan_vjp(gpu, c.arrays(), c.got.checkpoints.sequence(), c.gradients(),
                             c.vjp_options());
        }) == "out_grad");
  CHECK(refused([&] {
          const cuda::automatic without{.stream = &stream};
          selective_scan_vjp(without, c.arrays(), c.in.out_grad.sequence(), c.gradients(),
                             c.vjp_options());
        }) == "workspace");
  p.resets = 0, p.shape.channel = 2;
  p.states = 257;
  call<float, float> many(p, order::channels_last, 16);
  CHECK(refused([&] { selective_scan(gpu, many.arrays(), {}, many.options()); }) == "a");
  p.states = 129;
  call<double, double> wide(p, order::channels_last, 16);
  CHECK(refused([&] { selective_scan(gpu, wide.arrays(), {}, wide.options()); }) == "a");
  call<complexes, float> pairs(p, order::channels_last, 16);
  CHECK(refused([&] { selective_scan(gpu, pairs.arrays(), {}, pairs.options()); }) == "a");
  p.states = 65;
  call<double_complexes, double> wide_pairs(p, order::channels_last, 16);
  CHECK(refused([&] { selective_scan(gpu, wide_pairs.arrays(), {}, wide_pairs.options()); }) ==
        "a");
  CHECK(stream.launches == 0);
}

TEST_CASE("blocks cover every channel of a selective scan once", "[selective]") {
  using cuda::detail::selective_tiles;
  for (const std::int64_t batch : {0, 1, 3})
    for (const std::int64_t groups : {1, 2, 5})
      for (const std::int64_t of_group : {0, 1, 31, 32, 33, 64})
        for (const int tile : {4, 8, 32}) {
          const selective_tiles tiles(batch, groups * of_group, groups, tile);
          std::vector<int> taken(static_cast<std::size_t>(batch * groups * of_group));
          for (std::int64_t k = 0; k < tiles.blocks(); ++k) {
            const auto at = tiles.of(k);
            CHECK(at.count >= 1);
            CHECK(at.count <= tile);
            CHECK(at.channel / of_group == at.group);
            CHECK((at.channel + at.count - 1) / of_group == at.group);
            for (int i = 0; i < at.count; ++i)
              ++taken[at.batch * groups * of_group + at.channel + i];
          }
          CHECK(taken == std::vector<int>(taken.size(), 1));
        }
  const auto each = [](auto value) {
    using V = decltype(value);
    for (const std::int64_t channels : {1, 32, 1536, 8192, 10240, 16384})
      for (const std::int64_t states : {1, 4, 16, 17, 64, 65, 128, 256}) {
        if (states > cuda::detail::selective_most_states<V>) continue;
        const auto check = [&](auto shape) {
          using of = decltype(shape);
          CHECK(of::states >= states);
          CHECK(of::forward_bytes + of::reset_mask_bytes <= cuda::detail::most_shared_bytes);
          CHECK(of::vjp_soft + of::soft_bytes <= cuda::detail::most_shared_bytes);
          CHECK(of::steps % of::sum_steps == 0);
        };
        using enum cuda::detail::selective_pass;
        cuda::detail::with_selective_shape<V, forward>(1, channels, 1, states, check);
        cuda::detail::with_selective_shape<V, adjoint>(1, channels, 1, states, check);
      }
  };
  each(0.0f), each(0.0), each(complexes()), each(double_complexes());
  // More elements than fit in 32 bits.
  const selective_tiles large(1 << 20, 4096, 1, 32);
  CHECK(large.of(large.blocks() - 1).batch == (1 << 20) - 1);
}

TEST_CASE("selective scans on GPUs have the golden bits", "[.golden]") {
  using selective_calls::check_golden;
  cuda_on_host::stream stream;
  const on_emulator on{&stream};
  check_golden<float, float>("float, cuda::automatic", on);
  check_golden<float, bfloat16>("bfloat16, cuda::automatic", on);
  check_golden<complexes, float>("complex_float, cuda::automatic", on);
}

}  // namespace
