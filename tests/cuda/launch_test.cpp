// SPDX-License-Identifier: BSD-3-Clause
// Tests launches of one kernel from two source files, on a fake CUDA runtime in this file, which
// runs no kernel. Like the real runtime, it rejects a kernel that is not registered, and a launch
// with more shared memory than allowed on the current device.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include <scanrec/cuda/error.cuh>

namespace {

constexpr int always_allowed = 48 * 1024;
// The most shared memory per block, for two devices.
constexpr int most[] = {227 * 1024, 99 * 1024};

struct runtime {
  std::set<const void*> kernels;
  std::map<std::pair<const void*, int>, int> allowed;  // by kernel and device
  int device = 0;
  int launches = 0;
  std::size_t pushed_bytes = 0;
  cudaError_t last = cudaSuccess;
};
// A local object, because kernels are registered before global objects are constructed.
runtime& here() {
  static runtime all;
  return all;
}
cudaError_t report(cudaError_t status) {
  if (status != cudaSuccess) here().last = status;
  return status;
}
int allowed_bytes(const void* kernel) {
  const auto found = here().allowed.find({kernel, here().device});
  return found == here().allowed.end() ? always_allowed : found->second;
}
cudaError_t launch(const void* kernel, std::size_t bytes) {
  if (here().kernels.count(kernel) == 0) return report(cudaErrorInvalidDeviceFunction);
  if (bytes > static_cast<std::size_t>(allowed_bytes(kernel))) return report(cudaErrorInvalidValue);
  ++here().launches;
  return cudaSuccess;
}

}  // namespace

extern "C" {
void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void**, const char* host, char*, const char*, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  here().kernels.insert(host);
}
// The calls that nvcc generates for kernel<<<...>>>(...).
unsigned __cudaPushCallConfiguration(dim3, dim3, std::size_t bytes, cudaStream_t) {
  here().pushed_bytes = bytes;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* blocks, dim3* threads, std::size_t* bytes,
                                       void* stream) {
  *blocks = *threads = {1, 1, 1}, *bytes = here().pushed_bytes;
  *static_cast<cudaStream_t*>(stream) = nullptr;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* kernel) {
  *handle = reinterpret_cast<cudaKernel_t>(const_cast<void*>(kernel));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, std::size_t bytes,
                               cudaStream_t) {
  return launch(kernel, bytes);
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void**, std::size_t bytes,
                             cudaStream_t) {
  return launch(kernel, bytes);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void**) {
  return launch(kernel, config->dynamicSmemBytes);
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute which, int value) {
  if (which != cudaFuncAttributeMaxDynamicSharedMemorySize || value > most[here().device])
    return report(cudaErrorInvalidValue);
  here().allowed[{kernel, here().device}] = value;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  *attributes = {};
  attributes->maxDynamicSharedSizeBytes = allowed_bytes(kernel);
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = here().device;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(here().last, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t) { return "refused"; }
cudaError_t cudaMemsetAsync(void*, int, std::size_t, cudaStream_t) { return cudaSuccess; }
}

void first(std::int64_t shared_bytes);
void second(std::int64_t shared_bytes);

namespace {

int wrong = 0;
void check(bool right, const char* what) {
  if (right) return;
  std::printf("wrong: %s\n", what);
  ++wrong;
}
/// Launches on a device. Returns whether that succeeds.
bool launches(void (*unit)(std::int64_t), int device, std::int64_t kibibytes) {
  const int before = here().launches;
  here().device = device;
  try {
    unit(kibibytes * 1024);
  } catch (const scanrec::cuda::error& e) {
    std::printf("%s\n", e.what());
    return false;
  }
  return here().launches == before + 1;
}

}  // namespace

int main() {
  check(launches(first, 0, 60), "the first file launches with 60 KiB");
  check(launches(second, 0, 60), "the second file launches with 60 KiB");
  check(launches(first, 0, 123), "a kernel launches with more shared memory than before");
  check(launches(first, 0, 60), "a kernel launches with less shared memory than before");
  check(launches(first, 1, 60), "a device with less shared memory gets a lower limit");
  for (const auto& [key, bytes] : here().allowed)
    check(key.second == 1 || bytes >= 60 * 1024, "the allowed shared memory does not shrink");
  check(!launches(second, 1, 123), "more shared memory than the device has is rejected");
  check(here().last == cudaSuccess, "an error that was thrown is not reported again");
  here().last = cudaErrorInvalidResourceHandle;  // an error of the caller
  check(launches(first, 0, 4), "an earlier error of the caller does not fail the launch");
  check(here().last == cudaErrorInvalidResourceHandle, "an earlier error of the caller remains");
  return wrong == 0 ? 0 : 1;
}
