// SPDX-License-Identifier: BSD-3-Clause
// Access to the elements of a selective scan in GPU kernels. Elements of any stored type are loaded
// unconverted, and converted where they are used.
#pragma once

#include <bit>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/recurrence/selective.hpp>
#include <scanrec/element.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/views.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

using scanrec::detail::bc_array;
using scanrec::detail::value_array;

/// The stored type of elements: their compute type, or a 16-bit type.
enum class stored_as { computed, bfloat16, float16 };

/// A loaded element before conversion.
template <class V>
using raw_element = std::conditional_t<std::is_same_v<V, float>, std::uint32_t, V>;

/// Elements that one access loads or stores.
template <class T, int Count>
struct alignas(sizeof(T) * Count) packed {
  T of[Count];
};

/// Converts loaded elements. The stored type is tested once for all of them, so that their
/// conversions overlap. If 16-bit elements were loaded in runs of more than one, each word of `raw`
/// holds two: a run of `Run` elements fills only the first Run / 2 of its `Run` words.
template <int Run, class V, int Count>
SCANREC_DEVICE SCANREC_INLINE void to_numbers(const raw_element<V> (&raw)[Count], stored_as as,
                                              bool in_runs, V (&to)[Count]) {
  using scanrec::detail::float16_value;
  if constexpr (!std::is_same_v<V, float>) {
    SCANREC_UNROLL
    for (int i = 0; i < Count; ++i) to[i] = raw[i];
  } else if (as == stored_as::computed) {
    SCANREC_UNROLL
    for (int i = 0; i < Count; ++i) to[i] = std::bit_cast<float>(raw[i]);
  } else if (Run > 1 && in_runs) {
    std::uint32_t words[Count];
    SCANREC_UNROLL
    for (int i = 0; i < Count; ++i) words[i] = raw[i / Run * Run + i % Run / 2];
    if (as == stored_as::bfloat16) {
      SCANREC_UNROLL
      for (int i = 0; i < Count; ++i)
        to[i] = std::bit_cast<float>(i % 2 == 0 ? words[i] << 16 : words[i] & 0xffff0000u);
    } else {
      SCANREC_UNROLL
      for (int i = 0; i < Count; ++i)
        to[i] = float16_value(static_cast<std::uint16_t>(words[i] >> i % 2 * 16));
    }
  } else if (as == stored_as::bfloat16) {
    SCANREC_UNROLL
    for (int i = 0; i < Count; ++i) to[i] = std::bit_cast<float>(raw[i] << 16);
  } else {
    SCANREC_UNROLL
    for (int i = 0; i < Count; ++i) to[i] = float16_value(static_cast<std::uint16_t>(raw[i]));
  }
}

/// The elements (batch, time, channel, group) of an array in scan order. B and C have states
/// instead of channels.
template <class V>
struct device_rows {
  std::byte* data = nullptr;
  scanrec::strides strides{};
  stored_as as = stored_as::computed;

