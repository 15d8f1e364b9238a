// SPDX-License-Identifier: BSD-3-Clause
// Numerics of the linear scans: adjoint identities, accuracy for gates near 1, NaN, infinity and
// overflow.
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <scanrec/scan.hpp>

#include "catch.hpp"
#include "tested_backend.hpp"

namespace {

using namespace scanrec;

template <class T>
tested::backend<T> named(const auto& backend) {
  return {"", backend};
}
const std::vector<tested::backend<float>> tilings {
  named<float>(tiled{}), named<float>(tiled{.threads = 2, .tile_steps = 16}),
      named<float>(tiled{.threads = 3, .tile_steps = 48}),
#if defined(SCANREC_TEST_CUDA)
      named<float>(tested::device_backend::lanes), named<float>(tested::device_backend::look_back),
      named<float>(tested::device_backend::look_back_short_tiles),
#endif
};
const auto loop = named<float>(sequential{});

struct layout_of {
  extents shape;
  scanrec::strides strides;
};
std::vector<layout_of> layouts(const extents& s) {
  return {{s, channels_last(s)}, {s, time_contiguous(s)}};
}

template <class T>
std::vector<T> random(std::size_t n, unsigned seed, double low = -1, double high = 1) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> u(low, high);
  std::vector<T> v(n);
  for (auto& x : v) {
    if constexpr (detail::is_complex<T>)
      x = T(u(engine), u(engine));
    else
      x = static_cast<T>(u(engine));
  }
  return v;
}

// The inner product of x and y: conjugates x if `conj` is set, and is bilinear otherwise.
template <class T>
T pairing(const std::vector<T>& x, const std::vector<T>& y, bool conj) {
  T sum(0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if constexpr (detail::is_complex<T>)
      sum += (conj ? std::conj(x[i]) : x[i]) * y[i];
    else
      sum += x[i] * y[i];
  }
  return sum;
}

template <class T>
void check_dot_product() {
  const extents shape{3, 61, 18};
  const std::size_t n = 3 * 61 * 18, m = 3 * 18;
  for (const auto& [s, strides] : layouts(shape))
    for (const auto& backend : tested::backends<T>())
      for (const direction order : {direction::forward, direction::reverse})
        for (const bool conj : {true, false}) {
          auto a = random<T>(n, 1), u = random<T>(n, 2), ta = random<T>(n, 3), tu = random<T>(n, 4),
               w = random<T>(n, 5), x0 = random<T>(m, 6), tx0 = random<T>(m, 7),
               wT = random<T>(m, 8);
          std::vector<T> x(n), tx(n), da(n), du(n), dx0(m), txT(m);
          std::vector<std::uint8_t> starts(3 * 61);
          for (std::size_t i = 0; i < starts.size(); ++i) starts[i] = i % 11 == 5;
          const sequence_view<const bool> resets(reinterpret_cast<const bool*>(starts.data()),
                                                 {3, 61, 1}, scanrec::strides{61, 1, 0});
          const auto view = [&](std::vector<T>& v) {
            return sequence_view<T>(v.data(), s, strides);
          };
          const auto edge = [&](std::vector<T>& v) { return state_view<T>(v.data(), s); };
          linear_scan(backend, view(a), view(u), view(x),
                      {.order = order, .initial_state = edge(x0), .resets = resets});
          linear_scan_jvp(backend, view(a), view(x), view(ta), view(tu), view(tx),
                          {.order = order,
                           .initial_state = edge(x0),
                           .initial_tangent = edge(tx0),
                           .final_tangent = edge(txT),
                           .resets = resets});
          linear_scan_vjp(
              backend, view(a), view(x), view(w),
              {.gate_grad = view(da), .input_grad = view(du), .initial_grad = edge(dx0)},
              {.order = order,
               .initial_state = edge(x0),
               .final_grad = edge(wT),
               .resets = resets,
               .convention = conj ? conjugation::hermitian : conjugation::none});
          const T left = pairing(w, tx, conj) + pairing(wT, txT, conj);
          const T right = pairing(da, ta, conj) + pairing(du, tu, conj) + pairing(dx0, tx0, conj);
          INFO("order " << static_cast<int>(order) << " conj " << conj);
          CHECK(std::abs(left - right) <= 1e-12 * (1 + std::abs(left)) * 100);
        }
}

}  // namespace

TEST_CASE("<J v, w> = <v, J^T w>", "[numerics][adjoint][backends][vjp][jvp]") {
  check_dot_product<double>();
#if defined(SCANREC_TEST_COMPLEX_DOUBLE)
  check_dot_product<std::complex<double>>();
#endif
}

