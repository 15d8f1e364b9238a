// SPDX-License-Identifier: BSD-3-Clause
// Implements backend_of<T>, the abstract class through which tests call a backend, by the library's
// calls with a backend of type Backend.
#pragma once

#include <memory>
#include <utility>

#include <scanrec/linear_scan.hpp>

#include "tested_interface.hpp"

namespace tested {

template <class T, class Backend>
class backend_calls : public backend_of<T> {
 public:
  using V = compute_t<T>;
  explicit backend_calls(Backend backend) : backend_(std::move(backend)) {}

  void forward(maybe<T> gate, maybe<T> input, maybe<T> state,
               const scan_options<V>& options) const override {
    if_given(state, [&](auto x) { linear_scan(backend_, view(gate), view(input), x, options); });
  }
  void vjp(maybe<T> gate, maybe<T> state, maybe<T> grad, const scan_gradients<T>& gradients,
           const vjp_options<V>& options) const override {
    if_given(state, [&](auto x) {
      if_given(grad,
               [&](auto g) { linear_scan_vjp(backend_, view(gate), x, g, gradients, options); });
    });
  }
  void jvp(maybe<T> gate, maybe<T> state, maybe<T> gate_tangent, maybe<T> input_tangent,
           maybe<T> state_tangent, const jvp_options<V>& options) const override {
    // Compiles only the combinations of absent arrays that tests use.
    if (gate_tangent.absent())
      if_given(state_tangent, [&](auto tx) {
        linear_scan_jvp(backend_, view(gate), none, none, view(input_tangent), tx, options);
      });
    else
      if_given(input_tangent, [&](auto tu) {
        linear_scan_jvp(backend_, view(gate), view(state), view(gate_tangent), tu,
                        view(state_tangent), options);
      });
  }

 private:
  static sequence_view<T> view(const maybe<T>& v) { return v; }
  template <class F>
  static void if_given(const maybe<T>& v, F f) {
    if (v.absent())
      f(none);
    else
      f(view(v));
  }
  Backend backend_;
};

template <class T, class Backend>
std::shared_ptr<const backend_of<T>> calls_of(Backend backend) {
  return std::make_shared<backend_calls<T, Backend>>(std::move(backend));
}

}  // namespace tested
