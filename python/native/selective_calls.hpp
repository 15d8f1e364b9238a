// SPDX-License-Identifier: BSD-3-Clause
// Runs selective scans of one state type. Each scanrec_typed_array of a call may have its own
// element type.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <scanrec/c/scanrec.h>
#include <scanrec/element.hpp>
#include <scanrec/memory.hpp>
#include <scanrec/selective_arrays.hpp>

#include SCANREC_BACKEND
#include "calls.hpp"
#include "typed_arrays.hpp"

namespace scanrec::native::SCANREC_LEVEL {

/// Converts the arrays of a call to views of the C++ interface. V is the state type.
template <class V>
class selective_views : typed_arrays<detail::real_part_of<V>> {
  using base = typed_arrays<detail::real_part_of<V>>;
  using base::refuse;

 public:
  using real = detail::real_part_of<V>;

  selective_views(const char* name, const scanrec_selective_problem& problem)
      : base(name), p_(problem) {
    if (p_.groups < 1 || p_.channel % p_.groups != 0)
      refuse("groups", "1 or more groups that divide the channels",
             std::to_string(p_.groups) + " for " + std::to_string(p_.channel) + " channels");
    if (p_.states < 1) refuse("states", "1 or more", std::to_string(p_.states));
  }

  [[nodiscard]] direction order() const {
    return p_.reverse != 0 ? direction::reverse : direction::forward;
  }
  /// The view of an array. Here and below, E is const for an array that is read.
  template <class E>
  stored_sequence<E> sequence(const char* argument, const scanrec_typed_array& a) const {
    if (a.strides == nullptr) return {};
    return this->template stored<E>(
        argument, a, {.batch = p_.batch, .time = p_.time, .channel = p_.channel},
        {.batch = a.strides[0], .time = a.strides[1], .channel = a.strides[2]});
  }
  template <class E>
  bc_view<E> bc(const char* argument, const scanrec_typed_array& a, std::int32_t of_steps) const {
    if (of_steps == 0) {
      if (a.strides != nullptr && a.dtype != p_.dtype) refuse(argument, state_name, a.dtype);
      return states_of_channels<E>({a.data, a.strides});
    }
    if (a.strides == nullptr) return {};
    const auto part = [&](int which) {
      return this->template stored<typename bc_view<E>::part>(
          argument, a,
          {.batch = p_.batch, .time = p_.time, .channel = p_.groups, .group = p_.states},
          {.batch = a.strides[0],
           .time = a.strides[1],
           .channel = a.strides[2],
           .group = a.strides[3]},
          which);
    };
    bc_view<E> view;
    view.steps = part(0);
    if constexpr (detail::is_complex<V>) view.imaginary = part(1);
    return view;
  }
  template <class E>
  state_view<E> states_of_channels(const scanrec_array& a) const {
    if (a.strides == nullptr) return {};
    return {static_cast<E*>(a.data),
            {.channel = p_.channel, .group = p_.states},
            {.channel = a.strides[0], .group = a.strides[1]}};
  }
  template <class E>
  state_view<E> channels(const scanrec_array& a) const {
    if (a.strides == nullptr) return {};
    return {static_cast<E*>(a.data), {.channel = p_.channel}, {.channel = a.strides[0]}};
  }
  /// One number per step, shared by all channels.
  template <class E>
  sequence_view<E> steps(const scanrec_array& a) const {
    if (a.strides == nullptr) return {};
    return {static_cast<E*>(a.data),
            {.batch = p_.batch, .time = p_.time},
            {.batch = a.strides[0], .time = a.strides[1]}};
  }
  template <class E>
  state_view<E> states(const scanrec_array& a) const {
    if (a.strides == nullptr) return {};
    return {static_cast<E*>(a.data),
            {.batch = p_.batch, .channel = p_.channel, .group = p_.states},
            {.batch = a.strides[0], .channel = a.strides[1], .group = a.strides[2]}};
  }
  template <class E>
  sequence_view<E> checkpoints(const scanrec_array& a) const {
    if (a.strides == nullptr) return {};
    return {static_cast<E*>(a.data),
            memory::checkpoint_extents(
                {.batch = p_.batch, .time = p_.time, .channel = p_.channel, .group = p_.states}),
            {.batch = a.strides[0],
             .time = a.strides[1],
             .channel = a.strides[2],
             .group = a.strides[3]}};
  }
  [[nodiscard]] sequence_view<const bool> resets(const scanrec_array& a) const {
    if (a.strides == nullptr) return {};
    return {
        static_cast<const bool*>(a.data),
        {.batch = p_.batch, .time = p_.time + (p_.more_resets != 0 ? 1 : 0), .channel = p_.channel},
        {.batch = a.strides[0], .time = a.strides[1], .channel = a.strides[2]}};
  }
  /// The arrays that a call and its adjoint both read, and `softplus`.
  template <class Arrays>
  selective_arrays<V> arrays(const Arrays& a) const {
    return {.u = sequence<const real>("u", a.u),
            .delta = sequence<const real>("delta", a.delta),
            .a = states_of_channels<const V>(a.a),
            .b = bc<const V>("b", a.b, p_.b_of_steps),
            .c = bc<const V>("c", a.c, p_.c_of_steps),
            .d = channels<const real>(a.d),
            .z = sequence<const real>("z", a.z),
            .delta_bias = channels<const real>(a.delta_bias),
            .softplus = p_.softplus != 0,
            .intervals = steps<const real>(a.intervals)};
  }

