// SPDX-License-Identifier: BSD-3-Clause
// Loads and stores of lanes. load_unit, store_unit, stream_unit, load_some and store_some access
// contiguous elements. load, store and add_into are out of line and take any stride and count.
#pragma once

#include <complex>
#include <cstdint>
#include <cstring>

#include <scanrec/detail/simd/lanes.hpp>
#include <scanrec/detail/simd/matrix_lanes.hpp>
#include <scanrec/detail/simd/partial_registers.hpp>
#include <scanrec/detail/simd/registers.hpp>
#include <scanrec/element.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

// ---- one element ------------------------------------------------------------------------------

/// Converts a stored element to a scalar lane.
template <class S>
SCANREC_HD SCANREC_INLINE auto from_element(S x) {
  if constexpr (scanrec::detail::is_complex<S>)
    return complex_lanes{x.real(), x.imag()};
  else if constexpr (std::is_same_v<S, bfloat16> || std::is_same_v<S, float16>)
    return static_cast<float>(x);
  else if constexpr (small_matrix<S>)
    return detail::each<lane_t<compute_t<S>, 1>>(
        [](auto a) SCANREC_LAMBDA { return from_element(a); }, x);
  else
    return x;
}

/// Converts a scalar lane to a stored element.
template <class S, class L>
SCANREC_HD SCANREC_INLINE S to_element(L x) {
  if constexpr (scanrec::detail::is_complex<S>)
    return S(x.re, x.im);
  else if constexpr (small_matrix<S>)
    return detail::each<S>(
        [](auto a) SCANREC_LAMBDA { return to_element<typename S::component>(a); }, x);
  else
    return static_cast<S>(x);
}

/// *p as a scalar lane. A bool is 1 or 0.
template <class L, class S>
SCANREC_HD SCANREC_INLINE L load_one(const S* p) {
  if constexpr (std::is_same_v<S, bool>)
    return static_cast<L>(*p ? 1 : 0);
  else
    return from_element(*p);
}
template <class S, class L>
SCANREC_HD SCANREC_INLINE void store_one(S* p, L x) {
  *p = to_element<S>(x);
}

// ---- contiguous elements ----------------------------------------------------------------------

namespace detail {
// The real type of the numbers in a stored element.
template <class S>
struct stored_numbers {
  using type = S;
};
template <class S>
struct stored_numbers<std::complex<S>> {
  using type = S;
};
template <small_matrix S>
struct stored_numbers<S> : stored_numbers<typename S::component> {};

// An array with one pack for each real number of a small vector or matrix.
template <class L>
using numbers_of = real_lane_t<L>[sizeof(L) / sizeof(real_lane_t<L>)];
// Calls f(pack, index) for each of these packs in x. They are in the order of an element's numbers
// in memory.
template <class F, small_matrix L>
SCANREC_INLINE void for_numbers(L& x, F f) {
  constexpr int n = sizeof(x.at) / sizeof(x.at[0]);
  constexpr bool vector = scanrec::detail::is_vec<L>;
  unrolled<vector ? n : n * n>([&](auto i) SCANREC_LAMBDA {
    const auto visit = [&](auto& a) SCANREC_LAMBDA {
      if constexpr (is_complex_lanes<typename L::component>)
        f(a.re, std::integral_constant<int, 2 * i>{}),
            f(a.im, std::integral_constant<int, 2 * i + 1>{});
      else
        f(a, i);
    };
    if constexpr (vector)
      visit(x.at[i]);
    else
      visit(x.at[i / n][i % n]);
  });
}
}  // namespace detail

namespace detail {
// Loads lanes from contiguous elements. get(address) loads the register whose first number is at
// that address. `reversed` must be false for small vectors and matrices.
template <class L, class S, class Get>
SCANREC_INLINE L load_registers(const S* p, bool reversed, Get get) {
  constexpr int n = lane_count<L>;
  if constexpr (n != leaf_count<L>) {
    // Halves are swapped by their addresses, which costs no copy; only single registers are
    // reversed.
    using half = decltype(half_of<0>(std::declval<L>()));
    return join(load_registers<half>(reversed ? p + n / 2 : p, reversed, get),
                load_registers<half>(reversed ? p : p + n / 2, reversed, get));
  } else if constexpr (small_matrix<L>) {
    using R = real_lane_t<L>;
    const auto* numbers = reinterpret_cast<const typename stored_numbers<S>::type*>(p);
    numbers_of<L> parts;
    unrolled<std::extent_v<decltype(parts)>>([&](auto i) SCANREC_LAMBDA {
      parts[i] = R(get(numbers + i * n));
      keep_loaded(parts[i].v);
    });
    deinterleave(parts);
    L x;
    for_numbers(x, [&](auto& a, auto i) SCANREC_LAMBDA { a = parts[i]; });
    return x;
  } else if constexpr (is_complex_lanes<L>) {
    using R = real_lane_t<L>;
    const auto* parts = reinterpret_cast<const typename R::value_type*>(p);
    R low(get(parts)), high(get(parts + n));
    keep_loaded(low.v), keep_loaded(high.v);
    R re = every_other<0>(low, high), im = every_other<1>(low, high);
    return {reverse_if(reversed, re), reverse_if(reversed, im)};
  } else {
    return reverse_if(reversed, L(get(p)));
  }
}
}  // namespace detail

