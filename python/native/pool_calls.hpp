// SPDX-License-Identifier: BSD-3-Clause
// QRNN pooling for one element type and one instruction set: which arrays are there says which kind
// it is.
#pragma once

#include <scanrec/error.hpp>
#include <scanrec/qrnn.hpp>

#include "element_calls.hpp"

namespace scanrec::native::inline SCANREC_ABI {

/// QRNN pooling of any kind, as one cell: the cells of qrnn.hpp, bit for bit, chosen by what gates
/// there are when it runs. One kernel instead of three, since there are four types and three
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
    step<Lane> s{activation::tanh::of(candidate), activation::sigmoid::of(forget), {}, {}, zero};
    s.o = has_output_gate ? activation::sigmoid::of(output)
                          : activated<Lane>{simd::constant<Lane>(1), zero, zero};
    if (has_input_gate) {
      s.i = activation::sigmoid::of(input);
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

/// The cell of a call. Throws argument_error for an input gate without an output gate.
template <class Arrays>
any_pooling cell_of(const char* name, const Arrays& a) {
  if (a.input_gate.given && !a.output_gate.given)
    throw argument_error(name, "output_gate", "an array, where there is an input gate", "none");
  return {a.output_gate.given, a.input_gate.given};
}

/// The pre-activations of a call. A gate that is not there is the candidate, which is read anyway.
template <class T, class Arrays>
any_pooling::arrays<sequence_view<const T>> pre_activations(const call& c, const Arrays& a) {
  const auto read = [&](const array& x) { return sequence_of<const T>(c, x); };
  const auto gate = [&](const array& x) { return read(x.given ? x : a.candidate); };
  return {read(a.candidate), read(a.forget_gate), gate(a.output_gate), gate(a.input_gate)};
}

template <class T>
void run_qrnn_pool(const call& c, const pool_arrays& a) {
  const any_pooling cell = cell_of("qrnn_pool", a);
  const gated_options<compute_t<T>> options{.order = order_of(c),
                                            .initial_state = state_of<T>(c, a.initial_state),
                                            .final_state = state_of<T>(c, a.final_state),
                                            .resets = marks_of(c, a.resets),
                                            .zoneout = marks_of(c, a.zoneout)};
  const auto run = [&](const auto& kept) {
    gated_scan(backend_of(c), cell, pre_activations<T>(c, a), sequence_of<T>(c, a.output), kept,
               options);
  };
  if (a.state.given)
    run(memory::store{sequence_of<T>(c, a.state)});
  else
    run(none);
}

template <class T>
void run_qrnn_pool_vjp(const call& c, const pool_vjp_arrays& a) {
  const any_pooling cell = cell_of("qrnn_pool_vjp", a);
  if (!a.state.given) throw argument_error("qrnn_pool_vjp", "state", "an array", "none");
  const auto pre = pre_activations<T>(c, a);
  const memory::store kept{sequence_of<const T>(c, a.state)};
  const auto output_grad = sequence_of<const T>(c, a.output_grad);
  const gated_gradients<any_pooling, T> gradients{
      .arrays = {sequence_of<T>(c, a.candidate_grad), sequence_of<T>(c, a.forget_gate_grad),
                 sequence_of<T>(c, a.output_gate_grad), sequence_of<T>(c, a.input_gate_grad)},
      .initial_grad = state_of<T>(c, a.initial_grad),
      .update = c.accumulate ? update::accumulate : update::overwrite};
  const gated_vjp_options<compute_t<T>> options{.order = order_of(c),
                                                .initial_state = state_of<T>(c, a.initial_state),
                                                .final_grad = state_of<T>(c, a.final_grad),
                                                .resets = marks_of(c, a.resets),
                                                .zoneout = marks_of(c, a.zoneout)};
  if (c.check_only)
    static_cast<void>(gated_scan_vjp_problem(cell, pre, kept, output_grad, gradients, options));
  else
    gated_scan_vjp(backend_of(c), cell, pre, kept, output_grad, gradients, options);
}

}  // namespace scanrec::native::inline SCANREC_ABI
