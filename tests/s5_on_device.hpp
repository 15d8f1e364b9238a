// SPDX-License-Identifier: BSD-3-Clause
// Compares state spaces on GPUs with state spaces on CPUs. s5_test.cpp checks the latter against
// high-precision values and central differences. These tests run on the emulator and on GPUs.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <scanrec/cuda/s5.cuh>
#include <scanrec/cuda/scan.cuh>
#include <scanrec/s5_init.hpp>

#include "catch.hpp"
#include "device_vector.hpp"

namespace {

using namespace scanrec;
using tested::shared_vector;

/// The parameters of a system in memory that a GPU can read.
template <class R>
struct parameters {
  using complex = std::complex<R>;
  shared_vector<complex> lambda, input, output;
  shared_vector<R> feedthrough, log_step;
  scanrec::cuda::s5_system<R> system;

  explicit parameters(const s5_system<R>& s) {
    const auto copy = [](auto& to, const auto& from) {
      to.assign(from.data(), from.data() + from.size());
    };
    copy(lambda, s.lambda), copy(input, s.input), copy(output, s.output);
    copy(feedthrough, s.feedthrough), copy(log_step, s.log_step);
    system = {.lambda = lambda.data(),
              .input = input.data(),
              .output = output.data(),
              .feedthrough = feedthrough.empty() ? nullptr : feedthrough.data(),
              .log_step = log_step.data(),
              .states = s.lambda.size(),
              .inputs = s.input.cols(),
              .outputs = s.output.rows(),
              .bidirectional = s.bidirectional(),
              .method = s.method,
              .conjugate_symmetry = s.conjugate_symmetry};
  }
};

/// All arrays of a call of s5() and one of s5_vjp(). The batch stride of sequences is `apart` steps
/// longer than needed.
template <class R>
struct arrays {
  using complex = std::complex<R>;
  extents shape;
  std::int64_t P, C, Q, apart;  // P states, C in all directions, Q outputs
  shared_vector<R> u, y, y_grad, u_grad, intervals, intervals_grad;
  shared_vector<complex> states, scratch, gates, start, last, last_grad, start_grad;
  shared_vector<char> reset_mask;

