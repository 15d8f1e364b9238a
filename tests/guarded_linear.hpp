// SPDX-License-Identifier: BSD-3-Clause
// A linear scan, its vjp and its jvp on arrays next to inaccessible pages.
#pragma once

#include <string>
#include <type_traits>

#include <scanrec/linear_scan.hpp>

#include "guarded.hpp"

namespace tested {

using namespace scanrec;  // tests only

/// The arrays of one random problem. Gates are numbers or matrices, states are numbers or vectors.
template <class Gate, class State>
class guarded_linear {
  using V = compute_t<State>;

 public:
  explicit guarded_linear(unsigned number) : layouts_(number) {
    guarded_layouts& l = layouts_;
    gate_ = l.input<Gate>("gate", true), gate_tangent_ = l.input<Gate>("gate_tangent", true);
    input_ = l.input<State>("input"), state_ = l.input<State>("state");
    state_grad_ = l.input<State>("state_grad"), input_tangent_ = l.input<State>("input_tangent");
    if (!l.one_in(3)) {
      initial_state_ = l.state<V>("initial_state", broadcasts::sometimes);
      initial_tangent_ = l.state<V>("initial_tangent", broadcasts::sometimes);
      final_grad_ = l.state<V>("final_grad", broadcasts::sometimes);
    }
    resets_ = l.resets();
  }
  [[nodiscard]] const std::string& text() const { return layouts_.text; }

  /// The arrays that a backend writes.
  struct results {
    guarded<State> state, input_grad, state_tangent;
    guarded<Gate> gate_grad;
    guarded<V> final_state, initial_grad, final_tangent;

    template <class F>
    void each_array(F f) const {
      f(state), f(input_grad), f(state_tangent), f(gate_grad);
      f(final_state), f(initial_grad), f(final_tangent);
    }
    [[nodiscard]] bool gaps_untouched() const {
      bool untouched = true;
      each_array([&](const auto& a) { untouched = untouched && a.gaps_untouched(); });
      return untouched;
    }
    [[nodiscard]] bool all_finite() const {
      bool finite = true;
      each_array([&](const auto& a) { finite = finite && a.all_finite(); });
      return finite;
    }
    [[nodiscard]] std::string elements() const {
      std::string all;
      each_array([&](const auto& a) { all += a.elements(); });
      return all;
    }
  };

  template <class Backend>
  results run(const Backend& backend) {
    guarded_layouts l = layouts_;  // the same layouts for every backend
    results r;
    r.state = l.output<State>("state of the call"), r.input_grad = l.gradient<State>("input_grad");
    r.state_tangent = l.output<State>("state_tangent");
    r.gate_grad = l.gradient<Gate>("gate_grad");
    r.final_state = l.state<V>("final_state", broadcasts::never);
    r.initial_grad = l.state<V>("initial_grad", broadcasts::sometimes);
    r.final_tangent = l.state<V>("final_tangent", broadcasts::never);
    // Some calls request only one of gate_grad and input_grad, and then read fewer arrays.
    const bool of_gate = !l.one_in(4), of_input = !l.one_in(4) || !of_gate;
    const bool adds = l.one_in(3);

    linear_scan(backend, gate_.view(), input_.view(), r.state.view(),
                {.order = layouts_.order,
                 .initial_state = initial_state_.state(),
                 .final_state = r.final_state.state(),
                 .resets = resets_.view()});
    const auto none_of = [](bool wanted, const auto& view) {
      return wanted ? view : std::remove_cvref_t<decltype(view)>();
    };
    linear_scan_vjp(backend, gate_.view(), state_.view(), state_grad_.view(),
                    {.gate_grad = none_of(of_gate, r.gate_grad.view()),
                     .input_grad = none_of(of_input, r.input_grad.view()),
                     .initial_grad = r.initial_grad.state(),
                     .update = adds ? update::accumulate : update::overwrite},
                    {.order = layouts_.order,
                     .initial_state = initial_state_.state(),
                     .final_grad = final_grad_.state(),
                     .resets = resets_.view()});
    linear_scan_jvp(backend, gate_.view(), state_.view(), gate_tangent_.view(),
                    input_tangent_.view(), r.state_tangent.view(),
                    {.order = layouts_.order,
                     .initial_state = initial_state_.state(),
                     .initial_tangent = initial_tangent_.state(),
                     .final_tangent = r.final_tangent.state(),
                     .resets = resets_.view()});
    return r;
  }

 private:
  guarded_layouts layouts_;
  guarded<Gate> gate_, gate_tangent_;
  guarded<State> input_, state_, state_grad_, input_tangent_;
  guarded<V> initial_state_, initial_tangent_, final_grad_;
  guarded<bool> resets_;
};

}  // namespace tested
