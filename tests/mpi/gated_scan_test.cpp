// SPDX-License-Identifier: BSD-3-Clause
// Tests of gated scans with time split over MPI processes. Every rank has all arrays, and
// checks the results of its part of time.
#include <cstdint>
#include <string>
#include <vector>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/mpi/gated_scan.hpp>

#include "catch.hpp"
#include "mpi/rank.hpp"
#include "split_time.hpp"

namespace {

using namespace scanrec;
using tested::both;
using tested::on;
using tested::process;

/// The results of gated scans, for the whole sequence or for a part.
template <class T>
struct gated_results {
  std::vector<T> output, states, grads;
  std::vector<compute_t<T>> entering, last, first_grad;

  explicit gated_results(const extents& shape) {
    const auto lanes = static_cast<std::size_t>(shape.group * shape.batch * shape.channel);
    const std::size_t n = lanes * static_cast<std::size_t>(shape.time);
    output.resize(n), states.resize(n), grads.resize(3 * n);
    for (auto* values : {&entering, &last, &first_grad}) values->resize(lanes);
  }
  bool operator==(const gated_results&) const = default;
};

template <class Cell, class T>
void check_gated_parts(const Cell& cell, mpi::exchange how) {
  using V = compute_t<T>;
  const process here;
  split::for_cases<T>([&](const split::whole<T>& w, const std::string& name) {
    if (w.constant) return;
    const extents shape = w.shape;
    const auto boundaries = split::boundaries_of(shape.time, here.size, 9);
    const auto part = static_cast<std::size_t>(here.rank);
    const std::int64_t begin = boundaries[part], end = boundaries[part + 1];
    std::vector<std::uint8_t> zoned(w.input.size());
    for (std::size_t i = 0; i < zoned.size(); ++i) zoned[i] = i % 5 == 0;
    const sequence_view<const bool> zoneout(reinterpret_cast<const bool*>(zoned.data()), shape);
    // Calls f(input arrays, output, stored states, gradients, cotangent, zoneout, extents), all for
    // steps [first, last).
    const auto run = [&](std::int64_t first, std::int64_t last, gated_results<T>& r, auto f) {
      extents own = shape;
      own.time = last - first;
      const auto n = static_cast<std::int64_t>(r.output.size());
      const auto view = [&](std::vector<T>& v, std::int64_t i) {
        return sequence_view<T>(v.data() + i * n, own);
      };
      const typename Cell::template arrays<sequence_view<const T>> arrays{
          w.inputs().steps(first, last), w.gates().steps(first, last),
          w.grads().steps(first, last)};
      gated_gradients<Cell, T> gradients{
          .arrays = {view(r.grads, 0), view(r.grads, 1), view(r.grads, 2)},
          .initial_grad = state_view<V>(r.first_grad.data(), own)};
      f(arrays, view(r.output, 0), memory::store{view(r.states, 0)}, gradients,
        w.inputs().steps(first, last), zoneout.steps(first, last), own);
    };
    const auto split = [&] {
      gated_results<T> r({.batch = shape.batch,
                          .time = end - begin,
                          .channel = shape.channel,
                          .group = shape.group});
      run(begin, end, r,
          [&](const auto& arrays, const auto& output, const auto& kept, const auto& gradients,
              const auto& grad, const auto& zones, const extents& own) {
            mpi::gated_scan(MPI_COMM_WORLD, on, cell, arrays, output, kept,
                            {.order = w.order,
                             .initial_state = w.first_states(),
                             .entering_state = state_view<V>(r.entering.data(), own),
                             .final_state = state_view<V>(r.last.data(), own),
                             .resets = w.resets_of(begin, end),
                             .zoneout = zones,
                             .exchange = how});
            mpi::gated_scan_vjp(MPI_COMM_WORLD, on, cell, arrays, kept, grad, gradients,
                                {.order = w.order,
                                 .entering_state = state_view<const V>(r.entering.data(), own),
                                 .final_grad = w.last_grads(),
                                 .resets = w.resets_of(begin, end),
                                 .zoneout = zones,
                                 .exchange = how});
          });
      return r;
    };
    const gated_results<T> got = split();
    INFO(name << ", rank " << here.rank);
    CHECK((got == split()));
    if constexpr (reference::exact<V>) {
      gated_results<T> want(shape);
      run(0, shape.time, want,
          [&](const auto& arrays, const auto& output, const auto& kept, const auto& gradients,
              const auto& grad, const auto& zones, const extents&) {
            gated_scan(sequential{}, cell, arrays, output, kept,
                       {.order = w.order,
                        .initial_state = w.first_states(),
                        .resets = w.resets_of(0, shape.time),
                        .zoneout = zones});
            gated_scan_vjp(sequential{}, cell, arrays, kept, grad, gradients,
                           {.order = w.order,
                            .initial_state = w.first_states(),
                            .final_grad = w.last_grads(),
                            .resets = w.resets_of(0, shape.time),
                            .zoneout = zones});
          });
      extents own = shape;
      own.time = end - begin;
      const auto same = [&](const std::vector<T>& mine, const std::vector<T>& all, std::size_t i) {
        const sequence_view<const T> of_part(mine.data() + i * got.output.size(), own);
        const auto of_all =
            sequence_view<const T>(all.data() + i * want.output.size(), shape).steps(begin, end);
        reference::for_each_sequence(own, [&](auto g, auto b, auto c) {
          for (std::int64_t t = 0; t < own.time; ++t)
            CHECK(of_part.at(b, t, c, g) == of_all.at(b, t, c, g));
        });
      };
      same(got.output, want.output, 0), same(got.states, want.states, 0);
      for (const std::size_t i : {0, 1, 2}) same(got.grads, want.grads, i);
    }
  });
}

TEST_CASE(
    "a gated scan split over processes gives the results of the whole sequence for exact types "
    "and the same bits in every run") {
  for (const mpi::exchange how : both) {
    check_gated_parts<fo_pooling<activation::identity, activation::identity>, std::uint32_t>({},
                                                                                             how);
    check_gated_parts<fo_pooling<>, float>({.forget_bias = 1}, how);
  }
}

}  // namespace