  static device_rows of(const array_use& array, const scanrec::detail::row_access<V>*) {
    stored_as as = stored_as::computed;
    if (array.type == &scanrec::detail::type_tag<bfloat16>) as = stored_as::bfloat16;
    if (array.type == &scanrec::detail::type_tag<float16>) as = stored_as::float16;
    return {const_cast<std::byte*>(array.data), array.strides, as};
  }
  SCANREC_HD SCANREC_INLINE bool present() const { return data != nullptr; }
  SCANREC_DEVICE SCANREC_INLINE std::int64_t offset(std::int64_t batch, std::int64_t time,
                                                    std::int64_t channel,
                                                    std::int64_t group = 0) const {
    return batch * strides.batch + time * strides.time + channel * strides.channel +
           group * strides.group;
  }
  /// Whether a run of `run` elements at an offset is aligned for a single access.
  SCANREC_DEVICE SCANREC_INLINE bool aligned(std::int64_t offset, int run) const {
    const auto position = reinterpret_cast<std::uintptr_t>(data);
    const std::uintptr_t bytes = sizeof(V) > 4 || as == stored_as::computed ? sizeof(V) : 2;
    return (position + static_cast<std::uintptr_t>(offset) * bytes) %
               (bytes * static_cast<std::uintptr_t>(run)) ==
           0;
  }
  /// Loads the elements at offsets at(i), or zeros for the offset `none`.
  template <int Count, class Offset>
  SCANREC_DEVICE SCANREC_INLINE void load(raw_element<V> (&to)[Count], const Offset& at) const {
    if (sizeof(V) > 4 || as == stored_as::computed)
      load_as<raw_element<V>>(to, at);
    else
      load_as<std::uint16_t>(to, at);
  }
  /// Loads runs of contiguous elements. The first elements of consecutive runs are `apart` apart.
  template <int Run, int Count>
  SCANREC_DEVICE SCANREC_INLINE void load_runs(raw_element<V> (&to)[Count], std::int64_t first,
                                               std::int64_t apart) const {
    if (sizeof(V) > 4 || as == stored_as::computed) {
      load_words<raw_element<V>, raw_element<V>, Run, Run>(to, first, apart);
    } else if constexpr (Run == 1) {
      load_words<std::uint16_t, std::uint16_t, 1, 1>(to, first, apart);
    } else {
      load_words<std::uint16_t, std::uint32_t, Run / 2, Run>(to, first, apart);
    }
  }
  /// Stores x at offsets at(i), or adds x to the elements there if `add`. Skips the offset `none`.
  template <int Count, class Offset>
  SCANREC_DEVICE SCANREC_INLINE void store(const V (&x)[Count], bool add, const Offset& at) const {
    with_stored([&](auto stored) SCANREC_LAMBDA {
      using Stored = decltype(stored);
      auto* const to = reinterpret_cast<Stored*>(data);
      SCANREC_UNROLL
      for (int i = 0; i < Count; ++i) {
        const std::int64_t offset = at(i);
        if (offset == none) continue;
        to[offset] = static_cast<Stored>(add ? static_cast<V>(to[offset]) + x[i] : x[i]);
      }
    });
  }
  template <int Run, int Count>
  SCANREC_DEVICE SCANREC_INLINE void store_runs(const V (&x)[Count], std::int64_t first,
                                                std::int64_t apart) const {
    with_stored([&](auto stored) SCANREC_LAMBDA {
      using Stored = decltype(stored);
      auto* to = reinterpret_cast<Stored*>(data) + first;
      SCANREC_UNROLL
      for (int i = 0; i < Count; i += Run, to += apart) {
        packed<Stored, Run> of;
        SCANREC_UNROLL
        for (int k = 0; k < Run; ++k) of.of[k] = static_cast<Stored>(x[i + k]);
        *reinterpret_cast<packed<Stored, Run>*>(to) = of;
      }
    });
  }
  static constexpr std::int64_t none = INT64_MIN;  // offset of an element that does not exist

 private:
  template <class F>
  SCANREC_DEVICE SCANREC_INLINE void with_stored(const F& f) const {
    if constexpr (std::is_same_v<V, float>) {
      if (as == stored_as::bfloat16) return f(bfloat16());
      if (as == stored_as::float16) return f(float16());
    }
    f(V());
  }
  template <class Stored, int Count, class Offset>
  SCANREC_DEVICE SCANREC_INLINE void load_as(raw_element<V> (&to)[Count], const Offset& at) const {
    const auto* const from = reinterpret_cast<const Stored*>(data);
    SCANREC_UNROLL
    for (int i = 0; i < Count; ++i) {
      const std::int64_t offset = at(i);
      to[i] = offset == none ? raw_element<V>(0) : from[offset];
    }
  }
  // Loads each run of `Run` elements as `Words` words.
  template <class Stored, class Word, int Words, int Run, int Count>
  SCANREC_DEVICE SCANREC_INLINE void load_words(raw_element<V> (&to)[Count], std::int64_t first,
                                                std::int64_t apart) const {
    const auto* from = reinterpret_cast<const Stored*>(data) + first;
    SCANREC_UNROLL
    for (int i = 0; i < Count; i += Run, from += apart) {
      const auto of = *reinterpret_cast<const packed<Word, Words>*>(from);
      SCANREC_UNROLL
      for (int k = 0; k < Words; ++k) to[i + k] = of.of[k];
    }
  }
};

/// The problem of selective_scan, and of its adjoint, on the device.
template <class V>
using selective_device_problem = scanrec::detail::selective_problem<V, device_rows>;
template <class V>
using selective_device_vjp = scanrec::detail::selective_vjp_problem<V, device_rows>;

/// Whether B and C vary with the step, and there are neither intervals nor resets.
template <class V>
bool is_plain(const selective_device_problem<V>& p) {
  return p.b.steps.present() && p.c.steps.present() && !p.intervals.present() &&
         !p.resets.present();
}

/// The array as real numbers. The real part of a complex number comes first.
inline value_array<float> reals_of(const value_array<float>& of) { return of; }
inline value_array<double> reals_of(const value_array<double>& of) { return of; }
template <class R>
value_array<R> reals_of(const value_array<std::complex<R>>& of) {
  return {reinterpret_cast<R*>(of.data),
          {.batch = 2 * of.strides.batch,
           .time = 2 * of.strides.time,
           .channel = 2 * of.strides.channel,
           .group = 2 * of.strides.group}};
}
}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