  arrays(const s5_system<R>& s, const extents& of_u, std::int64_t more_steps)
      : shape(of_u),
        P(s.lambda.size()),
        C(s.state_channels()),
        Q(s.output.rows()),
        apart(more_steps) {
    std::mt19937 bits(5);
    const auto number = [&] { return static_cast<R>(bits()) / R(4294967296.0) * 2 - 1; };
    const auto fill = [&](auto& v, std::int64_t channels, bool boundary_states = false) {
      v.resize(static_cast<std::size_t>(shape.batch * (boundary_states ? 1 : shape.time + apart) *
                                        channels));
      for (auto& x : v) {
        if constexpr (sizeof(x) == sizeof(R))
          x = number();
        else
          x = complex(number(), number());
      }
    };
    fill(u, of_u.channel), fill(y, Q), fill(y_grad, Q), fill(u_grad, of_u.channel);
    fill(intervals, 1), fill(intervals_grad, 1);
    for (R& x : intervals) x = std::abs(x);
    fill(states, C), fill(scratch, C), fill(gates, P);
    fill(start, P, true), fill(last, P, true), fill(last_grad, P, true), fill(start_grad, P, true);
    reset_mask.resize(intervals.size());
    for (char& m : reset_mask) m = bits() % 8 == 0;
  }
  template <class E>
  auto view(shared_vector<E>& v, std::int64_t channels) const {
    return sequence_view<E>(
        v.data(), {.batch = shape.batch, .time = shape.time, .channel = channels},
        {.batch = (shape.time + apart) * channels, .time = channels, .channel = 1, .group = 0});
  }
  auto edge(shared_vector<complex>& v) const {
    return state_view<complex>(v.data(), {.batch = shape.batch, .time = 1, .channel = P});
  }
  sequence_view<const bool> resets() const {
    // If rows have gaps, the mask has one more element per row, after the last step.
    return {reinterpret_cast<const bool*>(reset_mask.data()),
            {.batch = shape.batch, .time = shape.time + (apart > 0 ? 1 : 0), .channel = 1},
            {.batch = shape.time + apart, .time = 1, .channel = 1, .group = 0}};
  }
  s5_options<R> forward_options(bool varies) {
    s5_options<R> o{.resets = resets()};
    if (C == P) o.initial_state = edge(start), o.final_state = edge(last);
    if (varies) o.intervals = view(intervals, 1), o.gates = view(gates, P);
    return o;
  }
  s5_vjp_options<R> vjp_options(bool varies, bool in_place) {
    s5_vjp_options<R> o{.resets = resets()};
    if (C == P)
      o.initial_state = edge(start), o.final_grad = edge(last_grad),
      o.initial_grad = edge(in_place ? last_grad : start_grad);
    if (varies)
      o.intervals = view(intervals, 1), o.gates = view(gates, P),
      o.intervals_grad = view(intervals_grad, 1);
    return o;
  }
};

template <class V, class W>
double distance(const V& got, const W& want) {
  double most = 0, size = 1;
  for (std::size_t i = 0; i < want.size(); ++i) {
    size = std::max<double>(size, std::abs(want[i]));
    const double apart = std::abs(got[i] - want[i]);
    most = apart <= most ? most : apart;  // keeps a NaN
  }
  return most / size;
}
// The distance between an array that a GPU wrote and a matrix on the host.
template <class V, class M>
double apart(const V& got, const M& want) {
  return distance(got, std::vector<typename M::Scalar>(want.data(), want.data() + want.size()));
}

template <class R, class Backend>
void check(const std::string& name, s5_system<R> system, const extents& shape, bool varies,
           std::int64_t more_steps, Backend on, bool in_place = false) {
  // The workspace holds NaNs if `in_place`. Otherwise its content is `kept`: zeros, or for `lanes`
  // a header of ones and then zeros, which the call must leave unchanged.
  const bool kept = !in_place;
  INFO(name << ", T " << shape.time << ", varies " << varies << ", in place " << in_place);
  const tested::device_stream s;
  on.stream = s.get();
  arrays<R> want(system, shape, more_steps), got = want;
  s5_system<R> want_grads = system.zeros();
  want_grads.lambda.setOnes(), want_grads.output.setOnes();
  const parameters<R> device(system), gradients(want_grads);
  const auto forward = [&](arrays<R>& a, auto call) {
    call(a.view(a.u, shape.channel), a.view(a.states, a.C), a.view(a.y, a.Q),
         a.forward_options(varies));
  };
  const auto backward = [&](arrays<R>& a, auto call) {
    call(a.view(a.u, shape.channel), a.view(a.states, a.C), a.view(a.y_grad, a.Q),
         a.view(a.scratch, a.C), a.view(in_place ? a.u : a.u_grad, shape.channel),
         a.vjp_options(varies, in_place));
  };
  forward(want, [&](const auto&... a) { s5(sequential{}, system, a...); });
  backward(want, [&](const auto& u, const auto& x, const auto& dy, const auto& room, const auto& du,
                     const auto& o) {
    s5_vjp(sequential{}, system, sequence_view<const R>(u), sequence_view<const std::complex<R>>(x),
           sequence_view<const R>(dy), room, want_grads, du, o);
  });

  shared_vector<double> memory;
  const auto with_room = [&](std::int64_t bytes, auto call) {
    using content = scanrec::cuda::workspace_content;
    memory.assign(static_cast<std::size_t>((bytes + 7) / 8),
                  kept ? 0.0 : std::numeric_limits<double>::quiet_NaN());
    constexpr bool by_lanes = std::is_same_v<Backend, scanrec::cuda::lanes>;
    if (kept && by_lanes && memory.size() >= 2) memory[0] = memory[1] = 1;  // the header
    const std::vector<double> before(memory.begin(), memory.end());
    on.workspace = {memory.data(), bytes, kept ? content::kept : content::unknown};
    call();
    s.finish();
    if (kept && by_lanes) CHECK(std::equal(memory.begin(), memory.end(), before.begin()));
  };
  forward(got, [&](const auto&... a) {
    with_room(scanrec::cuda::s5_workspace_bytes(on, device.system, a...),
              [&] { scanrec::cuda::s5(on, s.blas(), device.system, a...); });
  });
  backward(got, [&](const auto& u, const auto& x, const auto& dy, const auto& room, const auto& du,
                    const auto& o) {
    with_room(scanrec::cuda::s5_vjp_workspace_bytes(on, device.system, u, x, dy, room,
                                                    gradients.system, du, o),
              [&] {
                scanrec::cuda::s5_vjp(on, s.blas(), device.system, u, x, dy, room, gradients.system,
                                      du, o);
              });
  });

  const double bound = 400 * std::numeric_limits<R>::epsilon();
  CHECK(distance(got.y, want.y) <= bound);
  CHECK(distance(got.states, want.states) <= bound);
  CHECK(distance(got.last, want.last) <= bound);
  CHECK(distance(got.u_grad, want.u_grad) <= bound);
  CHECK(distance(got.u, want.u) <= bound);
  CHECK(distance(got.last_grad, want.last_grad) <= bound);
  CHECK(distance(got.start_grad, want.start_grad) <= bound);
  CHECK(distance(got.intervals_grad, want.intervals_grad) <= bound);
  if (varies) CHECK(distance(got.gates, want.gates) <= bound);
  CHECK(apart(gradients.lambda, want_grads.lambda) <= bound);
  CHECK(apart(gradients.input, want_grads.input) <= bound);
  CHECK(apart(gradients.output, want_grads.output) <= bound);
  CHECK(apart(gradients.feedthrough, want_grads.feedthrough) <= bound);
  CHECK(apart(gradients.log_step, want_grads.log_step) <= bound);
}

TEST_CASE("state spaces on a GPU equal those on a CPU within rounding",
          "[s5][cuda_lanes][cuda_look_back]") {
  const auto each = []<class R>(R) {
    std::mt19937 engine(7);
    for (const bool bidirectional : {false, true}) {
      s5_system<R> s = make_s5<R>({.channels = 3,
                                   .states = 72,
                                   .blocks = 2,
                                   .bidirectional = bidirectional,
                                   .least_step = 0.1,
                                   .most_step = 0.5},
                                  engine);
      const scanrec::cuda::lanes lanes{.stream = nullptr};
      const scanrec::cuda::look_back look_back{.stream = nullptr};
      for (const auto method : {discretisation::zero_order_hold, discretisation::bilinear})
        for (const bool varies : {false, true}) {
          s.method = method;
          const std::string name = bidirectional ? "bidirectional" : "one direction";
          check(name, s, {.batch = 2, .time = 70, .channel = 3}, varies, 0, lanes);
          check(name, s, {.batch = 3, .time = 70, .channel = 3}, varies, 2, lanes);
          check(name, s, {.batch = 2, .time = 70, .channel = 3}, varies, 0, look_back);
          check(name, s, {.batch = 2, .time = 70, .channel = 3}, varies, 1,
                scanrec::cuda::automatic{.stream = nullptr}, true);
        }
      for (const bool varies : {false, true}) {
        check("no steps", s, {.batch = 2, .time = 0, .channel = 3}, varies, 1, lanes);
        check("one step", s, {.batch = 2, .time = 1, .channel = 3}, varies, 0, lanes, true);
        check("no rows", s, {.batch = 0, .time = 5, .channel = 3}, varies, 0, lanes);
      }
      s.feedthrough.resize(0), s.conjugate_symmetry = false;
      check("without feedthrough or symmetry", s, {.batch = 2, .time = 20, .channel = 3}, false, 0,
            lanes);
    }
    check("ring", make_lru<R>({.channels = 3, .states = 5, .least_radius = 0.4}, engine),
          {.batch = 2, .time = 50, .channel = 3}, false, 0,
          scanrec::cuda::lanes{.stream = nullptr});
  };
  each(float{});
  each(double{});
}

TEST_CASE("state spaces on a GPU reject invalid arguments", "[s5][arguments]") {
  std::mt19937 engine(7);
  s5_system<float> system = make_s5<float>({.channels = 2, .states = 8}, engine);
  const extents shape{.batch = 1, .time = 10, .channel = 2};
  arrays<float> a(system, shape, 0);
  const tested::device_stream s;
  const scanrec::cuda::lanes on{.stream = s.get()};
  const parameters<float> device(system);
  const auto error = [&](auto change) {
    auto changed = device.system;
    change(changed);
    try {
      scanrec::cuda::s5(on, s.blas(), changed, a.view(a.u, 2), a.view(a.states, a.C),
                        a.view(a.y, 2), {});
    } catch (const argument_error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const auto says = [](const std::string& what, const char* part) {
    INFO(what);
    CHECK(what.find(part) != std::string::npos);
  };
  says(error([](auto&) {}), "workspace");
  says(error([](auto& d) { d.lambda = nullptr; }), "a pointer to lambda");
  says(error([](auto& d) { d.inputs = 3; }), "feedthrough");
  says(error([](auto& d) { d.states = -1; }), "system");
  says(error([](auto& d) { d.outputs = d.inputs = 3; }), "u");
}

}  // namespace