TEST_CASE("the adjoint agrees with central differences",
          "[numerics][adjoint][tiled][vjp][initial_grad]") {
  const extents shape{2, 9, 3};
  const std::size_t n = 54, m = 6;
  auto a = random<double>(n, 1), u = random<double>(n, 2), w = random<double>(n, 3),
       x0 = random<double>(m, 4), wT = random<double>(m, 5);
  std::vector<double> x(n), da(n), du(n), dx0(m), xT(m);
  using view = sequence_view<double>;
  using edge = state_view<double>;
  const auto backend = named<double>(tiled{});
  const auto loss = [&] {
    linear_scan(backend, view(a.data(), shape), view(u.data(), shape), view(x.data(), shape),
                {.initial_state = edge(x0.data(), shape), .final_state = edge(xT.data(), shape)});
    return pairing(w, x, false) + pairing(wT, xT, false);
  };
  loss();
  linear_scan_vjp(backend, view(a.data(), shape), view(x.data(), shape), view(w.data(), shape),
                  {.gate_grad = view(da.data(), shape),
                   .input_grad = view(du.data(), shape),
                   .initial_grad = edge(dx0.data(), shape)},
                  {.initial_state = edge(x0.data(), shape), .final_grad = edge(wT.data(), shape)});
  const auto check = [&](std::vector<double>& at, const std::vector<double>& gradient) {
    for (std::size_t i = 0; i < at.size(); ++i) {
      const double kept = at[i], h = 1e-5;
      at[i] = kept + h;
      const double up = loss();
      at[i] = kept - h;
      const double down = loss();
      at[i] = kept;
      CHECK(std::abs((up - down) / (2 * h) - gradient[i]) < 1e-8);
    }
  };
  check(a, da);
  check(u, du);
  check(x0, dx0);
}

TEST_CASE("the adjoint reads a state that is broadcast over time and channels",
          "[numerics][broadcast][tiled][vjp]") {
  // One state for all steps and channels. The sequences are long enough to be split into tiles.
  for (const extents shape : {extents{1, 1 << 16, 1}, extents{1, 1 << 13, 64}}) {
    const std::size_t n = static_cast<std::size_t>(shape.time * shape.channel);
    auto a = random<double>(n, 1), w = random<double>(n, 2);
    std::vector<double> state(1, 0.5), da(n), du(n);
    using view = sequence_view<double>;
    for (const auto& [s, strides] : layouts(shape)) {
      linear_scan_vjp(
          named<double>(tiled{}), view(a.data(), s, strides),
          view(state.data(), s, scanrec::strides{0, 0, 0}), view(w.data(), s, strides),
          {.gate_grad = view(da.data(), s, strides), .input_grad = view(du.data(), s, strides)});
      bool right = true;
      for (std::int64_t t = 0; t < s.time; ++t)
        for (std::int64_t c = 0; c < s.channel; ++c) {
          const std::int64_t i = t * strides.time + c * strides.channel;
          right = right && da[i] == (t == 0 ? 0 : 0.5 * du[i]);
        }
      CHECK(right);
    }
  }
}

TEST_CASE("for gates near 1 the error of tiled scans is at most twice that of the sequential loop",
          "[numerics][bound][sequential][tiled][forward]") {
  const extents shape{1, 1 << 18, 1};
  const std::size_t n = 1 << 18;
  for (const double low : {0.999, 0.99999}) {
    auto a = random<float>(n, 1, low, 1), u = random<float>(n, 2);
    std::vector<float> x(n), y(n);
    using view = sequence_view<float>;
    linear_scan(loop, view(a.data(), shape), view(u.data(), shape), view(x.data(), shape));
    linear_scan(named<float>(tiled{}), view(a.data(), shape), view(u.data(), shape),
                view(y.data(), shape));
    REQUIRE(describe(tiled{}, linear_scan_problem(view(a.data(), shape), view(u.data(), shape),
                                                  view(y.data(), shape)))
                .time_split);
    long double exact = 0, by_loop = 0, tile = 0;
    for (std::size_t t = 0; t < n; ++t) {
      exact = static_cast<long double>(a[t]) * exact + u[t];
      by_loop = std::max(by_loop, std::abs(x[t] - exact));
      tile = std::max(tile, std::abs(y[t] - exact));
    }
    INFO("loop " << static_cast<double>(by_loop) << ", tiled " << static_cast<double>(tile));
    CHECK(tile <= 2 * by_loop);
  }
}

