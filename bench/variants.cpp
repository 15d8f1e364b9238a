// SPDX-License-Identifier: BSD-3-Clause
// The calls on every CPU backend for one element type, BENCH_TYPE, which CMakeLists.txt defines.
#include <scanrec/variants.hpp>
#if SCANREC_BENCH_EIGEN
#include <scanrec/triangular_matmul.hpp>
#endif

#include "variants.hpp"

namespace bench {
namespace {

template <class T, class Backend>
void run(const Backend& backend, call what, arrays<T>& a) {
  switch (what) {
    case call::forward:
      return linear_scan(backend, a.gate(), a.array(1), a.array(2));
    case call::vjp:
      return linear_scan_vjp(backend, a.gate(), a.array(1), a.array(2),
                             {.gate_grad = a.gate_grad(), .input_grad = a.array(4)});
    case call::jvp:
      return linear_scan_jvp(backend, a.gate(), a.array(1), a.gate_tangent(), a.array(3),
                             a.array(4));
  }
}

template <class T, class Backend>
variant<T> make(const char* name, const Backend& backend) {
  return {name, [=](call what, arrays<T>& a) { run(backend, what, a); }};
}

}  // namespace

template <>
std::vector<variant<BENCH_TYPE>> variants() {
  using T = BENCH_TYPE;
  return {
    make<T>("tiled", tiled{}), make<T>("sequential", sequential{}),
        make<T>("hillis_steele", hillis_steele{}), make<T>("blelloch", blelloch{}),
#if SCANREC_BENCH_EIGEN
        make<T>("triangular_matmul", triangular_matmul{}),
#endif
  };
}

}  // namespace bench
