// SPDX-License-Identifier: BSD-3-Clause
// Runs causal convolutions of one compute type.
#pragma once

#include <cstdint>
#include <string>

#include <scanrec/c/scanrec.h>
#include <scanrec/causal_conv1d.hpp>

#include SCANREC_BACKEND
#include "calls.hpp"
#include "typed_arrays.hpp"

namespace scanrec::native::SCANREC_LEVEL {

/// Converts the arrays of a call to views of the C++ interface.
template <class V>
class conv1d_views : typed_arrays<V> {
 public:
  conv1d_views(const char* name, const scanrec_causal_conv1d_problem& problem)
      : typed_arrays<V>(name), p_(problem) {
    if (p_.width < 1) this->refuse("width", "1 or more", std::to_string(p_.width));
  }

  /// The view of an array. Here and below, E is const for an array that is read.
  template <class E>
  stored_sequence<E> sequence(const char* argument, const scanrec_typed_array& a) const {
    return of_steps<E>(argument, a, p_.time);
  }
  template <class E>
  stored_sequence<E> of_steps(const char* argument, const scanrec_typed_array& a,
                              std::int64_t steps) const {
    if (a.strides == nullptr) return {};
    return this->template stored<E>(
        argument, a, {.batch = p_.batch, .time = steps, .channel = p_.channel},
        {.batch = a.strides[0], .time = a.strides[1], .channel = a.strides[2]});
  }
  template <class E>
  state_view<E> weight(const scanrec_array& a) const {
    if (a.strides == nullptr) return {};
    return {static_cast<E*>(a.data),
            {.channel = p_.channel, .group = p_.width},
            {.channel = a.strides[0], .group = a.strides[1]}};
  }
  template <class E>
  state_view<E> bias(const scanrec_array& a) const {
    if (a.strides == nullptr) return {};
    return {static_cast<E*>(a.data), {.channel = p_.channel}, {.channel = a.strides[0]}};
  }
  [[nodiscard]] sequence_view<const bool> resets(const scanrec_array& a) const {
    if (a.strides == nullptr) return {};
    return {static_cast<const bool*>(a.data),
            {.batch = p_.batch, .time = p_.time},
            {.batch = a.strides[0], .time = a.strides[1]}};
  }
  /// The arrays that a call and its adjoint both read, and the activation.
  template <class Arrays>
  causal_conv1d_arrays<V> arrays(const Arrays& a) const {
    return {.x = sequence<const V>("x", a.x),
            .weight = weight<const V>(a.weight),
            .bias = bias<const V>(a.bias),
            .activation = p_.silu != 0 ? conv1d_activation::silu : conv1d_activation::none};
  }

 private:
  const scanrec_causal_conv1d_problem& p_;
};

template <class V>
void run_causal_conv1d(const conv1d_call& c, const scanrec_causal_conv1d_arrays& a) {
  const conv1d_views<V> of("causal_conv1d", c.problem);
  const auto first = c.problem.initial_steps, last = c.problem.final_steps;
  const causal_conv1d_options<V> options{
      .initial_state = of.template of_steps<const V>("initial_state", a.initial_state, first),
      .final_state = of.template of_steps<V>("final_state", a.final_state, last),
      .resets = of.resets(a.resets)};
  causal_conv1d(backend_of(c), of.arrays(a), of.template sequence<V>("out", a.out), options);
}

template <class V>
void run_causal_conv1d_vjp(const conv1d_call& c, const scanrec_causal_conv1d_vjp_arrays& a) {
  const conv1d_views<V> of("causal_conv1d_vjp", c.problem);
  const auto first = c.problem.initial_steps, last = c.problem.final_steps;
  const causal_conv1d_gradients<V> gradients{
      .x = of.template sequence<V>("x_grad", a.x_grad),
      .weight = of.template weight<V>(a.weight_grad),
      .bias = of.template bias<V>(a.bias_grad),
      .initial_state = of.template of_steps<V>("initial_grad", a.initial_grad, first)};
  const causal_conv1d_vjp_options<V> options{
      .initial_state = of.template of_steps<const V>("initial_state", a.initial_state, first),
      .final_grad = of.template of_steps<const V>("final_grad", a.final_grad, last),
      .resets = of.resets(a.resets)};
  causal_conv1d_vjp(backend_of(c), of.arrays(a),
                    of.template sequence<const V>("out_grad", a.out_grad), gradients, options);
}

}  // namespace scanrec::native::SCANREC_LEVEL
