// SPDX-License-Identifier: BSD-3-Clause
// Device functions for kernels, and the function that launches kernels. Only this file contains
// launches, barriers, shuffles, atomics and asynchronous copies; matrix_unit.cuh contains the
// functions for matrix units. tests/cuda_on_host has its own versions of both files, which run
// kernels on a CPU.
//
// A kernel is a trivially copyable struct whose call operator every thread runs:
//
//     struct body {
//       static constexpr int threads = 128;         // of a block
//       static constexpr int blocks_together = 3;   // this many blocks must fit a multiprocessor
//       static constexpr bool synchronises = false; // whether threads call functions marked (*)
//       SCANREC_DEVICE void operator()() const;
//     };
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <source_location>
#include <string>
#include <type_traits>

#include <scanrec/cuda/error.cuh>
#include <scanrec/detail/config.hpp>

#if !defined(__CUDACC__)
#error "scanrec: CUDA backends are compiled by a CUDA compiler: name the file .cu"
#endif
// CUDA 12.3 introduced PTX 8.3, the first version that guarantees that an access of 16 bytes is a
// single access.
#if defined(__NVCC__) && \
    (__CUDACC_VER_MAJOR__ < 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ < 3))
#error "scanrec needs nvcc 12.3 or newer"
#endif
#if defined(__NVCC__) && !defined(__CUDACC_RELAXED_CONSTEXPR__)
#error "scanrec needs nvcc --expt-relaxed-constexpr (the CMake target scanrec::cuda adds it)"
#endif

#define SCANREC_DEVICE __device__
// A function that is never inlined. All callers run the same code, so they get the same roundings.
#define SCANREC_DEVICE_CALL __device__ __noinline__
#define SCANREC_UNROLL _Pragma("unroll")
#define SCANREC_UNROLL_BY_2 _Pragma("unroll 2")
#define SCANREC_UNROLL_BY_4 _Pragma("unroll 4")
#define SCANREC_KEEP_LOOP _Pragma("unroll 1")

// The namespace names the architectures, so object files built for different architectures share
// no function. Otherwise the linker could keep the function of one object file, which has no code
// for the GPU of the other. With more than six architectures, the namespace names the first six.
#define SCANREC_ARCHS_1(a) sm_##a
#define SCANREC_ARCHS_2(a, b) sm_##a##_##b
#define SCANREC_ARCHS_3(a, b, c) sm_##a##_##b##_##c
#define SCANREC_ARCHS_4(a, b, c, d) sm_##a##_##b##_##c##_##d
#define SCANREC_ARCHS_5(a, b, c, d, e) sm_##a##_##b##_##c##_##d##_##e
#define SCANREC_ARCHS_6(a, b, c, d, e, f) sm_##a##_##b##_##c##_##d##_##e##_##f
#define SCANREC_ARCHS_MANY(a, b, c, d, e, f, ...) sm_##a##_##b##_##c##_##d##_##e##_##f##_and_more
#define SCANREC_ARCHS_PICK(a, b, c, d, e, f, g, h, i, j, k, l, pick, ...) pick
#define SCANREC_ARCHS(...)                                                                        \
  SCANREC_ARCHS_PICK(__VA_ARGS__, SCANREC_ARCHS_MANY, SCANREC_ARCHS_MANY, SCANREC_ARCHS_MANY,     \
                     SCANREC_ARCHS_MANY, SCANREC_ARCHS_MANY, SCANREC_ARCHS_MANY, SCANREC_ARCHS_6, \
                     SCANREC_ARCHS_5, SCANREC_ARCHS_4, SCANREC_ARCHS_3, SCANREC_ARCHS_2,          \
                     SCANREC_ARCHS_1, 0)                                                          \
  (__VA_ARGS__)

#if defined(__CUDA_ARCH_LIST__)
#define SCANREC_CUDA_ABI SCANREC_ARCHS(__CUDA_ARCH_LIST__)
#else
#define SCANREC_CUDA_ABI sm_unknown
#endif

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// A stream of the CUDA runtime, in which a call's work is queued.
using stream_t = cudaStream_t;

namespace detail {

inline void check(cudaError_t status, const char* call,
                  std::source_location where = std::source_location::current()) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // otherwise the next launch would report it too
  throw error(call, static_cast<int>(status), cudaGetErrorString(status), where.file_name(),
              where.line());
}