 private:
  static constexpr const char* state_name = !detail::is_complex<V> ? base::own_name
                                            : base::single         ? "complex64"
                                                                   : "complex128";

  const scanrec_selective_problem& p_;
};

template <class V>
void run_selective_scan(const selective_call& c, const scanrec_selective_arrays& a) {
  const selective_views<V> of("selective_scan", c.problem);
  const auto arrays = of.arrays(a);
  const auto out = of.template sequence<typename selective_views<V>::real>("out", a.out);
  const selective_options<V> options{.order = of.order(),
                                     .initial_state = of.template states<const V>(a.initial_state),
                                     .final_state = of.template states<V>(a.final_state),
                                     .resets = of.resets(a.resets),
                                     .checkpoints = of.template checkpoints<V>(a.checkpoints)};
  selective_scan(backend_of(c), arrays, out, options);
}

template <class V>
void run_selective_scan_vjp(const selective_call& c, const scanrec_selective_vjp_arrays& a) {
  const selective_views<V> of("selective_scan_vjp", c.problem);
  using real = typename selective_views<V>::real;
  const auto arrays = of.arrays(a);
  const auto out_grad = of.template sequence<const real>("out_grad", a.out_grad);
  const selective_gradients<V> gradients{
      .u = of.template sequence<real>("u_grad", a.u_grad),
      .delta = of.template sequence<real>("delta_grad", a.delta_grad),
      .a = of.template states_of_channels<V>(a.a_grad),
      .b = of.template bc<V>("b_grad", a.b_grad, c.problem.b_of_steps),
      .c = of.template bc<V>("c_grad", a.c_grad, c.problem.c_of_steps),
      .d = of.template channels<real>(a.d_grad),
      .z = of.template sequence<real>("z_grad", a.z_grad),
      .delta_bias = of.template channels<real>(a.delta_bias_grad),
      .initial_state = of.template states<V>(a.initial_grad),
      .intervals = of.template steps<real>(a.intervals_grad)};
  const selective_vjp_options<V> options{
      .order = of.order(),
      .initial_state = of.template states<const V>(a.initial_state),
      .final_grad = of.template states<const V>(a.final_grad),
      .resets = of.resets(a.resets),
      .checkpoints = of.template checkpoints<const V>(a.checkpoints)};
  selective_scan_vjp(backend_of(c), arrays, out_grad, gradients, options);
}

}  // namespace scanrec::native::SCANREC_LEVEL
