// SPDX-License-Identifier: BSD-3-Clause
// Tests of operator scans with elements larger than the byte budget of a strip (adjacent channels
// that are processed together), and with elements whose alignment exceeds that of SIMD vectors.
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <scanrec/scan.hpp>
#include <scanrec/variants.hpp>

#include "catch.hpp"

namespace {

using namespace scanrec;

template <class F>
void with_cpu_backends(F f) {
  f("sequential", sequential{});
  for (const int threads : {1, 3}) {
    const std::string count = " threads " + std::to_string(threads);
    for (const std::int64_t tile : {0, 7})
      f("tiled tile " + std::to_string(tile) + count,
        tiled{.threads = threads, .tile_steps = tile});
    f("hillis_steele" + count, hillis_steele{.threads = threads});
    f("blelloch" + count, blelloch{.threads = threads});
  }
}

/// Elements of 1600 bytes; elements of type `large` have 3200.
struct matrix {
  std::array<std::array<std::uint32_t, 20>, 20> at{};
  bool operator==(const matrix&) const = default;
};
struct times {
  matrix operator()(const matrix& earlier, const matrix& later) const {
    matrix y;
    for (std::size_t i = 0; i < 20; ++i)
      for (std::size_t k = 0; k < 20; ++k)
        for (std::size_t j = 0; j < 20; ++j) y.at[i][k] += earlier.at[i][j] * later.at[j][k];
    return y;
  }
};
struct large {
  std::array<double, 400> at{};
  bool operator==(const large&) const = default;
};
struct add {
  large operator()(large earlier, const large& later) const {
    for (std::size_t i = 0; i < 400; ++i) earlier.at[i] += later.at[i];
    return earlier;
  }
};

/// A map x -> a * x + u of integers with a given alignment.
template <std::size_t Alignment>
struct alignas(Alignment) apart {
  std::uint32_t a = 1, u = 0;
};
// The asm statement hides the origin of the address. Otherwise a compiler may assume the alignment
// of the type and drop the check.
std::uintptr_t address_of(const void* p) {
  std::uintptr_t address = reinterpret_cast<std::uintptr_t>(p);
  asm volatile("" : "+r"(address));
  return address;
}
template <std::size_t Alignment>
struct compose_apart {
  std::atomic<int>* astray;
  __attribute__((noinline)) apart<Alignment> operator()(const apart<Alignment>& earlier,
                                                        const apart<Alignment>& later) const {
    if ((address_of(&earlier) | address_of(&later)) % Alignment != 0) ++*astray;
    apart<Alignment> y;
    y.a = later.a * earlier.a, y.u = later.a * earlier.u + later.u;
    return y;
  }
};

template <std::size_t Alignment>
void check_alignment() {
  using element = apart<Alignment>;
  const std::vector<extents> shapes{{1, 1, 1},     {1, 9, 3},     {2, 40, 37}, {1, 2000, 1},
                                    {.time = 300}, {3, 5, 70, 2}, {40, 8, 3},  {1, 600, 2, 1}};
  for (const extents& shape : shapes) {
    const std::int64_t n = detail::element_count(shape);
    std::vector<element> elements(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i)
      elements[i].a = static_cast<std::uint32_t>(2 * i + 3), elements[i].u = 7 + elements[i].a;
    std::vector<element> want(elements.size());
    std::atomic<int> astray{0};
    const compose_apart<Alignment> op{&astray};
    const sequence_view<const element> in(elements.data(), shape);
    inclusive_scan(sequential{}, op, in, sequence_view<element>(want.data(), shape));
    with_cpu_backends([&](const std::string& name, const auto& backend) {
      INFO(name << " " << to_string(shape) << " aligned to " << Alignment);
      std::vector<element> got(elements.size());
      inclusive_scan(backend, op, in, sequence_view<element>(got.data(), shape));
      bool same = true;
      for (std::size_t i = 0; i < got.size(); ++i)
        same = same && got[i].a == want[i].a && got[i].u == want[i].u;
      CHECK(same);
      CHECK(astray == 0);
    });
  }
}

}  // namespace

TEST_CASE("elements of 1600 and 3200 bytes give the results of the sequential backend",
          "[large_elements]") {
  for (const extents& shape : {extents{.time = 40}, extents{2, 9, 3}}) {
    const auto n = static_cast<std::size_t>(detail::element_count(shape));
    std::vector<matrix> matrices(n), products(n), got_products(n);
    std::vector<large> elements(n), sums(n), got_sums(n);
    std::uint32_t bits = 1;
    for (std::size_t i = 0; i < n; ++i) {
      for (auto& row : matrices[i].at)
        for (std::uint32_t& x : row) x = bits = bits * 1664525u + 1013904223u;
      for (std::size_t k = 0; k < 400; ++k) elements[i].at[k] = static_cast<double>(i + k);
    }
    const sequence_view<matrix> in(matrices.data(), shape);
    const sequence_view<large> numbers(elements.data(), shape);
    inclusive_scan(sequential{}, times{}, in, sequence_view<matrix>(products.data(), shape));
    inclusive_scan(sequential{}, add{}, numbers, sequence_view<large>(sums.data(), shape));
    with_cpu_backends([&](const std::string& name, const auto& backend) {
      INFO(name << " " << to_string(shape));
      inclusive_scan(backend, times{}, in, sequence_view<matrix>(got_products.data(), shape));
      CHECK(got_products == products);
      inclusive_scan(backend, add{}, numbers, sequence_view<large>(got_sums.data(), shape));
      CHECK(got_sums == sums);  // small integers: exact in any order
    });
  }
}

TEST_CASE("operators only see elements with the alignment of their type", "[large_elements]") {
  check_alignment<128>();
  check_alignment<256>();
  check_alignment<4096>();
}