template <class Body>
__global__ void __launch_bounds__(Body::threads, Body::blocks_together)
    run(const __grid_constant__ Body body) {
  body();
}

/// Bytes of shared memory that a block can have on every supported GPU (compute capability 8.0 or
/// higher). Some GPUs allow more.
inline constexpr std::int64_t most_shared_bytes = 99 * 1024;

/// Raises the shared memory limit of a kernel on the current device to `bytes`. Never lowers it,
/// because another thread may have raised it for a launch that is yet to come.
inline void allow_shared_bytes(const void* kernel, std::int64_t bytes) {
  static std::mutex one_at_a_time;
  const std::scoped_lock lock(one_at_a_time);
  // The limit is read from the runtime, which stores one for each device and context.
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  if (attributes.maxDynamicSharedSizeBytes >= bytes) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "cudaFuncSetAttribute");
}

/// Bytes of shared memory per multiprocessor of the current device.
inline std::int64_t shared_bytes_of_multiprocessor() {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
        "cudaDeviceGetAttribute");
  return bytes;
}

/// Throws if a launch would exceed the maximum number of blocks.
inline void check_blocks(std::int64_t blocks) {
  if (blocks > std::numeric_limits<std::int32_t>::max())
    throw error("kernel launch", static_cast<int>(cudaErrorInvalidConfiguration),
                std::to_string(blocks) + " blocks", __FILE__, __LINE__);
}

/// Throws if a block would need more shared memory than the current device allows per block.
inline void check_shared_bytes(std::int64_t bytes) {
  if (bytes <= most_shared_bytes) return;
  int device = 0, most = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  if (bytes > most)
    throw error("kernel launch", static_cast<int>(cudaErrorInvalidConfiguration),
                std::to_string(bytes) + " bytes of shared memory per block, but this GPU has " +
                    std::to_string(most),
                __FILE__, __LINE__);
}

/// Queues a kernel. Does nothing if there are no blocks.
template <class Body>
void launch(const Body& body, std::int64_t blocks, stream_t stream, std::int64_t shared_bytes = 0) {
  static_assert(std::is_trivially_copyable_v<Body>, "scanrec: a kernel must be trivially copyable");
  if (blocks == 0) return;
  check_blocks(blocks);
  constexpr std::int64_t always_there = 48 * 1024;
  // Since CUDA 12.8 every translation unit has its own copy of a kernel, while the linker merges
  // this function. The address is taken once, so that the limit is raised for the copy that is
  // launched.
  const void* const kernel = reinterpret_cast<const void*>(&run<Body>);
  if (shared_bytes > always_there) allow_shared_bytes(kernel, shared_bytes);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(Body::threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  void* arguments[] = {const_cast<Body*>(&body)};
  check(cudaLaunchKernelExC(&config, kernel, arguments), "kernel launch");
}

/// Queues a memset to zero.
inline void clear(void* data, std::int64_t bytes, stream_t stream) {
  if (bytes > 0)
    check(cudaMemsetAsync(data, 0, static_cast<std::size_t>(bytes), stream), "cudaMemsetAsync");
}

}  // namespace detail

namespace device {

inline constexpr int warp_size = 32;

SCANREC_DEVICE SCANREC_INLINE int thread_index() { return static_cast<int>(threadIdx.x); }
SCANREC_DEVICE SCANREC_INLINE std::int64_t block_index() { return blockIdx.x; }

/// Hides the origin of an address or a number from the compiler. The compiler then recomputes
/// dependent values instead of keeping them in registers.
template <class T>
SCANREC_DEVICE SCANREC_INLINE void pin(T& x) {
  static_assert(sizeof(T) == 8 || sizeof(T) == 4,
                "scanrec: pin() takes addresses and numbers of 4 or 8 bytes");
  if constexpr (sizeof(T) == 8)
    asm volatile("" : "+l"(x));
  else
    asm volatile("" : "+r"(x));
}

/// Tells the compiler that an address is in global memory, so that it emits global loads and
/// stores.
SCANREC_DEVICE SCANREC_INLINE void assume_global(const void* p) { __builtin_assume(__isGlobal(p)); }

/// 2^x by the special-function unit. The error is at most 2 ULP, and 2^0 is exact. Results below
/// the smallest normal number are 0.
SCANREC_DEVICE SCANREC_INLINE float exp2_nearby(float x) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
}
/// 1 / x by the special-function unit. The error is at most 1 ULP if x and the result are normal
/// numbers.
SCANREC_DEVICE SCANREC_INLINE float reciprocal_nearby(float x) {
  asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
}

