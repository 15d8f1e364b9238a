// SPDX-License-Identifier: BSD-3-Clause
// Tests of linear_scan with time split over MPI processes. Every rank has all arrays, and
// checks the results of its part of time.
#include <algorithm>
#include <cmath>
#include <complex>
#include <string>
#include <vector>

#include <scanrec/mpi/linear_scan.hpp>

#include "catch.hpp"
#include "mpi/rank.hpp"
#include "split_time.hpp"

namespace {

using namespace scanrec;
using tested::both;
using tested::on;
using tested::process;

/// The results of one part.
template <class T>
struct results {
  using V = compute_t<T>;
  std::vector<T> x, dx, da, du;
  std::vector<V> entering, last, first_grad;

  results(const split::whole<T>& w, std::int64_t begin, std::int64_t end,
          mpi::exchange how = mpi::exchange::gather) {
    extents shape = w.shape;
    shape.time = end - begin;
    const auto lanes = static_cast<std::size_t>(shape.group * shape.batch * shape.channel);
    const std::size_t n = lanes * static_cast<std::size_t>(shape.time);
    for (auto* values : {&x, &dx, &da, &du}) values->resize(n);
    for (auto* values : {&entering, &last, &first_grad}) values->resize(lanes);
    const auto view = [&](std::vector<T>& v) { return sequence_view<T>(v.data(), shape); };
    const auto states = [&](std::vector<V>& v) { return state_view<V>(v.data(), shape); };
    const auto gate = w.gates().steps(begin, end);
    mpi::linear_scan(MPI_COMM_WORLD, on, gate, w.inputs().steps(begin, end), view(x),
                     {.order = w.order,
                      .initial_state = w.first_states(),
                      .entering_state = states(entering),
                      .final_state = states(last),
                      .resets = w.resets_of(begin, end),
                      .exchange = how});
    // The cotangents of the adjoint serve as tangents.
    mpi::linear_scan_jvp(MPI_COMM_WORLD, on, gate, view(x), w.grads().steps(begin, end),
                         w.inputs().steps(begin, end), view(dx),
                         {.order = w.order,
                          .entering_state = state_view<const V>(entering.data(), shape),
                          .initial_tangent = w.last_grads(),
                          .resets = w.resets_of(begin, end),
                          .exchange = how});
    mpi::linear_scan_vjp(
        MPI_COMM_WORLD, on, gate, view(x), w.grads().steps(begin, end),
        scan_gradients<T>{
            .gate_grad = view(da), .input_grad = view(du), .initial_grad = states(first_grad)},
        {.order = w.order,
         .entering_state = state_view<const V>(entering.data(), shape),
         .final_grad = w.last_grads(),
         .resets = w.resets_of(begin, end),
         .exchange = how});
  }
  bool operator==(const results& o) const {
    using reference::same_bits;
    return same_bits(x, o.x) && same_bits(dx, o.dx) && same_bits(da, o.da) && same_bits(du, o.du) &&
           same_bits(entering, o.entering) && same_bits(last, o.last) &&
           same_bits(first_grad, o.first_grad);
  }
};

/// Checks that the results of a part have the same bits as those of a scan of the whole sequence.
/// Requires a type whose arithmetic is exact.
template <class T>
void check_bits(const split::whole<T>& w, const results<T>& got, std::int64_t begin,
                std::int64_t end) {
  using V = compute_t<T>;
  const process here;
  extents shape = w.shape;
  shape.time = end - begin;
  std::vector<T> x(w.input.size()), dx(x), da(x), du(x);
  std::vector<V> first_grad(w.first.size());
  linear_scan(sequential{}, w.gates(), w.inputs(), w.over(x),
              {.order = w.order,
               .initial_state = w.first_states(),
               .resets = w.resets_of(0, w.shape.time)});
  linear_scan_vjp(sequential{}, w.gates(), w.over(x), w.grads(),
                  scan_gradients<T>{.gate_grad = w.over(da),
                                    .input_grad = w.over(du),
                                    .initial_grad = state_view<V>(first_grad.data(), w.shape)},
                  {.order = w.order,
                   .initial_state = w.first_states(),
                   .final_grad = w.last_grads(),
                   .resets = w.resets_of(0, w.shape.time)});
  linear_scan_jvp(sequential{}, w.gates(), w.over(x), w.grads(), w.inputs(), w.over(dx),
                  {.order = w.order,
                   .initial_state = w.first_states(),
                   .initial_tangent = w.last_grads(),
                   .resets = w.resets_of(0, w.shape.time)});
  const auto same = [&](const std::vector<T>& mine, std::vector<T>& all) {
    const sequence_view<const T> part(mine.data(), shape);
    reference::for_each_sequence(w.shape, [&](auto g, auto b, auto c) {
      for (std::int64_t t = begin; t < end; ++t)
        CHECK(part.at(b, t - begin, c, g) == w.over(all).at(b, t, c, g));
    });
  };
  same(got.x, x), same(got.dx, dx), same(got.da, da), same(got.du, du);
  const bool first = here.rank == (w.order == direction::forward ? 0 : here.size - 1);
  if (first) CHECK(got.first_grad == first_grad);
}

template <class T>
void check_parts(mpi::exchange how) {
  using V = compute_t<T>;
  const process here;
  split::for_cases<T>([&](const split::whole<T>& w, const std::string& name) {
    const auto boundaries = split::boundaries_of(w.shape.time, here.size, 3);
    const auto part = static_cast<std::size_t>(here.rank);
    const std::int64_t begin = boundaries[part], end = boundaries[part + 1];
    const results<T> got(w, begin, end, how);
    const std::string where = name + ", rank " + std::to_string(here.rank);
    extents shape = w.shape;
    shape.time = end - begin;
    w.check_states({got.x.data(), shape}, begin, end, where + ": states");
    w.check_input_grads({got.du.data(), shape}, begin, end, where + ": gradients");
    CHECK((got == results<T>(w, begin, end, how)));  // a second run has the same bits
    if constexpr (reference::exact<V>) check_bits(w, got, begin, end);
  });
}

TEST_CASE("a scan split over processes has the states and gradients of the whole sequence") {
  for (const mpi::exchange how : both) {
    check_parts<float>(how);
    check_parts<double>(how);
    check_parts<std::complex<float>>(how);
    check_parts<bfloat16>(how);
    check_parts<std::uint32_t>(how);
  }
}

TEST_CASE("a part with decaying gates has the states of the whole sequence") {
  const process here;
  for (const direction order : {direction::forward, direction::reverse}) {
    const extents shape{.batch = 2, .time = 40000 * here.size, .channel = 2};
    split::whole<float> w(shape, order, false, false, 77);
    for (float& a : w.gate) a = 0.9f + 0.05f * a;
    const std::int64_t begin = 40000 * here.rank, end = begin + 40000;
    const results<float> got(w, begin, end);
    extents own = shape;
    own.time = 40000;
    const std::string where = "rank " + std::to_string(here.rank);
    w.check_states({got.x.data(), own}, begin, end, where);
    CHECK((got == results<float>(w, begin, end)));
    if (order == direction::reverse) continue;
    // The same scan, with states that overwrite the inputs.
    std::vector<float> x(got.x.size());
    const sequence_view<float> in_place(x.data(), own);
    reference::for_each_sequence(own, [&](auto g, auto b, auto c) {
      for (std::int64_t t = 0; t < own.time; ++t)
        in_place.at(b, t, c, g) = w.inputs().at(b, begin + t, c, g);
    });
    mpi::linear_scan(
        MPI_COMM_WORLD, on, w.gates().steps(begin, end), sequence_view<const float>(in_place),
        in_place,
        {.order = order, .initial_state = w.first_states(), .resets = w.resets_of(begin, end)});
    w.check_states({x.data(), own}, begin, end, where + ", in place");
  }
  // Even gates: products soon vanish modulo 2^32.
  for (const direction order : {direction::forward, direction::reverse})
    for (const bool resets : {false, true}) {
      const extents shape{.batch = 1, .time = 20000 * here.size, .channel = 8};
      split::whole<std::uint32_t> w(shape, order, resets, false, 78);
      for (std::uint32_t& a : w.gate) a &= ~1u;
      const std::int64_t begin = 20000 * here.rank, end = begin + 20000;
      check_bits(w, results<std::uint32_t>(w, begin, end), begin, end);
    }
}

TEST_CASE("states that are not finite cross parts as in the sequential loop") {
  // The states of channels 0 and 1 reach 2^255, which only the wide type (double) can hold. Then
  // gates halve the state of channel 0 and multiply that of channel 1 by zero. Channel 2 has gates
  // of 1 throughout.
  const process here;
  const extents shape{.batch = 1, .time = 600, .channel = 3};
  std::vector<float> gate(1800), input(1800, 0.0f), want(1800), got(1800);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const std::size_t t = i / 3;
    const float back = i % 3 == 0 ? 0.5f : 0.0f;
    gate[i] = i % 3 == 2 || t >= 512 ? 1.0f : t < 256 ? 2.0f : back;
    input[i] = t == 0 ? 1.0f : 0.0f;
  }
  const sequence_view<float> a(gate.data(), shape), u(input.data(), shape);
  linear_scan(sequential{}, a, u, sequence_view<float>(want.data(), shape));
  const std::int64_t begin = 600 * here.rank / here.size, end = 600 * (here.rank + 1) / here.size;
  const auto x = sequence_view<float>(got.data(), shape).steps(begin, end);
  for (const mpi::exchange how : both) {
    std::fill(got.begin(), got.end(), 0.0f);
    mpi::linear_scan(MPI_COMM_WORLD, on, a.steps(begin, end), u.steps(begin, end), x,
                     {.exchange = how});
    for (std::int64_t i = 3 * begin; i < 3 * end; ++i) {
      const float g = got[static_cast<std::size_t>(i)], w = want[static_cast<std::size_t>(i)];
      INFO("element " << i);
      CHECK((g == w || (std::isnan(g) && std::isnan(w))));
    }
  }
}

