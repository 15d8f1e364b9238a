// SPDX-License-Identifier: BSD-3-Clause
// Tests of SIMD packs: they agree with scalars bit for bit and move lanes as documented.
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include <scanrec/detail/maps/lane_scans.hpp>
#include <scanrec/detail/simd/memory.hpp>

#include "catch.hpp"
#include "guarded.hpp"

namespace {

using namespace scanrec;
using namespace scanrec::simd;

template <class T>
std::vector<T> lanes_of(auto x) {
  constexpr int n = lane_count<decltype(x)>;
  std::vector<T> out(n);
  store_unit(out.data(), x);
  return out;
}
template <class T>
bool same(T x, T y) {
  return std::memcmp(&x, &y, sizeof(T)) == 0;
}

template <class T>
void check_moves() {
  constexpr int n = lanes_v<T>;
  using P = lane_t<T, n>;
  std::vector<T> a(2 * n), b(n);
  for (int i = 0; i < 2 * n; ++i) a[i] = static_cast<T>(i + 1);
  const P x = load_unit<P>(a.data()), y = load_unit<P>(a.data() + n);
  const auto slide = [&]<int K>(std::integral_constant<int, K>) {
    const auto got = lanes_of<T>(slide_in<K>(x, y));
    for (int i = 0; i < n; ++i) CHECK(got[i] == a[n - K + i]);
  };
  [&]<int... K>(std::integer_sequence<int, K...>) {
    (slide(std::integral_constant<int, K>{}), ...);
  }
  (std::make_integer_sequence<int, n>{});
  for (int i = 0; i < n; ++i) {
    CHECK(lanes_of<T>(reverse(x))[i] == a[n - 1 - i]);
    CHECK(lanes_of<T>(every_other<0>(x, y))[i] == a[2 * i]);
    CHECK(lanes_of<T>(every_other<1>(x, y))[i] == a[2 * i + 1]);
    CHECK(lanes_of<T>(zip<0>(x, y))[i] == a[i / 2 + (i % 2) * n]);
    CHECK(lanes_of<T>(zip<1>(x, y))[i] == a[n / 2 + i / 2 + (i % 2) * n]);
  }
  CHECK(last(x) == a[n - 1]);
  CHECK(sum(x) == static_cast<T>(n * (n + 1) / 2));
  if constexpr (std::is_same_v<T, float>) {
    CHECK(lanes_of<double>(widen(x)) == std::vector<double>(a.begin(), a.begin() + n));
    CHECK(lanes_of<T>(narrow(widen(y))) == std::vector<T>(a.begin() + n, a.end()));
  }
  // Loads and stores with every count and several strides.
  for (int count = 1; count <= n; ++count)
    for (const int stride : {1, -1, 0, 2, -2, 3}) {
      std::vector<T> from(6 * n + 1), to(6 * n + 1, T(0));
      for (int i = 0; i <= 6 * n; ++i) from[i] = static_cast<T>(i);
      const auto got = lanes_of<T>(load<P>(from.data() + 3 * n, stride, count));
      for (int i = 0; i < n; ++i) CHECK(got[i] == (i < count ? from[3 * n + i * stride] : T(0)));
      if (stride == 0) continue;
      store(to.data() + 3 * n, stride, count, load<P>(from.data() + 3 * n, stride, count));
      for (int i = 0; i <= 6 * n; ++i) {
        const int k = (i - 3 * n) / stride;
        const bool mine = (i - 3 * n) % stride == 0 && k >= 0 && k < count;
        CHECK(to[i] == (mine ? from[i] : T(0)));
      }
      std::fill(to.begin(), to.end(), T(0));
    }
  // Whole packs, in order or reversed, at every alignment, with normal and non-temporal stores.
  for (int shift = 0; shift < n; ++shift)
    for (const bool reversed : {false, true})
      for (const bool stream : {false, true}) {
        alignas(64) T from[2 * n], to[2 * n] = {};
        for (int i = 0; i < 2 * n; ++i) from[i] = static_cast<T>(i + 1);
        const P z = load_unit<P>(from + shift, reversed);
        for (int i = 0; i < n; ++i)
          CHECK(lanes_of<T>(z)[i] == from[shift + (reversed ? n - 1 - i : i)]);
        stream ? stream_unit(to + shift, z, reversed) : store_unit(to + shift, z, reversed);
        stream_fence();
        for (int i = 0; i < 2 * n; ++i)
          CHECK(to[i] == (i >= shift && i < shift + n ? from[i] : T(0)));
      }
}

/// Checks packs of E, a small vector or matrix whose numbers are stored as C.
template <class E, class C>
void check_small_matrices() {
  using compute = compute_t<E>;
  constexpr int n = lanes_v<compute_t<C>>, numbers = sizeof(E) / sizeof(C);
  using L = lane_t<compute, n>;
  CHECK(lane_count<L> == n);
  alignas(64) E from[n + 1], to[n + 1];
  const auto number = [](E& x, int i) -> C& { return reinterpret_cast<C*>(&x)[i]; };
  const auto value = [](int i, int k) { return static_cast<compute_t<C>>(numbers * i + k); };
  for (int shift = 0; shift < 2; ++shift)
    for (const bool stream : {false, true}) {
      for (int i = 0; i <= n; ++i)
        for (int k = 0; k < numbers; ++k)
          number(from[i], k) = C(value(i, k)), number(to[i], k) = C(value(0, 0));
      const L x = load_unit<L>(from + shift);
      // Each number of an element becomes a pack, in the order of the element's numbers.
      for (int k = 0; k < numbers; ++k) {
        using P = lane_t<compute_t<C>, n>;
        P part;
        std::memcpy(&part, reinterpret_cast<const char*>(&x) + k * sizeof(P), sizeof(P));
        const auto got = lanes_of<compute_t<C>>(part);
        for (int i = 0; i < n; ++i) CHECK(got[i] == value(shift + i, k));
        const auto sums = to_element<compute>(sum(x));
        CHECK(same(sum(part), reinterpret_cast<const compute_t<C>*>(&sums)[k]));
      }
      stream ? stream_unit(to + shift, x) : store_unit(to + shift, x);
      stream_fence();
      for (int i = 0; i <= n; ++i)
        for (int k = 0; k < numbers; ++k)
          CHECK(same(number(to[i], k), C(i >= shift && i < shift + n ? value(i, k) : value(0, 0))));
      const L all = splat<L>(load_one<scalar_of<L>>(from + 1));
      store_unit(to, all);
      for (int i = 0; i < n; ++i)
        for (int k = 0; k < numbers; ++k) CHECK(same(number(to[i], k), number(from[1], k)));
      // A load of three elements sets the other lanes to zero.
      const L some = load<L>(static_cast<const E*>(from), 1, 3);
      store_unit(to, some);
      for (int i = 0; i < n; ++i)
        for (int k = 0; k < numbers; ++k)
          CHECK(same(number(to[i], k), i < 3 ? number(from[i], k) : C(value(0, 0))));
    }
}

/// Loads and stores the first elements of a pack. Their memory has exactly their size, and begins
/// or ends at an inaccessible page.
template <class S, class Compute = compute_t<S>>
void check_first_elements(std::type_identity_t<S> (*element)(int)) {
  using L = lane_t<Compute, lanes_v<Compute>>;
  constexpr int n = lane_count<L>;
  tested::generator positions{7};
  for (std::size_t used = 0; used <= n; ++used)
    for (int repeat = 0; repeat < 4; ++repeat) {  // which end is at a page is random
      const int count = static_cast<int>(used);
      INFO("elements of " << sizeof(S) << " bytes, " << count << " of " << n);
      const std::size_t bytes = used * sizeof(S);
      const tested::guarded_memory from(bytes, positions), to(bytes, positions);
      S all[n] = {};
      for (int i = 0; i < count; ++i) all[i] = element(i + 1);
      if (bytes > 0) std::memcpy(from.data(), static_cast<const void*>(all), bytes);
      const auto x = load_some<L>(reinterpret_cast<const S*>(from.data()), count);
      const auto wanted = load_unit<L>(static_cast<const S*>(all));
      CHECK(std::memcmp(&x, &wanted, sizeof x) == 0);
      if constexpr (!std::is_same_v<S, bool>) {
        store_some(reinterpret_cast<S*>(to.data()), load_unit<L>(static_cast<const S*>(all)),
                   count);
        if (bytes > 0) CHECK(std::memcmp(to.data(), from.data(), bytes) == 0);
        S around[n];
        for (int i = 0; i < n; ++i) around[i] = element(99);
        store_some(static_cast<S*>(around), splat<L>(load_one<scalar_of<L>>(all)), count);
        for (int i = 0; i < n; ++i) CHECK(same(around[i], i < count ? all[0] : element(99)));
      }
    }
}

}  // namespace

