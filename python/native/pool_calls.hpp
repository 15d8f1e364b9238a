// SPDX-License-Identifier: BSD-3-Clause
// QRNN pooling of one element type: which arrays are there says which kind it is.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/error.hpp>
#include <scanrec/gated_scan.hpp>

#include "element_calls.hpp"

namespace scanrec::native::SCANREC_LEVEL {

/// What an activation makes of lanes. Of packs in compact kernels it is a call, so that its code is
/// there once.
template <class Activation, class Lane>
__attribute__((noinline)) activated<Lane> activated_apart(Lane x) {
  return Activation::of(x);
}
template <class Activation, class Lane>
SCANREC_INLINE activated<Lane> activated_by(Lane x) {
  if constexpr (compact && simd::lane_count<Lane> != 1)
    return activated_apart<Activation>(x);
  else
    return Activation::of(x);
}

/// QRNN pooling of any kind, as one cell: the cells of qrnn.hpp, bit for bit, chosen by what gates
/// there are when it runs. One kernel instead of three, where there are four types and three
/// instruction sets to compile for.
struct any_pooling {
  using outputs = output_is_gated<2>;
  template <class View>
  struct arrays {
    View candidate, forget_gate, output_gate, input_gate;
  };
  static constexpr std::array names = ifo_pooling<>::names;
  bool has_output_gate = true, has_input_gate = true;

  template <class Lane>
  struct step {
    activated<Lane> z, f, o, i;
    Lane kept;  // what the forget gate takes away from the state it keeps
  };
  template <class Lane>
  SCANREC_INLINE step<Lane> load(Lane candidate, Lane forget, Lane output, Lane input) const {
    const Lane zero = simd::constant<Lane>(0);
    using activation::sigmoid, activation::tanh;
    step<Lane> s{activated_by<tanh>(candidate), activated_by<sigmoid>(forget), {}, {}, zero};
    s.o = has_output_gate ? activated_by<sigmoid>(output)
                          : activated<Lane>{simd::constant<Lane>(1), zero, zero};
    if (has_input_gate) {
      s.i = activated_by<sigmoid>(input);
    } else {
      s.i.value = s.f.complement;
      s.kept = s.z.value;
    }
    return s;
  }
  template <class Lane>
  static SCANREC_INLINE affine<Lane> map(const step<Lane>& s) {
    return {s.f.value, simd::mul(s.i.value, s.z.value)};
  }
  template <class Lane>
  static SCANREC_INLINE std::array<Lane, 4> gradients(const step<Lane>& s,
                                                      const cell_cotangents<Lane>& d) {
    return {through(d.state, s.i.value, s.z.slope), through(d.state, d.before - s.kept, s.f.slope),
            through(d.output, d.after, s.o.slope), through(d.state, s.z.value, s.i.slope)};
  }
};

/// Runs f(cell) for the kind of a call. Throws argument_error for an input gate without an output
/// gate.
template <class Arrays, class F>
void with_cell(const char* name, const Arrays& a, F f) {
  const bool output = is_given(a.output_gate), input = is_given(a.input_gate);
  if (input && !output)
    throw argument_error(name, "output_gate", "an array, where there is an input gate", "none");
  if constexpr (!kernel_per_kind)
    f(any_pooling{output, input});
  else if (input)
    f(ifo_pooling<>{});
  else if (output)
    f(fo_pooling<>{});
  else
    f(f_pooling<>{});
}

/// As many views as a cell takes, in its order.
template <class T, class Cell>
auto views_of(const call& c, const Cell&, const std::array<const scanrec_array*, 4>& from) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return typename Cell::template arrays<sequence_view<T>>{sequence_of<T>(c, *from[I])...};
  }
  (std::make_index_sequence<Cell::names.size()>{});
}

/// The pre-activations of a call. A gate that is not there is the candidate, which is read anyway.
template <class T, class Cell, class Arrays>
auto pre_activations(const call& c, const Cell& cell, const Arrays& a) {
  const auto gate = [&](const scanrec_array& x) { return is_given(x) ? &x : &a.candidate; };
  return views_of<const T>(c, cell,
                           {&a.candidate, &a.forget_gate, gate(a.output_gate), gate(a.input_gate)});
}

template <class T>
void run_qrnn_pool(const call& c, const scanrec_pool_arrays& a) {
  const auto output = sequence_of<T>(c, a.output);
  const gated_options<compute_t<T>> options{.order = order_of(c),
                                            .initial_state = state_of<T>(c, a.initial_state),
                                            .final_state = state_of<T>(c, a.final_state),
                                            .resets = resets_of(c, a.resets),
                                            .zoneout = sequence_of<const bool>(c, a.zoneout)};
  const auto with = [&](const auto& cell, const auto& kept) {
    const auto pre = pre_activations<T>(c, cell, a);
    on_backend<T>(
        c, [&] { return gated_scan_problem(cell, pre, output, kept, options); },
        [&](const auto& on) { gated_scan(on, cell, pre, output, kept, options); });
  };
  with_cell("qrnn_pool", a, [&](const auto& cell) {
    const auto state = sequence_of<T>(c, a.state);
    if constexpr (kernel_keeps_if_given)
      with(cell, scanrec::detail::store_if_given<T>{state});
    else if (is_given(a.state))
      with(cell, memory::store{state});
    else
      with(cell, none);
  });
}

template <class T>
void run_qrnn_pool_vjp(const call& c, const scanrec_pool_vjp_arrays& a) {
  if (!is_given(a.state)) throw argument_error("qrnn_pool_vjp", "state", "an array", "none");
  const memory::store kept{sequence_of<const T>(c, a.state)};
  const auto output_grad = sequence_of<const T>(c, a.output_grad);
  const gated_vjp_options<compute_t<T>> options{.order = order_of(c),
                                                .initial_state = state_of<T>(c, a.initial_state),
                                                .final_grad = state_of<T>(c, a.final_grad),
                                                .resets = resets_of(c, a.resets),
                                                .zoneout = sequence_of<const bool>(c, a.zoneout)};
  with_cell("qrnn_pool_vjp", a, [&](const auto& cell) {
    const auto pre = pre_activations<T>(c, cell, a);
    const gated_gradients<std::remove_cvref_t<decltype(cell)>, T> gradients{
        .arrays = views_of<T>(
            c, cell,
            {&a.candidate_grad, &a.forget_gate_grad, &a.output_gate_grad, &a.input_gate_grad}),
        .initial_grad = state_of<T>(c, a.initial_grad),
        .update = c.accumulate ? update::accumulate : update::overwrite};
    on_backend<T>(
        c, [&] { return gated_scan_vjp_problem(cell, pre, kept, output_grad, gradients, options); },
        [&](const auto& on) {
          gated_scan_vjp(on, cell, pre, kept, output_grad, gradients, options);
        });
  });
}

}  // namespace scanrec::native::SCANREC_LEVEL
