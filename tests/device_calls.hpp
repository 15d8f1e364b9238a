// SPDX-License-Identifier: BSD-3-Clause
// The calls of every GPU backend for one element type. A generated source file defines TEST_TYPE
// and includes only this header. A CUDA compiler compiles it for GPUs, any other compiler for the
// emulator.
#include "backend_calls.hpp"
#include "device_backend.hpp"

#if defined(SCANREC_TEST_ON_GPU)
#include <scanrec/cuda/cub.cuh>  // not available on the emulator
#endif

// Whether the comparison backends are compiled, too.
#if !defined(SCANREC_TEST_DEVICE_VARIANTS)
#define SCANREC_TEST_DEVICE_VARIANTS 1
#endif

namespace tested {

/// The calls of a backend whose blocks synchronise, or null. Under the address sanitizer, only
/// uint32 has these calls (see push_device_backends).
template <class T, class Backend>
std::shared_ptr<const backend_of<T>> synchronising_calls_of([[maybe_unused]] const Backend& on) {
#if defined(__SANITIZE_ADDRESS__)
  if constexpr (!std::is_same_v<T, std::uint32_t>)
    return nullptr;
  else
#endif
    return calls_of<T>(on);
}

template <>
std::shared_ptr<const backend_of<TEST_TYPE>> device_calls_of<TEST_TYPE>(device_backend which) {
  switch (which) {
    case device_backend::lanes:
      return calls_of<TEST_TYPE>(
          on_device<scanrec::cuda::lanes>{{.stream = nullptr, .steps_ahead = -1}});
    case device_backend::lanes_ring:
      return calls_of<TEST_TYPE>(
          on_device<scanrec::cuda::lanes>{{.stream = nullptr, .steps_ahead = 15}});
    case device_backend::look_back:
      return synchronising_calls_of<TEST_TYPE>(on_device<scanrec::cuda::look_back>{});
    case device_backend::look_back_short_tiles:
      return synchronising_calls_of<TEST_TYPE>(
          on_device<scanrec::cuda::look_back>{{.stream = nullptr, .segment_steps = 1}});
#if SCANREC_TEST_DEVICE_VARIANTS
    case device_backend::hillis_steele:
      return calls_of<TEST_TYPE>(on_device<scanrec::cuda::hillis_steele>{});
    case device_backend::blelloch:
      return calls_of<TEST_TYPE>(on_device<scanrec::cuda::blelloch>{});
    case device_backend::triangular_matmul:
      return synchronising_calls_of<TEST_TYPE>(on_device<scanrec::cuda::triangular_matmul<>>{});
#endif
#if defined(SCANREC_TEST_ON_GPU)
    case device_backend::cub:
      return calls_of<TEST_TYPE>(on_device<scanrec::cuda::cub>{});
#endif
    default:
      break;
  }
  return nullptr;
}

}  // namespace tested
