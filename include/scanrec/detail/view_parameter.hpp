// SPDX-License-Identifier: BSD-3-Clause
// Views as members of options and as parameters of calls.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <scanrec/detail/config.hpp>
#include <scanrec/views.hpp>

namespace scanrec::detail {

template <class View>
inline constexpr bool is_state_view = false;
template <class T>
inline constexpr bool is_state_view<state_view<T>> = true;

/// A view as a parameter. Its constructor accepts any argument, so that a static_assert can say in
/// words what is expected if an argument does not convert to View. View itself accepts only
/// arguments that convert, so that functions can be overloaded on it.
template <class View>
struct view_parameter : View {
  // The view's constructors are repeated here, since inherited constructors would not always be
  // inlined.
  SCANREC_INLINE constexpr view_parameter() = default;
  template <class Data>
  SCANREC_INLINE constexpr view_parameter(Data&& data, const extents& shape)
      : View(std::forward<Data>(data), shape) {}
  template <class Data>
  SCANREC_INLINE constexpr view_parameter(Data&& data, const extents& shape,
                                          const scanrec::strides& strides)
      : View(std::forward<Data>(data), shape, strides) {}
  template <class Data, std::integral Count>
  SCANREC_INLINE constexpr view_parameter(Data&& data, Count channels)
      : View(std::forward<Data>(data), channels) {}
  template <class Given>
  SCANREC_INLINE constexpr view_parameter(
      const Given& given)  // NOLINT(google-explicit-constructor)
      : View(view_or_none(given)) {
    constexpr bool fits = std::is_convertible_v<const Given&, View>;
    static_assert(fits || !is_state_view<View>,
                  "scanrec: expected a state_view(x, extents) of the compute type of the arrays "
                  "(float for bfloat16 and float16), with non-const elements if the call writes "
                  "it; pass {} for an absent array");
    static_assert(fits || is_state_view<View>,
                  "scanrec: expected a sequence_view(x, extents) of the element type of View, "
                  "with non-const elements if the call writes it; pass {} for an absent array");
  }

 private:
  template <class Given>
  SCANREC_INLINE static constexpr View view_or_none(const Given& given) {
    if constexpr (std::is_convertible_v<const Given&, View>)
      return given;
    else
      return {};
  }
};

/// The types of options that are views of states or of sequences.
template <class T>
using state_option = view_parameter<state_view<T>>;
template <class T>
using sequence_option = view_parameter<sequence_view<T>>;

}  // namespace scanrec::detail
