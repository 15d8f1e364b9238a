// SPDX-License-Identifier: BSD-3-Clause
// The calls of linear attention that tests make, on both backends. A generated source file defines
// TEST_KERNELS and includes this header, and tests link the resulting kernels (see
// tests/CMakeLists.txt). Elsewhere, the calls are only declared.
#pragma once

#include <cstdint>

#include <scanrec/linear_attention.hpp>

#if defined(TEST_KERNELS)
#define TEST_EXTERNAL
#else
#define TEST_EXTERNAL extern
#endif
#define TEST_FORWARD(Backend, V)                                                                  \
  TEST_EXTERNAL template void linear_attention(const Backend&, const linear_attention_arrays<V>&, \
                                               const stored_sequence<V>&,                         \
                                               const linear_attention_options<V>&);               \
  TEST_EXTERNAL template std::int64_t linear_attention_workspace_bytes(                           \
      const Backend&, const linear_attention_arrays<V>&, const stored_sequence<V>&,               \
      const linear_attention_options<V>&);
#define TEST_VJP(Backend, V)                                                              \
  TEST_EXTERNAL template void linear_attention_vjp(                                       \
      const Backend&, const linear_attention_arrays<V>&, const stored_sequence<const V>&, \
      const linear_attention_gradients<V>&, const linear_attention_vjp_options<V>&);      \
  TEST_EXTERNAL template std::int64_t linear_attention_vjp_workspace_bytes(               \
      const Backend&, const linear_attention_arrays<V>&, const stored_sequence<const V>&, \
      const linear_attention_gradients<V>&, const linear_attention_vjp_options<V>&);

namespace scanrec {

TEST_FORWARD(tiled, float)
TEST_FORWARD(tiled, double)
TEST_FORWARD(sequential, float)
TEST_FORWARD(sequential, double)
TEST_VJP(tiled, float)
TEST_VJP(tiled, double)
TEST_VJP(sequential, float)

}  // namespace scanrec

#undef TEST_EXTERNAL
#undef TEST_FORWARD
#undef TEST_VJP
