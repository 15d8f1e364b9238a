// SPDX-License-Identifier: BSD-3-Clause
// Arrays of any stored type, for kernels that load and store several rows at a time. A row is one
// step of some channels, as lanes of the compute type.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/simd/memory.hpp>
#include <scanrec/element.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/views.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The real type of the numbers V; const if V is const.
template <class V>
using real_part_of =
    std::conditional_t<std::is_const_v<V>,
                       const typename simd::detail::stored_numbers<std::remove_const_t<V>>::type,
                       typename simd::detail::stored_numbers<V>::type>;

// ---- rows ------------------------------------------------------------------------------------

/// Strides in elements, from step to step and from lane to lane.
struct row_strides {
  std::int64_t time = 0, channel = 0;
};

#if !defined(__CUDACC__)  // CUDA compilers have no packs
/// to[t * W + i] = element (t, i), and 0 for lanes from `count` on.
template <class S, class V, int W>
void load_rows(const void* data, row_strides strides, std::int64_t steps, int count, V* to) {
  using lane = simd::lane_t<V, W>;
  const S* from = static_cast<const S*>(data);
  std::int64_t t = 0;
  if constexpr (W > 1) {
    if (count == W && strides.channel == 1)
      for (; t < steps; ++t)
        simd::store_unit(to + t * W, simd::load_unit<lane>(from + t * strides.time));
    if (count == W && (strides.time == 1 || strides.time == -1)) {
      const bool reversed = strides.time < 0;
      for (; t + W <= steps; t += W) {
        const S* const first = from + (reversed ? -(t + W - 1) : t);
        lane rows[W];
        simd::detail::unrolled<W>([&](auto i) SCANREC_LAMBDA {
          rows[i] = simd::load_unit<lane>(first + i * strides.channel, reversed);
        });
        simd::transpose(rows);
        simd::detail::unrolled<W>(
            [&](auto i) SCANREC_LAMBDA { simd::store_unit(to + (t + i) * W, rows[i]); });
      }
    }
  }
  for (; t < steps; ++t)
    for (int i = 0; i < W; ++i)
      to[t * W + i] = i < count ? static_cast<V>(simd::load_one<simd::lane_t<V, 1>>(
                                      from + t * strides.time + i * strides.channel))
                                : V(0);
}

/// element (t, i) = from[t * W + i] for i < count, or += with `add`.
template <class S, class V, int W>
void store_rows(void* data, row_strides strides, std::int64_t steps, int count, const V* from,
                bool add) {
  using lane = simd::lane_t<V, W>;
  S* const to = static_cast<S*>(data);
  std::int64_t t = 0;
  if constexpr (W > 1) {
    const auto put = [&](S* position, lane x, bool reversed) {
      if (add) x = x + simd::load_unit<lane>(static_cast<const S*>(position), reversed);
      simd::store_unit(position, x, reversed);
    };
    if (count == W && strides.channel == 1)
      for (; t < steps; ++t) put(to + t * strides.time, simd::load_unit<lane>(from + t * W), false);
    if (count == W && (strides.time == 1 || strides.time == -1)) {
      const bool reversed = strides.time < 0;
      for (; t + W <= steps; t += W) {
        S* const first = to + (reversed ? -(t + W - 1) : t);
        lane rows[W];
        simd::detail::unrolled<W>(
            [&](auto i) SCANREC_LAMBDA { rows[i] = simd::load_unit<lane>(from + (t + i) * W); });
        simd::transpose(rows);
        simd::detail::unrolled<W>(
            [&](auto i) SCANREC_LAMBDA { put(first + i * strides.channel, rows[i], reversed); });
      }
    }
  }
  for (; t < steps; ++t)
    for (int i = 0; i < count; ++i) {
      S* const position = to + t * strides.time + i * strides.channel;
      simd::lane_t<V, 1> x = from[t * W + i];
      if (add) x = x + simd::load_one<simd::lane_t<V, 1>>(static_cast<const S*>(position));
      simd::store_one(position, x);
    }
}
#endif

/// Functions that load and store rows of an array of one element type. Rows have as many lanes as a
/// pack in `load` and `store`, and one lane in `load_one` and `store_one`.
template <class V>
struct row_access {
  std::int64_t bytes = 0;
  void (*load)(const void*, row_strides, std::int64_t, int, V*) = nullptr;
  void (*load_one)(const void*, row_strides, std::int64_t, int, V*) = nullptr;
  void (*store)(void*, row_strides, std::int64_t, int, const V*, bool) = nullptr;
  void (*store_one)(void*, row_strides, std::int64_t, int, const V*, bool) = nullptr;
};
#if defined(__CUDACC__)
template <class S, class V>
inline constexpr row_access<V> rows_of{sizeof(S)};
#else
template <class S, class V>
inline constexpr row_access<V> rows_of{sizeof(S), load_rows<S, V, simd::lanes_v<V>>,
                                       load_rows<S, V, 1>, store_rows<S, V, simd::lanes_v<V>>,
                                       store_rows<S, V, 1>};
#endif

// ---- the arrays -------------------------------------------------------------------------------

/// A (batch, time, channel) array in scan order, with elements of any stored type.
///
/// B and C of a selective scan have the axes (batch, time, group, state). Here, `channel` is their
/// state axis.
template <class V>
struct row_array {
  std::byte* data = nullptr;
  scanrec::strides strides{};  // in elements; the time stride is in scan order
  const row_access<V>* access = nullptr;

  static row_array of(const array_use& array, const row_access<V>* stored) {
    return {const_cast<std::byte*>(array.data), array.strides, stored};
  }
  [[nodiscard]] bool present() const { return data != nullptr; }
  [[nodiscard]] std::byte* at(std::int64_t batch, std::int64_t time, std::int64_t channel,
                              std::int64_t group = 0) const {
    return data + (batch * strides.batch + time * strides.time + channel * strides.channel +
                   group * strides.group) *
                      access->bytes;
  }
  /// Loads rows of W lanes. W is the number of lanes of a pack, or 1.
  template <int W>
  void load(std::byte* from, std::int64_t steps, int count, V* to) const {
    const auto run = W == 1 ? access->load_one : access->load;
    run(from, {strides.time, strides.channel}, steps, count, to);
  }
  template <int W>
  void store(std::byte* to, std::int64_t steps, int count, const V* from, bool add) const {
    const auto run = W == 1 ? access->store_one : access->store;
    run(to, {strides.time, strides.channel}, steps, count, from, add);
  }
};

/// A (batch, time, channel, state) array of the compute type. Axes of stride 0 are broadcast.
template <class V>
struct value_array {
  V* data = nullptr;
  scanrec::strides strides{};  // in elements; the stride of states is `group`

  SCANREC_HD SCANREC_INLINE bool present() const { return data != nullptr; }
  SCANREC_HD SCANREC_INLINE V* at(std::int64_t batch, std::int64_t channel, std::int64_t state = 0,
                                  std::int64_t time = 0) const {
    return data + batch * strides.batch + time * strides.time + channel * strides.channel +
           state * strides.group;
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
