// SPDX-License-Identifier: BSD-3-Clause
// The calls as XLA sees them on GPUs: queued in its stream, working in memory that it lends. Not
// marked as fit for command buffers: what XLA lends is its own again when the handler returns,
// while a recorded call would run later.
#include <cstdint>
#include <optional>

#include <scanrec/c/scanrec_cuda.h>

#include "xla_call.hpp"
#include "xla_selective.hpp"

namespace {

using namespace scanrec::native;

void* lend(void* context, std::int64_t bytes) {
  constexpr std::size_t alignment = 16;
  auto* const scratch = static_cast<ffi::ScratchAllocator*>(context);
  return scratch->Allocate(static_cast<std::size_t>(bytes), alignment).value_or(nullptr);
}

/// The handler of a call.
template <auto Function>
ffi::Error run(void* stream, ffi::ScratchAllocator scratch, std::int64_t axis, bool reverse,
               span shape, std::int64_t stack, std::int64_t logarithms, double forget_bias,
               std::int64_t operands, std::int64_t results, ffi::RemainingArgs args,
               ffi::RemainingRets rets) {
  using Arrays = decltype(arrays_taken_by(Function));
  const auto call = [&](const scanrec_problem& problem, const Arrays& arrays) {
    const scanrec_cuda_queue queue{stream, lend, &scratch};
    return Function(&problem, &arrays, &queue);
  };
  return call_on_buffers<Arrays>(
      {axis, reverse, shape, stack, logarithms, forget_bias, operands, results}, args, rets, call,
      scanrec_cuda_last_error);
}

/// The handler of a selective scan.
template <auto Function>
ffi::Error run_selective(void* stream, ffi::ScratchAllocator scratch, bool softplus, bool reverse,
                         std::int64_t operands, std::int64_t results, ffi::RemainingArgs args,
                         ffi::RemainingRets rets) {
  using Arrays = decltype(arrays_taken_by(Function));
  const auto call = [&](const scanrec_selective_problem& problem, const Arrays& arrays) {
    const scanrec_cuda_queue queue{stream, lend, &scratch};
    return Function(&problem, &arrays, &queue);
  };
  return call_on_selective_buffers<Arrays>({softplus, reverse, operands, results}, args, rets, call,
                                           scanrec_cuda_last_error);
}

auto contexts() {
  return ffi::Ffi::Bind().Ctx<ffi::PlatformStream<void*>>().Ctx<ffi::ScratchAllocator>();
}
auto binding() { return with_attributes_and_buffers(contexts()); }
auto selective_binding() { return with_selective_attributes_and_buffers(contexts()); }

}  // namespace

SCANREC_HANDLER(scanrec_xla_cuda_linear_scan, scanrec_cuda_linear_scan)
SCANREC_HANDLER(scanrec_xla_cuda_linear_scan_vjp, scanrec_cuda_linear_scan_vjp)
SCANREC_HANDLER(scanrec_xla_cuda_linear_scan_jvp, scanrec_cuda_linear_scan_jvp)
SCANREC_HANDLER(scanrec_xla_cuda_gated_scan, scanrec_cuda_gated_scan)
SCANREC_HANDLER(scanrec_xla_cuda_gated_scan_vjp, scanrec_cuda_gated_scan_vjp)
SCANREC_HANDLER_OF(scanrec_xla_cuda_selective_scan, selective_binding, run_selective,
                   scanrec_cuda_selective_scan)
SCANREC_HANDLER_OF(scanrec_xla_cuda_selective_scan_vjp, selective_binding, run_selective,
                   scanrec_cuda_selective_scan_vjp)