TEST_CASE("partial loads and stores access no element past the count", "[simd]") {
  const auto number = []<class S>() { return [](int i) { return S(static_cast<float>(i)); }; };
  check_first_elements<float>(number.operator()<float>());
  check_first_elements<double>(number.operator()<double>());
  check_first_elements<bfloat16>(number.operator()<bfloat16>());
  check_first_elements<float16>(number.operator()<float16>());
  check_first_elements<std::uint32_t>([](int i) { return static_cast<std::uint32_t>(i); });
  check_first_elements<bool, float>([](int i) { return i % 2 == 1; });
  check_first_elements<bool, double>([](int i) { return i % 2 == 1; });
  check_first_elements<std::complex<float>>([](int i) { return std::complex(1.0f * i, 0.5f); });
  check_first_elements<std::complex<double>>([](int i) { return std::complex(1.0 * i, 0.5); });
  check_first_elements<vec<float, 3>>([](int i) { return vec<float, 3>{{1.0f * i, 2, 3}}; });
  check_first_elements<vec<bfloat16, 2>>([](int i) {
    return vec<bfloat16, 2>{{bfloat16(1.0f * i), bfloat16(2.0f)}};
  });
}

TEST_CASE("packs of vectors and matrices load and store elements in memory order",
          "[simd][matrix]") {
  check_small_matrices<vec<float, 2>, float>();
  check_small_matrices<vec<float, 3>, float>();
  check_small_matrices<vec<bfloat16, 4>, bfloat16>();
  check_small_matrices<mat<float, 2>, float>();
  check_small_matrices<mat<double, 3>, double>();
  check_small_matrices<mat<std::uint32_t, 4>, std::uint32_t>();
  // Matrices of complex numbers, whose real and imaginary parts are separate packs.
  using C = std::complex<float>;
  using L = lane_t<mat<C, 2>, 16>;
  mat<C, 2> from[16], to[16];
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 4; ++k)
      from[i](k / 2, k % 2) = {static_cast<float>(8 * i + k), static_cast<float>(8 * i + k + 4)};
  const L x = load_unit<L>(from);
  for (int k = 0; k < 4; ++k) {
    const auto got = lanes_of<C>(x(k / 2, k % 2));
    for (int i = 0; i < 16; ++i) CHECK(got[i] == from[i](k / 2, k % 2));
  }
  store_unit(to, x);
  CHECK(std::memcmp(to, from, sizeof to) == 0);
}

