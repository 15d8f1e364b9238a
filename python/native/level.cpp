// SPDX-License-Identifier: BSD-3-Clause
// Defines the table of calls of one instruction set, or of GPUs. The table, scanrec_kernels_LEVEL,
// is the only symbol of the kernels that the rest of the library uses. The build defines three
// lists of types that have kernels: the element types, the state types of selective scans, and the
// compute types of causal convolutions.
#include <complex>
#include <type_traits>

#include <scanrec/element.hpp>

#include "calls.hpp"

namespace scanrec::native::SCANREC_LEVEL {

template <class... Types>
struct types {
  template <class T>
  static constexpr bool have = (std::is_same_v<T, Types> || ...);
};
template <class T>
constexpr bool known = types<SCANREC_ELEMENTS>::have<T>;
template <class T>
constexpr bool known_real = known<T> && !types<std::complex<float>, std::complex<double>>::have<T>;
template <class T>
constexpr bool selective = types<SCANREC_SELECTIVE_ELEMENTS>::have<T>;
template <class T>
constexpr bool conv1d = types<SCANREC_CONV1D_ELEMENTS>::have<T>;

/// Returns call() if `There` is true, and null otherwise.
template <bool There, class F>
constexpr auto where(F call) {
  if constexpr (There)
    return call();
  else
    return nullptr;
}

template <class... T>
constexpr kernels table_of() {
  static_assert(sizeof...(T) == dtypes);
  return {{where<known<T>>([] { return &run_linear_scan<T>; })...},
          {where<known<T>>([] { return &run_linear_scan_vjp<T>; })...},
          {where<known<T>>([] { return &run_linear_scan_jvp<T>; })...},
          {where<known_real<T>>([] { return &run_log_scan<T>; })...},
          {where<known_real<T>>([] { return &run_log_scan_vjp<T>; })...},
          {where<known_real<T>>([] { return &run_gated_scan<T>; })...},
          {where<known_real<T>>([] { return &run_gated_scan_vjp<T>; })...},
          {where<selective<T>>([] { return &run_selective_scan<T>; })...},
          {where<selective<T>>([] { return &run_selective_scan_vjp<T>; })...},
          {where<conv1d<T>>([] { return &run_causal_conv1d<T>; })...},
          {where<conv1d<T>>([] { return &run_causal_conv1d_vjp<T>; })...}};
}

}  // namespace scanrec::native::SCANREC_LEVEL

#define SCANREC_TABLE_OF_(level) scanrec_kernels_##level
#define SCANREC_TABLE_OF(level) SCANREC_TABLE_OF_(level)
#define SCANREC_TABLE SCANREC_TABLE_OF(SCANREC_LEVEL)

extern "C" __attribute__((visibility("hidden"))) const scanrec::native::kernels SCANREC_TABLE;
// In the order of scanrec_dtype.
extern "C" const scanrec::native::kernels SCANREC_TABLE =
    scanrec::native::SCANREC_LEVEL::table_of<float, double, std::complex<float>,
                                             std::complex<double>, scanrec::bfloat16,
                                             scanrec::float16>();
