// SPDX-License-Identifier: BSD-3-Clause
// Compile-time messages for invalid arrays of linear, gated and operator scans. The array
// parameters of these calls are unconstrained. Instead, a function fits_<call> asserts the
// requirements of each parameter. The body of the call is compiled only if fits_<call> is true.
#pragma once

#include <concepts>

#include <scanrec/concepts.hpp>

namespace scanrec::detail {

template <class V>
concept elements_or_none = std::same_as<V, none_t> || sequence_of_elements<V>;
template <class V>
concept writable_elements_or_none = elements_or_none<V> && writable_sequence_argument<V>;

}  // namespace scanrec::detail

// Macros, since the message of an assertion must be a literal.
#define SCANREC_EXPECT(fits, call, argument, expected) \
  static_assert(fits, "scanrec: " call ": argument '" argument "': expected " expected)
#define SCANREC_EXPECT_VIEW(fits, call, argument, more)                                      \
  SCANREC_EXPECT(fits, call, argument,                                                       \
                 "a sequence_view of float, double, complex, bfloat16, float16 or uint32_t " \
                 "(as_sequence(x) of an Eigen matrix, view_of(x) of an mdspan)" more)
#define SCANREC_TYPE_OF_GATES                                                                  \
  "the compute type of 'gate' (float for bfloat16 and float16; complex for a complex gate; a " \
  "vec for a mat)"
#define SCANREC_OR_NONE ", or none"
#define SCANREC_TO_WRITE ", with elements that can be written, or none"