TEST_CASE("packs move lanes as documented", "[simd]") {
  check_moves<float>();
  check_moves<double>();
  check_moves<std::uint32_t>();
}

TEST_CASE("packs fuse multiply-adds exactly where scalars do", "[simd][fma]") {
  // (1 + 2^-12)^2 - 1 needs the low bit of the square, so fused and unfused results differ.
  const float x = 1 + 0x1p-12f;
  using P = lane_t<float, 16>;
  const float scalar = simd::fma(x, x, -1.0f);
  CHECK(scalar == (SCANREC_FUSED ? 0x1p-11f + 0x1p-24f : 0x1p-11f));
  for (const float lane : lanes_of<float>(simd::fma(P(x), P(x), P(-1.0f))))
    CHECK(same(lane, scalar));
  const double y = 1 + 0x1p-27;
  using D = lane_t<double, 8>;
  const double wide = simd::fma(y, y, -1.0);
  CHECK(wide == (SCANREC_FUSED ? 0x1p-26 + 0x1p-54 : 0x1p-26));
  for (const double lane : lanes_of<double>(simd::fma(D(y), D(y), D(-1.0))))
    CHECK(same(lane, wide));
}

TEST_CASE("select treats NaN as true", "[simd]") {
  using P = lane_t<float, 16>;
  const float nan = std::nanf("");
  CHECK(last(select(P(nan), P(1.0f), P(2.0f))) == 1.0f);
  CHECK(last(select(P(-0.0f), P(1.0f), P(2.0f))) == 2.0f);
  CHECK(select(nan, 1.0f, 2.0f) == 1.0f);
  CHECK_FALSE(all_zero(P(nan)));
  CHECK(all_zero(P(-0.0f)));
}

