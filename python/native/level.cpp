// SPDX-License-Identifier: BSD-3-Clause
// The table of calls of one instruction set: the one symbol that its objects export, by the name
// that the build defines as SCANREC_LEVEL.
#include <complex>

#include "element_calls.hpp"

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

template <class... T>
constexpr kernels table_of() {
  static_assert(sizeof...(T) == dtypes);
  return {{run_linear_scan<T>...}, {run_linear_scan_vjp<T>...}, {run_linear_scan_jvp<T>...}};
}

}  // namespace scanrec::native::inline SCANREC_ABI

extern "C" __attribute__((visibility("hidden"))) const scanrec::native::kernels SCANREC_LEVEL;
// In the order of scanrec_dtype.
extern "C" const scanrec::native::kernels SCANREC_LEVEL =
    scanrec::native::table_of<float, double, std::complex<float>, std::complex<double>,
                              scanrec::bfloat16, scanrec::float16>();