/// (*) Barrier of the block. Orders memory accesses of its threads.
SCANREC_DEVICE SCANREC_INLINE void synchronise_block() { __syncthreads(); }
/// (*) Barrier of the block. Returns whether `mine` is true in any thread.
SCANREC_DEVICE SCANREC_INLINE bool any_of_block(bool mine) { return __syncthreads_or(mine) != 0; }
/// (*) Barrier of the warp. Orders memory accesses of its threads.
SCANREC_DEVICE SCANREC_INLINE void synchronise_warp() { __syncwarp(); }

/// (*) Returns the `mine` of thread `lane` of the warp. All threads of the warp call it together.
/// Orders no memory accesses.
template <class T>
SCANREC_DEVICE SCANREC_INLINE T exchange(T mine, int lane) {
  static_assert(std::is_trivially_copyable_v<T>,
                "scanrec: values that threads exchange must be trivially copyable");
  std::uint32_t words[(sizeof(T) + 3) / 4] = {};
  memcpy(words, &mine, sizeof(T));
  SCANREC_UNROLL
  for (std::uint32_t& word : words) word = __shfl_sync(0xffffffffu, word, lane);
  memcpy(&mine, words, sizeof(T));
  return mine;
}

/// (*) Returns the `mine` of the thread whose index in the warp differs from the caller's only in
/// `bit`, a power of two. All threads of the warp call it together.
template <class T>
SCANREC_DEVICE SCANREC_INLINE T exchange_across(T mine, int bit) {
  static_assert(sizeof(T) % 4 == 0 && std::is_trivially_copyable_v<T>,
                "scanrec: values that threads exchange must be trivially copyable, in whole words");
  std::uint32_t words[sizeof(T) / 4];
  memcpy(words, &mine, sizeof(T));
  SCANREC_UNROLL
  for (std::uint32_t& word : words) word = __shfl_xor_sync(0xffffffffu, word, bit);
  memcpy(&mine, words, sizeof(T));
  return mine;
}

/// (*) Returns the `mine` of all threads of the warp, one bit each. All threads of the warp call it
/// together. Orders no memory accesses.
SCANREC_DEVICE SCANREC_INLINE std::uint32_t ballot(bool mine) {
  return __ballot_sync(0xffffffffu, mine);
}
/// The index of the lowest set bit; `bits` must not be 0.
SCANREC_DEVICE SCANREC_INLINE int first_bit(std::uint32_t bits) {
  return __ffs(static_cast<int>(bits)) - 1;
}

// ---- between blocks ---------------------------------------------------------------------------

/// Sixteen bytes that other blocks never see partly written: a value, and a tag that shows that the
/// value has arrived.
struct alignas(16) word {
  std::uint64_t value, tag;
};
/// (*) Stores a word. Other blocks see it some time later; stores arrive in no particular order.
SCANREC_DEVICE SCANREC_INLINE void store_word(word* p, const word& w) {
  asm volatile("{ .reg .b128 w; mov.b128 w, {%1, %2}; st.relaxed.gpu.global.b128 [%0], w; }"
               :
               : "l"(__cvta_generic_to_global(p)), "l"(w.value), "l"(w.tag)
               : "memory");
}
/// (*) Loads a word.
SCANREC_DEVICE SCANREC_INLINE word load_word(const word* p) {
  word w;
  asm volatile("{ .reg .b128 w; ld.relaxed.gpu.global.b128 w, [%2]; mov.b128 {%0, %1}, w; }"
               : "=l"(w.value), "=l"(w.tag)
               : "l"(__cvta_generic_to_global(p))
               : "memory");
  return w;
}
/// (*) Adds `more` atomically for all blocks. Returns the previous value.
SCANREC_DEVICE SCANREC_INLINE std::uint64_t fetch_add(std::uint64_t* p, std::uint64_t more) {
  static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
  return atomicAdd(reinterpret_cast<unsigned long long*>(p), more);
}
/// (*) Memory fence: orders the thread's earlier reads and writes before its later ones, for all
/// blocks.
SCANREC_DEVICE SCANREC_INLINE void fence() { __threadfence(); }
/// (*) Sleeps briefly. Loops that wait for another block call it.
SCANREC_DEVICE SCANREC_INLINE void pause() { __nanosleep(20); }