TEST_CASE("complex packs equal complex scalars, signed zeros included", "[simd][complex]") {
  using C = lane_t<std::complex<float>, 16>;
  using S = lane_t<std::complex<float>, 1>;
  std::mt19937 engine(1);
  const auto draw = [&] {
    const float few[] = {0.0f, -0.0f, 1.0f, -1.5f, 1e-20f, 3e5f};
    return engine() % 2 ? few[engine() % 6] : std::uniform_real_distribution<float>(-2, 2)(engine);
  };
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<std::complex<float>> a(16), b(16), c(16);
    for (int i = 0; i < 16; ++i)
      a[i] = {draw(), draw()}, b[i] = {draw(), draw()}, c[i] = {draw(), draw()};
    const C x = load_unit<C>(a.data()), y = load_unit<C>(b.data()), z = load_unit<C>(c.data());
    const auto f = lanes_of<std::complex<float>>(simd::fma(x, y, z)),
               m = lanes_of<std::complex<float>>(mul(x, y)),
               j = lanes_of<std::complex<float>>(conj_if(real_lane_t<C>(-1.0f), x));
    for (int i = 0; i < 16; ++i) {
      const S sx = from_element(a[i]), sy = from_element(b[i]), sz = from_element(c[i]);
      CHECK(same(f[i], to_element<std::complex<float>>(simd::fma(sx, sy, sz))));
      CHECK(same(m[i], to_element<std::complex<float>>(mul(sx, sy))));
      CHECK(same(j[i], to_element<std::complex<float>>(conj_if(-1.0f, sx))));
    }
  }
}

TEST_CASE("scans and compositions of packs of maps equal those of a loop", "[operators][simd]") {
  constexpr int n = 64;
  using P = lane_t<std::uint32_t, n>;
  std::vector<std::uint32_t> a(n), u(n);
  std::mt19937 engine(5);
  for (int trial = 0; trial < 1000; ++trial) {
    for (int i = 0; i < n; ++i) a[i] = engine() | 1, u[i] = engine();
    const affine<P> m{load_unit<P>(a.data()), load_unit<P>(u.data())};
    const std::uint32_t start = engine();
    const auto states = scanrec::detail::scan_states<16>(
        m, start, [] { return std::uint32_t(0); }, [](const auto&) {});
    const auto before = lanes_of<std::uint32_t>(states.before),
               after = lanes_of<std::uint32_t>(states.after);
    std::uint32_t x = start, factor = 1;
    for (int i = 0; i < n; ++i) {
      CHECK(before[i] == x);
      x = a[i] * x + u[i];
      factor *= a[i];
      CHECK(after[i] == x);
    }
    CHECK(states.last == x);
    CHECK(states.finite);
    const auto few = scanrec::detail::scan_lanes(scanrec::detail::combine_lanes<16>(m));
    CHECK(last(few.a) * start + last(few.u) == x);
    CHECK(product(load_unit<P>(a.data())) == factor);
  }
}