TEST_CASE("if one process fails, all processes throw and none writes") {
  const process here;
  const int bad = here.size / 2;
  const extents shape{.batch = 1, .time = 4, .channel = 3};
  std::vector<float> gate(12, 0.5f), input(12, 1.0f), state(12, 7.0f);
  const sequence_view<float> a(gate.data(), shape), u(input.data(), shape), x(state.data(), shape);
  const auto untouched = [&] { CHECK(state == std::vector<float>(12, 7.0f)); };
  const auto refused = [&](bool mine, auto call) {
    try {
      call();
      FAIL("nothing thrown");
    } catch (const argument_error& e) {
      CHECK(mine);
    } catch (const mpi::error& e) {
      CHECK_FALSE(mine);
      CHECK(std::string(e.what()).find("rank " + std::to_string(bad)) != std::string::npos);
    }
    untouched();
  };
  refused(here.rank == bad, [&] {
    const auto wrong = here.rank == bad ? u.steps(0, 3) : u;
    mpi::linear_scan(MPI_COMM_WORLD, on, a, wrong, x);
  });
  refused(here.rank == bad, [&] {
    std::vector<float> first(1);
    mpi::linear_scan_vjp(
        MPI_COMM_WORLD, on, a, none, u,
        scan_gradients<float>{
            .initial_grad = state_view<float>(first.data(), shape,
                                              here.rank == bad ? strides{} : strides{3, 0, 1})});
  });
  // Shapes or exchanges that differ between processes.
  if (here.size > 1) {
    const std::int64_t channels = here.rank == bad ? 2 : 3;
    CHECK_THROWS_AS(mpi::linear_scan(MPI_COMM_WORLD, on, a.channels(0, channels),
                                     u.channels(0, channels), x.channels(0, channels)),
                    mpi::error);
    untouched();
    CHECK_THROWS_AS(mpi::linear_scan(MPI_COMM_WORLD, on, a, u, x,
                                     {.exchange = here.rank == bad ? both[1] : both[0]}),
                    mpi::error);
    untouched();
  }
}

TEST_CASE("composed maps may overflow if they multiply a zero state") {
  // Parts 1 and 2 each multiply a zero state by 2^600. A double cannot hold the product of the two
  // factors.
  const process here;
  const extents shape{.batch = 1, .time = 600};
  const std::vector<double> gate(600, here.rank == 1 || here.rank == 2 ? 2.0 : 0.5);
  const std::vector<double> input(600, here.rank > 2 ? 1.0 : 0.0);
  std::vector<double> got(600, 7), want(600);
  const sequence_view<const double> a(gate.data(), shape), u(input.data(), shape);
  linear_scan(sequential{}, a, u, sequence_view<double>(want.data(), shape));
  mpi::linear_scan(MPI_COMM_WORLD, on, a, u, sequence_view<double>(got.data(), shape),
                   {.exchange = mpi::exchange::scan});
  if (here.rank <= 3) CHECK(got == want);
  for (const double x : got) CHECK(std::isfinite(x));
}

}  // namespace
