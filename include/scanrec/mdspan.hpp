// SPDX-License-Identifier: BSD-3-Clause
// Views of std::mdspan and of types with the same interface. Includes no mdspan header.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <scanrec/detail/config.hpp>
#include <scanrec/views.hpp>

namespace scanrec {

namespace detail {
inline namespace SCANREC_ABI {

/// The common interface of std::mdspan (C++23) and std::experimental::mdspan.
template <class M>
concept mdspan_like = requires(const M& array) {
  typename M::element_type;
  { M::rank() } -> std::convertible_to<std::size_t>;
  { array.extent(0) } -> std::convertible_to<std::int64_t>;
  array.data_handle();
};

/// Whether every mdspan of type M has strides. If M lacks is_always_strided(), a member stride()
/// suffices.
template <class M>
constexpr bool always_strided() {
  if constexpr (requires { M::is_always_strided(); })
    return M::is_always_strided();
  else
    return requires(const M& array) { array.stride(0); };
}
/// Whether the accessor returns references to the elements at the data handle, not computed values.
template <class M>
constexpr bool elements_in_memory() {
  using element = typename M::element_type;
  using handle = decltype(std::declval<const M&>().data_handle());
  if constexpr (requires { typename M::reference; })
    if (!std::is_same_v<typename M::reference, element&>) return false;
  return std::is_same_v<std::remove_cvref_t<handle>, element*>;
}
template <class M>
constexpr void check_mdspan() {
  static_assert(always_strided<M>(),
                "A view needs strides, which the layout of this mdspan may lack. layout_right, "
                "layout_left and layout_stride have them.");
  static_assert(elements_in_memory<M>(),
                "A view accesses memory directly, but this mdspan has a custom accessor.");
}

/// Extent and stride of the axis that is `FromLast` axes before the last one. An absent axis has
/// extent 1 and stride 0.
template <std::size_t FromLast, class M>
constexpr std::int64_t mdspan_extent(const M& array) {
  if constexpr (FromLast < M::rank())
    return static_cast<std::int64_t>(array.extent(M::rank() - 1 - FromLast));
  else
    return 1;
}
template <std::size_t FromLast, class M>
constexpr std::int64_t mdspan_stride(const M& array) {
  if constexpr (FromLast < M::rank())
    return static_cast<std::int64_t>(array.stride(M::rank() - 1 - FromLast));
  else
    return 0;
}

}  // namespace SCANREC_ABI
}  // namespace detail

/// A view of an mdspan of rank 1 to 4, over (time), (time, channel), (batch, time, channel) or
/// (group, batch, time, channel). An absent axis has an extent of 1.
///
/// `array` is a std::mdspan, or has the members element_type, rank(), extent(i), stride(i) and
/// data_handle(). Layouts without strides, and accessors that compute their elements, are refused
/// at compile time. Nothing is copied, and the elements must outlive the view.
template <detail::mdspan_like M>
[[nodiscard]] SCANREC_INLINE constexpr sequence_view<typename M::element_type> view_of(
    const M& array) {
  static_assert(M::rank() >= 1 && M::rank() <= 4,
                "A sequence_view needs an mdspan over (time), (time, channel), (batch, time, "
                "channel) or (group, batch, time, channel).");
  detail::check_mdspan<M>();
  if constexpr (M::rank() == 1)
    return {array.data_handle(),
            {.time = detail::mdspan_extent<0>(array)},
            {.time = detail::mdspan_stride<0>(array)}};
  else
    return {array.data_handle(),
            {.batch = detail::mdspan_extent<2>(array),
             .time = detail::mdspan_extent<1>(array),
             .channel = detail::mdspan_extent<0>(array),
             .group = detail::mdspan_extent<3>(array)},
            {.batch = detail::mdspan_stride<2>(array),
             .time = detail::mdspan_stride<1>(array),
             .channel = detail::mdspan_stride<0>(array),
             .group = detail::mdspan_stride<3>(array)}};
}

/// A state view of an mdspan of rank 1 to 3, over (channel), (batch, channel) or (group, batch,
/// channel).
template <detail::mdspan_like M>
[[nodiscard]] SCANREC_INLINE constexpr state_view<typename M::element_type> state_view_of(
    const M& array) {
  static_assert(M::rank() >= 1 && M::rank() <= 3,
                "A state_view needs an mdspan over (channel), (batch, channel) or (group, batch, "
                "channel).");
  detail::check_mdspan<M>();
  return {array.data_handle(),
          {.batch = detail::mdspan_extent<1>(array),
           .channel = detail::mdspan_extent<0>(array),
           .group = detail::mdspan_extent<2>(array)},
          {.batch = detail::mdspan_stride<1>(array),
           .channel = detail::mdspan_stride<0>(array),
           .group = detail::mdspan_stride<2>(array)}};
}

}  // namespace scanrec
