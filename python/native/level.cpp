// SPDX-License-Identifier: BSD-3-Clause
// The table of calls of one instruction set: the one symbol that its objects export, by the name
// that the build defines as SCANREC_LEVEL.
#include <complex>

#include "element_calls.hpp"
#include "pool_calls.hpp"

namespace scanrec::native::inline SCANREC_ABI {

#define SCANREC_COMPILED_ELSEWHERE(T)                                          \
  extern template void run_linear_scan<T>(const call&, const scan_arrays&);    \
  extern template void run_linear_scan_vjp<T>(const call&, const vjp_arrays&); \
  extern template void run_linear_scan_jvp<T>(const call&, const jvp_arrays&)
SCANREC_COMPILED_ELSEWHERE(float);
SCANREC_COMPILED_ELSEWHERE(double);
SCANREC_COMPILED_ELSEWHERE(std::complex<float>);
SCANREC_COMPILED_ELSEWHERE(std::complex<double>);
SCANREC_COMPILED_ELSEWHERE(bfloat16);
SCANREC_COMPILED_ELSEWHERE(float16);

#define SCANREC_POOL_COMPILED_ELSEWHERE(T)                                \
  extern template void run_qrnn_pool<T>(const call&, const pool_arrays&); \
  extern template void run_qrnn_pool_vjp<T>(const call&, const pool_vjp_arrays&)
SCANREC_POOL_COMPILED_ELSEWHERE(float);
SCANREC_POOL_COMPILED_ELSEWHERE(double);
SCANREC_POOL_COMPILED_ELSEWHERE(bfloat16);
SCANREC_POOL_COMPILED_ELSEWHERE(float16);

// The calls that there are for real types alone.
template <class T>
constexpr auto qrnn_pool_of = run_qrnn_pool<T>;
template <class T>
constexpr auto qrnn_pool_vjp_of = run_qrnn_pool_vjp<T>;
template <class R>
constexpr void (*qrnn_pool_of<std::complex<R>>)(const call&, const pool_arrays&) = nullptr;
template <class R>
constexpr void (*qrnn_pool_vjp_of<std::complex<R>>)(const call&, const pool_vjp_arrays&) = nullptr;

template <class... T>
constexpr kernels table_of() {
  static_assert(sizeof...(T) == dtypes);
  return {{run_linear_scan<T>...},
          {run_linear_scan_vjp<T>...},
          {run_linear_scan_jvp<T>...},
          {qrnn_pool_of<T>...},
          {qrnn_pool_vjp_of<T>...}};
}

}  // namespace scanrec::native::inline SCANREC_ABI

extern "C" __attribute__((visibility("hidden"))) const scanrec::native::kernels SCANREC_LEVEL;
// In the order of scanrec_dtype.
extern "C" const scanrec::native::kernels SCANREC_LEVEL =
    scanrec::native::table_of<float, double, std::complex<float>, std::complex<double>,
                              scanrec::bfloat16, scanrec::float16>();
