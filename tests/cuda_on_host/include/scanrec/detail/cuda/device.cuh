// SPDX-License-Identifier: BSD-3-Clause
// The emulator's version of include/scanrec/detail/cuda/device.cuh.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include <scanrec/cuda/error.cuh>
#include <scanrec/detail/config.hpp>

#include "emulator.hpp"

#define SCANREC_DEVICE
#define SCANREC_DEVICE_CALL __attribute__((noinline))
#define SCANREC_UNROLL
#define SCANREC_UNROLL_BY_2
#define SCANREC_UNROLL_BY_4
#define SCANREC_KEEP_LOOP
#define SCANREC_CUDA_ABI on_host

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

using stream_t = cuda_on_host::stream*;

namespace detail {

inline constexpr std::int64_t most_shared_bytes = 99 * 1024;

// The size on an H100.
inline std::int64_t shared_bytes_of_multiprocessor() { return 228 * 1024; }

inline void check_blocks(std::int64_t) {}

// The limit of an H100.
inline void check_shared_bytes(std::int64_t bytes) {
  if (bytes > 227 * 1024)
    throw error("kernel launch", 9, std::to_string(bytes) + " bytes of shared memory per block",
                __FILE__, __LINE__);
}

template <class Body>
void launch(const Body& body, std::int64_t blocks, stream_t stream, std::int64_t shared_bytes = 0) {
  static_assert(std::is_trivially_copyable_v<Body>, "scanrec: kernels are copied to the device");
  if (blocks == 0) return;
  check_shared_bytes(shared_bytes);
  if (stream) ++stream->launches;
  cuda_on_host::run(
      {blocks, Body::threads, shared_bytes, Body::synchronises, [copy = body] { copy(); }});
}

inline void clear(void* data, std::int64_t bytes, stream_t stream) {
  if (bytes <= 0) return;
  if (stream) ++stream->clears;
  std::memset(data, 0, static_cast<std::size_t>(bytes));
}

}  // namespace detail

namespace device {

using cuda_on_host::any_of_block;
using cuda_on_host::block_index;
using cuda_on_host::close_group_of_copies;
using cuda_on_host::fence;
using cuda_on_host::fetch_add;
using cuda_on_host::load_word;
using cuda_on_host::pause;
using cuda_on_host::store_word;
using cuda_on_host::synchronise_block;
using cuda_on_host::synchronise_warp;
using cuda_on_host::thread_index;
using cuda_on_host::warp_size;
using cuda_on_host::word;

template <class T>
void pin(T&) {}
inline void assume_global(const void*) {}

// The errors of these functions are as large as on a GPU. Values that a GPU computes exactly are
// exact.
inline float exp2_nearby(float x) {
  const float e = std::exp2(x);
  if (!(e >= std::numeric_limits<float>::min())) return std::isnan(e) ? e : 0;
  if (x == 0 || std::isinf(e)) return e;
  const auto bits = std::bit_cast<std::uint32_t>(e);
  return std::bit_cast<float>(bits + bits * 2654435769u % 4 - 1);
}
inline float reciprocal_nearby(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(1 / x);
  return std::bit_cast<float>(bits ^ (std::bit_cast<std::uint32_t>(x) * 2654435769u >> 31));
}

template <class T>
T exchange(T mine, int lane) {
  static_assert(std::is_trivially_copyable_v<T>,
                "scanrec: values that threads exchange must be trivially copyable");
  std::memcpy(&mine, cuda_on_host::exchange(&mine, sizeof(T), lane), sizeof(T));
  return mine;
}

template <class T>
T exchange_across(T mine, int bit) {
  return exchange(mine, (thread_index() % warp_size) ^ bit);
}

inline std::uint32_t ballot(bool mine) {
  const int lane = thread_index() % warp_size;
  std::uint32_t bits = mine ? std::uint32_t{1} << lane : 0;
  for (int apart = 1; apart < warp_size; apart *= 2) bits |= exchange(bits, lane ^ apart);
  return bits;
}
inline int first_bit(std::uint32_t bits) { return std::countr_zero(bits); }

template <class T>
class shared_array {
 public:
  explicit shared_array(std::int64_t first_byte)
      : data_(reinterpret_cast<T*>(cuda_on_host::shared_memory() + first_byte)) {}
  T load(int i) const {
    cuda_on_host::touch_shared(data_ + i, sizeof(T), false);
    return data_[i];
  }
  void store(int i, const T& x) const {
    cuda_on_host::touch_shared(data_ + i, sizeof(T), true);
    data_[i] = x;
  }
  T* address(int i) const { return data_ + i; }
  T* address(int i, int count, bool writes) const {
    if (count > 0)
      cuda_on_host::touch_shared(data_ + i, static_cast<std::size_t>(count) * sizeof(T), writes);
    return data_ + i;
  }
  const T* column_address(int i, int first, int last, int apart) const {
    for (int row = first; row < last; ++row) address(i + row * apart, 1, false);
    return data_ + i;
  }
  T* column_address_to_write(int i, int first, int last, int apart) const {
    for (int row = first; row < last; ++row) address(i + row * apart, 1, true);
    return data_ + i;
  }

 private:
  T* data_;
};

template <class T>
inline constexpr bool copied_ahead = alignof(T) == 4 || alignof(T) == 8 || alignof(T) == 16;
template <class T>
void copy_ahead(const shared_array<T>& to, int i, const T* from) {
  static_assert(copied_ahead<T>,
                "scanrec: asynchronous copies need an alignment of 4, 8 or 16 bytes");
  cuda_on_host::copy_to_shared(to.address(i), from, sizeof(T), alignof(T));
}
template <int Groups>
void wait_for_copies_but() {
  cuda_on_host::wait_for_copies(Groups);
}
inline void wait_for_copies() {
  cuda_on_host::close_group_of_copies();
  cuda_on_host::wait_for_copies(0);
}

}  // namespace device

}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