/// Lane i is p[i], or p[lane_count<L> - 1 - i] if `reversed`. Packs of small vectors cannot be
/// reversed.
template <class L, class S>
SCANREC_INLINE L load_unit(const S* p, bool reversed = false) {
  using T = typename real_lane_t<L>::value_type;
  return detail::load_registers<L>(p, reversed, [](const auto* numbers) SCANREC_LAMBDA {
    return detail::load_register<T>(numbers);
  });
}
namespace detail {
// Converts every register of the lanes to storage type and calls put(address, register) for it.
// `reversed` must be false for small vectors and matrices.
template <class S, class L, class Put>
SCANREC_INLINE void store_registers(S* p, L x, bool reversed, Put put) {
  constexpr int n = lane_count<L>;
  if constexpr (n != leaf_count<L>) {
    store_registers(reversed ? p + n / 2 : p, half_of<0>(x), reversed, put);
    store_registers(reversed ? p : p + n / 2, half_of<1>(x), reversed, put);
  } else if constexpr (small_matrix<L>) {
    using number = typename stored_numbers<S>::type;
    auto* numbers = reinterpret_cast<number*>(p);
    numbers_of<L> parts;
    for_numbers(x, [&](auto& a, auto i) SCANREC_LAMBDA { parts[i] = a; });
    interleave(parts);
    unrolled<std::extent_v<decltype(parts)>>([&](auto i) SCANREC_LAMBDA {
      using T = typename real_lane_t<L>::value_type;
      put(numbers + i * n, to_storage<number, T>(parts[i].v));
    });
  } else if constexpr (is_complex_lanes<L>) {
    using R = real_lane_t<L>;
    auto* parts = reinterpret_cast<typename R::value_type*>(p);
    R re = reverse_if(reversed, x.re), im = reverse_if(reversed, x.im);
    put(parts, zip<0>(re, im).v);
    put(parts + n, zip<1>(re, im).v);
  } else {
    put(p, to_storage<S, typename L::value_type>(reverse_if(reversed, x).v));
  }
}
template <class S, class L>
inline constexpr std::size_t register_bytes = sizeof(typename stored_numbers<S>::type) *
                                              static_cast<std::size_t>(leaf_count<L>);

// Stores a register to an address that is not a multiple of its size. Allocations are often only
// 16-byte aligned. At such addresses the store consists of non-temporal pieces of 16 bytes, which
// fill whole cache lines just as well. At other addresses it is an ordinary store.
template <class V>
[[gnu::noinline]] void stream_pieces(void* to, V v) {
  if constexpr (sizeof v > 16) {
    if (reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
      struct piece {
        std::uint64_t bits __attribute__((vector_size(16)));
      };
      piece all[sizeof v / 16];
      std::memcpy(all, &v, sizeof v);
      for (unsigned i = 0; i < sizeof v / 16; ++i)
        stream_register(static_cast<piece*>(to) + i, all[i]);
      return;
    }
  }
  std::memcpy(to, &v, sizeof v);
}
}  // namespace detail

/// p[i] = lane i, or p[lane_count<L> - 1 - i] = lane i if `reversed`.
template <class S, class L>
SCANREC_INLINE void store_unit(S* p, L x, bool reversed = false) {
  detail::store_registers(p, x, reversed,
                          [](void* to, auto v) SCANREC_LAMBDA { std::memcpy(to, &v, sizeof v); });
}
/// Like store_unit, but non-temporal on x86 if the address is a multiple of 16 bytes and registers
/// have at least 16 bytes in storage type.
template <class S, class L>
SCANREC_INLINE void stream_unit(S* p, L x, bool reversed = false) {
  // stream_pieces is out of line and takes one register, because lanes of several registers would
  // be passed in memory.
  if (reinterpret_cast<std::uintptr_t>(p) % detail::register_bytes<S, L> == 0) [[likely]]
    detail::store_registers(
        p, x, reversed, [](void* to, auto v) SCANREC_LAMBDA { detail::stream_register(to, v); });
  else
    detail::store_registers(p, x, reversed,
                            [](void* to, auto v) SCANREC_LAMBDA { detail::stream_pieces(to, v); });
}

