// SPDX-License-Identifier: BSD-3-Clause
// The arguments of selective_scan and its adjoint on CPUs and GPUs: sequences of any stored type,
// states, and options.
#pragma once

#include <cstdint>
#include <type_traits>

#include <scanrec/detail/recurrence/selective.hpp>
#include <scanrec/options.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/stored_sequence.hpp>
#include <scanrec/views.hpp>

namespace scanrec::inline SCANREC_ABI {

/// Strides of a contiguous array (batch, time, channel, group), `group` fastest. In a B or C per
/// step (bc_view), the `channel` axis counts groups of channels and the `group` axis counts states.
SCANREC_INLINE constexpr strides states_last(const extents& shape) {
  const std::int64_t row = detail::clipped_product(shape.channel, shape.group);
  return {.batch = detail::clipped_product(shape.time, row),
          .time = row,
          .channel = shape.group,
          .group = 1};
}

/// B or C, in one of two shapes, both with states on the `group` axis. Per step: (batch, time,
/// groups, states), with groups of channels on the `channel` axis; the channels of a group share B
/// or C. Per channel: (channel, states), constant in time. A complex B or C per step is a view of
/// std::complex, or two views of its real and imaginary parts. Real arrays per step may have any
/// element type whose compute type is V's real type.
template <class V>
struct bc_view {
  using part = detail::real_part_of<V>;
  stored_sequence<part> steps;
  stored_sequence<part> imaginary;  ///< if V is complex: imaginary parts, shaped as `steps`
  state_view<V> channels;

  SCANREC_INLINE constexpr bc_view() = default;
  template <class S>
  requires(!detail::is_complex<std::remove_const_t<V>> &&
           std::is_constructible_v<stored_sequence<V>, sequence_view<S>>) SCANREC_INLINE
      bc_view(const sequence_view<S>& view)  // NOLINT(google-explicit-constructor)
      : steps(view) {}
  template <class S>
  requires(detail::is_complex<std::remove_const_t<V>>&& std::is_convertible_v<S*, V*>)
      SCANREC_INLINE bc_view(const sequence_view<S>& view)  // NOLINT(google-explicit-constructor)
      : steps(part_of(view, 0)), imaginary(part_of(view, 1)) {}
  template <class Re, class Im>
  requires(detail::is_complex<std::remove_const_t<V>>) SCANREC_INLINE
      bc_view(const sequence_view<Re>& real, const sequence_view<Im>& imaginary_part)
      : steps(real), imaginary(imaginary_part) {}
  SCANREC_INLINE
  bc_view(const state_view<V>& view)  // NOLINT(google-explicit-constructor)
      : channels(view) {}
  template <class U>
  requires(std::is_same_v<const U, V>) SCANREC_INLINE
      bc_view(const state_view<U>& view)  // NOLINT(google-explicit-constructor)
      : channels(view) {}

  [[nodiscard]] SCANREC_INLINE bool absent() const {
    return steps.absent() && imaginary.absent() && channels.absent();
  }

 private:
  template <class S>
  SCANREC_INLINE static sequence_view<part> part_of(const sequence_view<S>& view, int which) {
    if (view.absent()) return {};
    // A doubled stride that would overflow is clipped, so that the checks can refuse it.
    const auto twice = [](std::int64_t stride) { return detail::clipped_product(2, stride); };
    const strides& s = view.strides;
    return {reinterpret_cast<part*>(view.data) + which,
            view.shape,
            {.batch = twice(s.batch),
             .time = twice(s.time),
             .channel = twice(s.channel),
             .group = twice(s.group)}};
  }
};

/// The input arrays of a selective scan. V is the type of the states: float, double, or
/// std::complex of either. Step sizes, inputs and outputs are real.
///
/// Shapes  u, delta, z: (batch, time, channel), in any element types whose compute type is V's real
///         type. a: (channel, states), with up to 2^31 - 1 states on the `group` axis. b, c:
///         bc_view. d, delta_bias: (channel). intervals: (batch, time, 1).
/// Units   interval times step size times a is dimensionless.
template <class V>
struct selective_arrays {
  using real = detail::real_part_of<V>;
  stored_sequence<const real> u, delta;
  detail::state_option<const V> a;
  bc_view<const V> b, c;
  detail::state_option<const real> d{};           ///< D; absent: 0
  stored_sequence<const real> z{};                ///< absent: outputs are not gated
  detail::state_option<const real> delta_bias{};  ///< absent: 0
  bool softplus = false;  ///< step sizes: delta + delta_bias; true: softplus of this sum
  /// Factors of the step sizes, one per step, for samples at irregular times; absent: 1.
  detail::sequence_option<const real> intervals{};
};

/// Options of selective_scan.
template <class V>
struct selective_options {
  direction order = direction::forward;
  detail::state_option<const V> initial_state{};  ///< (batch, channel, states); absent: 0
  detail::state_option<V> final_state{};          ///< the same shape; last state of the scan
  detail::sequence_option<const bool> resets{};   ///< reset mask, as in scan_options
  /// checkpoint_extents() of (batch, time, channel, states). Receives the states before each
  /// interval of 128 steps except the first, for selective_scan_vjp. Intervals are counted from the
  /// end of the scan.
  detail::sequence_option<V> checkpoints{};
};

/// Options of selective_scan_vjp. `order`, `initial_state` and `resets` must be those of the
/// forward call.
template <class V>
struct selective_vjp_options {
  direction order = direction::forward;
  detail::state_option<const V> initial_state{};
  detail::state_option<const V> final_grad{};  ///< gradient of the final state; absent: 0
  detail::sequence_option<const bool> resets{};
  detail::sequence_option<const V> checkpoints{};  ///< from the forward call; absent: recomputed
};

/// The gradients that selective_scan_vjp computes, each with the shape of its array. An absent
/// gradient is not computed. The gradient of B or C is per step or per channel, as B or C is.
/// Gradients of complex numbers are dL/dRe + i dL/dIm.
template <class V>
struct selective_gradients {
  using real = detail::real_part_of<V>;
  stored_sequence<real> u{}, delta{};
  detail::state_option<V> a{};
  bc_view<V> b{}, c{};
  detail::state_option<real> d{};
  stored_sequence<real> z{};
  detail::state_option<real> delta_bias{};
  detail::state_option<V> initial_state{};
  detail::sequence_option<real> intervals{};
  scanrec::update update = update::overwrite;
};

}  // namespace scanrec::inline SCANREC_ABI