// ---- within a block ---------------------------------------------------------------------------

/// (*) An array in the shared memory of the block. It begins at byte `first_byte`, a multiple of
/// 16.
template <class T>
class shared_array {
 public:
  SCANREC_DEVICE SCANREC_INLINE explicit shared_array(std::int64_t first_byte) {
    extern __shared__ __align__(128) unsigned char memory[];
    data_ = reinterpret_cast<T*>(memory + first_byte);
  }
  SCANREC_DEVICE SCANREC_INLINE T load(int i) const { return data_[i]; }
  SCANREC_DEVICE SCANREC_INLINE void store(int i, const T& x) const { data_[i] = x; }
  SCANREC_DEVICE SCANREC_INLINE T* address(int i) const { return data_ + i; }
  /// The address of element i. Until the next barrier, the caller must use it only for `count`
  /// elements from i on, and write them only if `writes`. To find races, the emulator
  /// (tests/cuda_on_host) counts all these elements as accessed.
  SCANREC_DEVICE SCANREC_INLINE T* address(int i, int /*count*/, bool /*writes*/) const {
    return generic(data_ + i);
  }
  /// The address of element i, which is row 0 of a column whose rows are `apart` elements apart.
  /// Until the next barrier, the caller must use it only to read rows [first, last). The emulator
  /// counts all these rows as read.
  SCANREC_DEVICE SCANREC_INLINE const T* column_address(int i, int /*first*/, int /*last*/,
                                                        int /*apart*/) const {
    return generic(data_ + i);
  }
  /// Like column_address, for rows that the caller writes and may read again.
  SCANREC_DEVICE SCANREC_INLINE T* column_address_to_write(int i, int /*first*/, int /*last*/,
                                                           int /*apart*/) const {
    return generic(data_ + i);
  }

 private:
  // Callers offset the pointer to before the start of shared memory and index back into it, so the
  // compiler must use a generic 64-bit address.
  SCANREC_DEVICE SCANREC_INLINE static T* generic(T* p) {
    pin(p);
    return p;
  }
  T* data_;
};

/// Whether elements can be copied asynchronously, in pieces of their alignment.
template <class T>
inline constexpr bool copied_ahead = alignof(T) == 4 || alignof(T) == 8 || alignof(T) == 16;

/// (*) Starts to copy an element to shared memory. The thread may read it after waiting for its
/// copies, other threads after a later barrier. Until then the source must not change.
template <class T>
SCANREC_DEVICE SCANREC_INLINE void copy_ahead(const shared_array<T>& to, int i, const T* from) {
  static_assert(copied_ahead<T>,
                "scanrec: asynchronous copies need an alignment of 4, 8 or 16 bytes");
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  auto there = static_cast<std::uint32_t>(__cvta_generic_to_shared(to.address(i)));
  auto here = __cvta_generic_to_global(from);
  SCANREC_UNROLL
  for (std::size_t done = 0; done < sizeof(T);
       done += alignof(T), there += alignof(T), here += alignof(T)) {
    if constexpr (alignof(T) == 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                   :
                   : "r"(there), "l"(here)
                   : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                   :
                   : "r"(there), "l"(here), "n"(alignof(T))
                   : "memory");
  }
#else
  to.store(i, *from);
#endif
}
/// (*) Closes a group: the copies that the thread has started since the last call, possibly none.
SCANREC_DEVICE SCANREC_INLINE void close_group_of_copies() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}
/// (*) Waits for all copies of the thread except those of the last `Groups` groups.
template <int Groups>
SCANREC_DEVICE SCANREC_INLINE void wait_for_copies_but() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" : : "n"(Groups) : "memory");
#endif
}
/// (*) Waits for all copies of the thread, in closed groups or not.
SCANREC_DEVICE SCANREC_INLINE void wait_for_copies() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

}  // namespace device

}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