namespace detail {
template <class L, class S>
SCANREC_INLINE L load_some_here(const S* p, int count) {
  using number = typename stored_numbers<S>::type;
  const auto* const end = reinterpret_cast<const number*>(p + count);
  return load_registers<L>(p, false, [=](const number* numbers) SCANREC_LAMBDA {
    return load_first<typename real_lane_t<L>::value_type>(numbers, end - numbers);
  });
}
template <class S, class L>
SCANREC_INLINE void store_some_here(S* p, L x, int count) {
  using number = typename stored_numbers<S>::type;
  const auto* const end = reinterpret_cast<const number*>(p + count);
  store_registers(p, x, false, [=](void* to, auto v) SCANREC_LAMBDA {
    store_first(static_cast<number*>(to), v, end - static_cast<const number*>(to));
  });
}
// Whether load_some and store_some are inlined. With AVX2 this pays off for packs of real numbers,
// because these take few instructions.
template <class L>
inline constexpr bool few_instructions =
#if defined(__AVX2__)
    is_pack<L>;
#else
    false;
#endif
template <class L, class S>
[[gnu::noinline]] L load_some_there(const S* p, int count) {
  return load_some_here<L>(p, count);
}
template <class S, class L>
[[gnu::noinline]] void store_some_there(S* p, L x, int count) {
  store_some_here(p, x, count);
}
}  // namespace detail

/// Lane i is p[i] for i < count, and zero otherwise. Other elements are not read.
template <class L, class S>
SCANREC_INLINE L load_some(const S* p, int count) {
  if constexpr (detail::few_instructions<L>)
    return detail::load_some_here<L>(p, count);
  else
    return detail::load_some_there<L>(p, count);
}
/// p[i] = lane i for i < count. Other elements are not written.
template <class S, class L>
SCANREC_INLINE void store_some(S* p, L x, int count) {
  if constexpr (detail::few_instructions<L>)
    detail::store_some_here(p, x, count);
  else
    detail::store_some_there(p, x, count);
}

/// Whether any of N bytes is set.
template <int N>
SCANREC_INLINE bool any_set(const bool* p) {
  static_assert(N % 8 == 0, "scanrec: N must be a multiple of 8");
  std::uint64_t words[N / 8], any = 0;
  std::memcpy(words, p, N);
  for (const std::uint64_t word : words) any |= word;
  return any != 0;
}

// ---- any stride, any count --------------------------------------------------------------------

/// Lane i is p[i * stride] for i < count, and zero otherwise; a scalar is always *p. This function
/// is out of line and uses a buffer, so it suits work that is done once per sequence, not per step.
template <class L, class S>
SCANREC_HD SCANREC_NOINLINE L load(const S* p, std::int64_t stride, int count) {
  if constexpr (lane_count<L> == 1) {
    return load_one<L>(p);
  } else {
    alignas(64) S buffer[lane_count<L>] = {};
    for (int i = 0; i < count; ++i) buffer[i] = p[i * stride];
    return load_unit<L>(static_cast<const S*>(buffer));
  }
}

/// p[i * stride] = lane i for i < count; a scalar is always stored.
template <class S, class L>
SCANREC_HD SCANREC_NOINLINE void store(S* p, std::int64_t stride, int count, L x) {
  if constexpr (lane_count<L> == 1) {
    store_one(p, x);
  } else {
    alignas(64) S buffer[lane_count<L>];
    store_unit(static_cast<S*>(buffer), x);
    for (int i = 0; i < count; ++i) p[i * stride] = buffer[i];
  }
}

namespace detail {
/// add_into() for lanes that are not contiguous or not all in use.
template <class W, class L>
SCANREC_HD SCANREC_NOINLINE void add_apart(W* p, std::int64_t stride, int count, L x) {
  using wide_lane = lane_t<W, lane_count<L>>;
  using scalar = lane_t<W, 1>;
  const auto added = to_wide<wide_lane>(x);
  if (stride != 0) {
    store(p, stride, count, load<wide_lane>(p, stride, count) + added);
  } else {
    // Lanes from `count` on may be nonzero, so they are replaced by 0.
    alignas(64) W lane[lane_count<L>];
    store_unit(static_cast<W*>(lane), added);
    const auto total = sum(load<wide_lane>(static_cast<const W*>(lane), 1, count));
    store_one(p, load_one<scalar>(p) + scalar(total));
  }
}
}  // namespace detail

/// p[i * stride] += lane i, widened, for i < count. With a stride of 0, *p receives the sum of
/// these lanes.
template <class W, class L>
SCANREC_HD SCANREC_NOINLINE void add_into(W* p, std::int64_t stride, int count, L x) {
  using wide_lane = lane_t<W, lane_count<L>>;
  using scalar = lane_t<W, 1>;
  if constexpr (lane_count<L> == 1) {
    store_one(p, load_one<scalar>(p) + to_wide<wide_lane>(x));
  } else if (stride == 0 && count == lane_count<L>) {
    store_one(p, load_one<scalar>(p) + scalar(sum(to_wide<wide_lane>(x))));
  } else if (stride == 1 && count == lane_count<L>) {
    store_unit(p, load_unit<wide_lane>(static_cast<const W*>(p)) + to_wide<wide_lane>(x));
  } else {
    detail::add_apart(p, stride, count, x);
  }
}

/// Orders non-temporal stores before all later stores.
inline void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace scanrec::inline SCANREC_ABI::simd
