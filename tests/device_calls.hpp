// SPDX-License-Identifier: BSD-3-Clause
// The calls of every backend for GPUs for one element type: the whole of a generated unit that
// defines TEST_TYPE. A CUDA compiler compiles it for GPUs, any other for the emulator.
#include "backend_calls.hpp"
#include "device_backend.hpp"

namespace tested {

template <>
std::shared_ptr<const backend_of<TEST_TYPE>> device_calls_of<TEST_TYPE>(device_backend which) {
  switch (which) {
    case device_backend::lanes:
      return calls_of<TEST_TYPE>(on_device<cuda::lanes>{});
    case device_backend::look_back:
      return calls_of<TEST_TYPE>(on_device<cuda::look_back>{});
    case device_backend::look_back_short_tiles:
      return calls_of<TEST_TYPE>(
          on_device<cuda::look_back>{{.stream = nullptr, .segment_steps = 1}});
  }
  return nullptr;
}

}  // namespace tested
