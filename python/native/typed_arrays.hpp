// SPDX-License-Identifier: BSD-3-Clause
// Converts arrays that each have their own element type to views of the C++ interface.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <scanrec/c/scanrec.h>
#include <scanrec/element.hpp>
#include <scanrec/error.hpp>
#include <scanrec/stored_sequence.hpp>
#include <scanrec/views.hpp>

namespace scanrec::native::SCANREC_LEVEL {

/// Makes the views of a call that computes in the real type R.
template <class R>
class typed_arrays {
 public:
  explicit typed_arrays(const char* call) : call_(call) {}

  [[noreturn]] void refuse(const char* argument, const char* expected,
                           const std::string& got) const {
    throw argument_error(call_, argument, expected, got);
  }
  [[noreturn]] void refuse(const char* argument, const char* expected, std::int32_t dtype) const {
    refuse(argument, expected, "scanrec_dtype " + std::to_string(dtype));
  }
  /// The view of an array. E is R, or `const R` for an array that is read. The view starts `first`
  /// elements after the pointer.
  template <class E>
  stored_sequence<E> stored(const char* argument, const scanrec_typed_array& a,
                            const extents& shape, const strides& strides, int first = 0) const {
    const auto of = [&](auto element) -> stored_sequence<E> {
      using S = decltype(element);
      using stored_type = std::conditional_t<std::is_const_v<E>, const S, S>;
      auto* const data = static_cast<stored_type*>(a.data);
      return sequence_view<stored_type>{data == nullptr ? data : data + first, shape, strides};
    };
    if (a.dtype == own) return of(R{});
    if constexpr (single) {
      if (a.dtype == SCANREC_BFLOAT16) return of(bfloat16{});
      if (a.dtype == SCANREC_FLOAT16) return of(float16{});
      refuse(argument, "float32, bfloat16 or float16", a.dtype);
    }
    refuse(argument, own_name, a.dtype);
  }

  static constexpr bool single = std::is_same_v<R, float>;
  static constexpr std::int32_t own = single ? SCANREC_FLOAT32 : SCANREC_FLOAT64;
  static constexpr const char* own_name = single ? "float32" : "float64";

 private:
  const char* call_;
};

}  // namespace scanrec::native::SCANREC_LEVEL