TEST_CASE("with the default tile size the bits do not depend on the number of threads",
          "[numerics][determinism][tiled][forward][vjp]") {
  for (const extents shape : {extents{1, 1 << 18, 1}, extents{2, 1 << 13, 16}}) {
    const std::size_t n = static_cast<std::size_t>(shape.batch * shape.time * shape.channel);
    const strides once{.batch = 0, .time = 0, .channel = 1};
    auto a = random<float>(n, 1, 0.5, 1), u = random<float>(n, 2), w = random<float>(n, 3);
    using floats = std::vector<float>;
    const auto results = [&](int threads) {
      floats x(n), da(n), du(n), sums(16);
      const auto view = [&](floats& v) { return sequence_view<float>(v.data(), shape); };
      const tiled options{.threads = threads};
      const auto backend = named<float>(options);
      linear_scan(backend, view(a), view(u), view(x));
      linear_scan_vjp(backend, view(a), view(x), view(w),
                      {.gate_grad = view(da), .input_grad = view(du)});
      linear_scan_vjp(backend, view(a), view(x), view(w),
                      {.gate_grad = sequence_view<float>(sums.data(), shape, once)});
      REQUIRE(describe(options, linear_scan_problem(view(a), view(u), view(x))).time_split);
      for (const floats& part : {da, du, sums}) x.insert(x.end(), part.begin(), part.end());
      return x;
    };
    const floats one = results(1);
    for (const int threads : {2, 3, 7, 0})
      CHECK(std::memcmp(results(threads).data(), one.data(), one.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("long sequences are exact in integers and round alike for any number of threads",
          "[numerics][determinism][threaded][forward][vjp][resets]") {
  for (const extents shape : {extents{1, 20011, 1}, extents{2, 9000, 3}})
    for (const scanrec::strides strides : {channels_last(shape), time_contiguous(shape)})
      for (const int mask_steps : {0, 1})
        for (const bool shared_gate : {false, true}) {
          const std::size_t n = shape.batch * shape.time * shape.channel;
          std::vector<std::uint8_t> starts(shape.batch * shape.time);
          for (std::size_t i = 0; i < starts.size(); ++i) starts[i] = i % 1237 == 77;
          sequence_view<const bool> resets;
          if (mask_steps)
            resets = {reinterpret_cast<const bool*>(starts.data()),
                      {shape.batch, shape.time, 1},
                      scanrec::strides{shape.time, 1, 0}};
          const auto results = [&](const auto& backend, auto zero) {
            using T = decltype(zero);
            std::mt19937 engine(9);
            std::vector<T> a(n), u(n), x(n), da(n), du(n);
            for (auto* v : {&a, &u})
              for (T& y : *v)
                y = std::is_same_v<T, float>
                        ? static_cast<T>(static_cast<double>(engine()) * 0x1p-32)
                        : static_cast<T>(engine());
            const auto view = [&](std::vector<T>& v) {
              return sequence_view<T>(v.data(), shape, strides);
            };
            sequence_view<T> gate = view(a);
            if (shared_gate) gate.strides = {0, 0, 1};
            linear_scan(backend, gate, view(u), view(x), {.resets = resets});
            linear_scan_vjp(backend, gate, view(x), view(u),
                            {.gate_grad = view(da), .input_grad = view(du)}, {.resets = resets});
            for (const auto& part : {da, du}) x.insert(x.end(), part.begin(), part.end());
            return x;
          };
          const auto exact = results(tested::loop<std::uint32_t>(), std::uint32_t{});
          const auto alone = tested::threaded_backends<float>(1, false);
          for (std::size_t i = 0; i < alone.size(); ++i) {
            const auto one = results(alone[i], 0.0f);
            for (const int threads : {2, 3, 7}) {
              INFO(alone[i].name << " threads " << threads);
              CHECK((results(tested::threaded_backends<std::uint32_t>(threads, threads == 7)[i],
                             std::uint32_t{}) == exact));
              const auto many = results(tested::threaded_backends<float>(threads, false)[i], 0.0f);
              CHECK(std::memcmp(many.data(), one.data(), one.size() * sizeof(float)) == 0);
            }
          }
        }
}

namespace {

enum class gates { own, one_per_channel, one_for_channels };
constexpr gates all_gates[]{gates::own, gates::one_per_channel, gates::one_for_channels};

/// Puts one bad number into the input and the cotangent of a (2, T, channels) problem. Checks that
/// it reaches the states from its step on, the gradients up to its step, and no other channel.
void check_confined(const tested::backend<float>& backend, const layout_of& l, gates kind,
                    float bad, std::int64_t at) {
  const extents& s = l.shape;
  const std::size_t n = static_cast<std::size_t>(s.batch * s.time * s.channel);
  auto a = random<float>(n, 1, -0.9, 0.9), u = random<float>(n, 2), w = random<float>(n, 3);
  std::vector<float> clean(n), x(n), da(n), du(n), da1(n), du1(n);
  const auto view = [&](std::vector<float>& v) {
    return sequence_view<float>(v.data(), s, l.strides);
  };
  sequence_view<float> gate = view(a);
  if (kind == gates::one_per_channel) gate.strides = {0, 0, 1};
  if (kind == gates::one_for_channels) gate.strides.channel = 0;
  const auto index = [&](std::int64_t b, std::int64_t t, std::int64_t c) {
    return static_cast<std::size_t>(b * l.strides.batch + t * l.strides.time +
                                    c * l.strides.channel);
  };
  linear_scan(backend, gate, view(u), view(clean));
  linear_scan_vjp(backend, gate, view(clean), view(w),
                  {.gate_grad = view(da), .input_grad = view(du)});
  const std::int64_t channel = s.channel / 3;
  u[index(1, at, channel)] = w[index(1, at, channel)] = bad;
  linear_scan(backend, gate, view(u), view(x));
  linear_scan_vjp(backend, gate, view(clean), view(w),
                  {.gate_grad = view(da1), .input_grad = view(du1)});
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t t = 0; t < s.time; ++t)
      for (std::int64_t c = 0; c < s.channel; ++c) {
        const auto i = index(b, t, c);
        const bool mine = b == 1 && c == channel;
        // The channel of the bad number may round differently at steps that the number does not
        // reach.
        const auto same = [&](const std::vector<float>& got, const std::vector<float>& want) {
          return std::memcmp(&got[i], &want[i], sizeof(float)) == 0 ||
                 (mine && std::abs(got[i] - want[i]) <= 1e-5f);
        };
        if (!mine || t < at)
          if (!same(x, clean)) FAIL("state " << b << " " << t << " " << c << ", bad at " << at);
        if (!mine || t > at)
          if (!same(du1, du) || !same(da1, da))
            FAIL("gradient " << b << " " << t << " " << c << ", bad at " << at);
        if (mine && t == at) {
          CHECK((std::isnan(bad) ? std::isnan(x[i]) : x[i] == bad));
          CHECK((std::isnan(bad) ? std::isnan(du1[i]) : du1[i] == bad));
        }
        if (mine && t > at) CHECK(!std::isfinite(x[i]));
        if (mine && t < at) CHECK(!std::isfinite(du1[i]));
      }
  if (kind != gates::own) return;
  u[index(1, at, channel)] = 0.5f, a[index(1, at, channel)] = bad;
  linear_scan(backend, gate, view(u), view(x));
  for (std::int64_t t = 0; t < s.time; ++t) {
    const auto i = index(1, t, channel);
    if (t < at ? std::abs(x[i] - clean[i]) > 1e-5f : t > 0 && std::isfinite(x[i]))
      FAIL("state " << t << ", bad gate at " << at);
  }
}

}  // namespace

TEST_CASE("NaN and infinity stay in their channel and never reach earlier steps",
          "[numerics][nan][backends][forward][vjp][layouts]") {
  const float inf = std::numeric_limits<float>::infinity();
  for (const layout_of& l : layouts({2, 100, 20}))
    for (const auto& backend : tested::backends<float>())
      for (const gates kind : all_gates)
        for (const float bad : {inf, std::nanf("")})
          for (const std::int64_t at : {0, 31, 50, 99}) {
            INFO(backend.name);
            check_confined(backend, l, kind, bad, at);
          }
}

#if SCANREC_TEST_EIGEN
TEST_CASE("triangular_matmul keeps NaN and infinity in their channel and away from earlier steps",
          "[numerics][nan]") {
  // Two whole chunks and a part of a third, with the bad number at every step in turn.
  const tested::backend<float> one("triangular_matmul", triangular_matmul{.threads = 1});
  for (const layout_of& l : layouts({2, 300, 3}))
    for (const gates kind : all_gates)
      for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")})
        for (std::int64_t at = 0; at < 300; ++at) check_confined(one, l, kind, bad, at);
}
#endif

TEST_CASE("a product of gates may overflow while all states stay finite",
          "[numerics][overflow][tiled][cuda_lanes][cuda_look_back][forward]") {
  const extents shape{1, 200, 3};
  for (const auto& [s, strides] : layouts(shape))
    for (const auto& backend : tilings) {
      // The product of the gates grows beyond 1e60 while the state is zero. Zero gates follow.
      std::vector<float> a(600, 1e4f), u(600, 0.0f), x(600), y(600);
      const auto at = [&](std::int64_t t, std::int64_t c) {
        return t * strides.time + c * strides.channel;
      };
      for (int c = 0; c < 3; ++c) {
        u[at(150, c)] = 1;
        for (int t = 155; t < 200; ++t) a[at(t, c)] = t % 2 ? 0.0f : -2.0f;
      }
      const auto view = [&](std::vector<float>& w) {
        return sequence_view<float>(w.data(), s, strides);
      };
      linear_scan(loop, view(a), view(u), view(x));
      linear_scan(backend, view(a), view(u), view(y));
      for (int i = 0; i < 600; ++i) CHECK((std::isfinite(y[i]) && y[i] == x[i]));
      // A nonzero initial state that a zero gate clears before the growth.
      std::vector<float> x0(3, 3.0f);
      for (int c = 0; c < 3; ++c) a[at(0, c)] = 0;
      linear_scan(loop, view(a), view(u), view(x), {.initial_state = state_view(x0.data(), s)});
      linear_scan(backend, view(a), view(u), view(y), {.initial_state = state_view(x0.data(), s)});
      for (int i = 0; i < 600; ++i) CHECK((std::isfinite(y[i]) && y[i] == x[i]));
    }
}

TEST_CASE("an infinite state survives tiny gates, as in the sequential loop",
          "[numerics][overflow][tiled][cuda_lanes][cuda_look_back][forward]") {
  const extents shape{1, 120, 2};
  for (const auto& [s, strides] : layouts(shape))
    for (const auto& backend : tilings) {
      std::vector<float> a(240, 1e-10f), u(240, 1.0f), x(240), y(240);
      for (int c = 0; c < 2; ++c) u[5 * strides.time + c * strides.channel] = INFINITY;
      const auto view = [&](std::vector<float>& w) {
        return sequence_view<float>(w.data(), s, strides);
      };
      linear_scan(loop, view(a), view(u), view(x));
      linear_scan(backend, view(a), view(u), view(y));
      for (std::size_t i = 0; i < x.size(); ++i) {
        INFO("element " << i);
        CHECK(x[i] == y[i]);
      }
      CHECK(y[119 * strides.time] == INFINITY);
    }
}

TEST_CASE("a reset stops an infinity and a NaN", "[numerics][resets][backends][forward][vjp]") {
  const extents shape{1, 90, 5};
  for (const auto& [s, strides] : layouts(shape))
    for (const auto& backend : tested::backends<float>())
      for (const float bad : {INFINITY, std::nanf("")}) {
        auto a = random<float>(450, 1), u = random<float>(450, 2), w = random<float>(450, 3);
        const auto at = [&](std::int64_t t, std::int64_t c) {
          return t * strides.time + c * strides.channel;
        };
        for (int c = 0; c < 5; ++c) {
          u[at(20, c)] = bad;
          a[at(40, c)] = bad;  // the gate at the reset must not be used
          w[at(60, c)] = bad;  // a bad cotangent must not cross the reset towards earlier steps
        }
        std::vector<std::uint8_t> starts(90);
        starts[40] = 1;
        const sequence_view<const bool> resets(reinterpret_cast<const bool*>(starts.data()),
                                               {1, 90, 1});
        std::vector<float> x(450), da(450), du(450);
        const auto view = [&](std::vector<float>& v) {
          return sequence_view<float>(v.data(), s, strides);
        };
        linear_scan(backend, view(a), view(u), view(x), {.resets = resets});
        linear_scan_vjp(backend, view(a), view(x), view(w),
                        {.gate_grad = view(da), .input_grad = view(du)}, {.resets = resets});
        for (int c = 0; c < 5; ++c)
          for (int t = 0; t < 90; ++t) {
            INFO("step " << t);
            CHECK(std::isfinite(x[at(t, c)]) == (t < 20 || t >= 40));
            if (t < 40) CHECK(std::isfinite(du[at(t, c)]));
            if (t == 40) CHECK(da[at(t, c)] == 0.0f);
            if (t == 40) CHECK(x[at(t, c)] == u[at(t, c)]);
          }
      }
}
