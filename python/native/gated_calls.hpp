// SPDX-License-Identifier: BSD-3-Clause
// Runs gated scans of one element type: QRNN pooling, whose kind follows from the arrays that are
// present, and linear scans of logarithms.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/error.hpp>
#include <scanrec/gated_scan.hpp>

#include "element_calls.hpp"

namespace scanrec::native::SCANREC_LEVEL {

/// Applies an activation to a number or a pack (SIMD vector), out of line. Compact kernels call
/// this function for packs, so that they contain the code of each activation once.
template <class Activation, class Lane>
__attribute__((noinline)) activated<Lane> activated_apart(Lane x) {
  return Activation::of(x);
}
template <class Activation, class Lane>
SCANREC_HD SCANREC_INLINE activated<Lane> activated_by(Lane x) {
  if constexpr (compact && simd::lane_count<Lane> != 1)
    return activated_apart<Activation>(x);
  else
    return Activation::of(x);
}

/// Returns exp(x), out of line, as an unevaluated sum of two numbers that has extra digits.
template <class Lane>
__attribute__((noinline)) simd::two_parts<Lane> exp_apart(Lane x) {
  return activation::exponential::in_two_parts(x);
}

/// The cell of linear scans of logarithms. It is log_space, except that the inputs or the gates may
/// be given as they are instead of as logarithms.
struct any_logarithms {
  using outputs = output_is_state;
  template <class View>
  struct arrays {
    View input, gate;
  };
  static constexpr std::array names{array_name{"input", "input_grad"},
                                    array_name{"gate", "gate_grad"}};
  std::int32_t logarithms = SCANREC_LOG_GATE | SCANREC_LOG_INPUT;

  template <class Lane>
  struct step {
    activated<Lane> u;
    simd::two_parts<Lane> a;
    Lane slope;  // derivative of the gate with respect to its logarithm, or 1
  };
  template <class Lane>
  SCANREC_HD SCANREC_INLINE step<Lane> load(Lane input, Lane gate) const {
    step<Lane> s{logarithms & SCANREC_LOG_INPUT ? activated_by<activation::exponential>(input)
                                                : activation::identity::of(input),
                 {gate, simd::constant<Lane>(0)},
                 simd::constant<Lane>(1)};
    if (logarithms & SCANREC_LOG_GATE) {
      if constexpr (compact && simd::lane_count<Lane> != 1)
        s.a = exp_apart(gate);
      else
        s.a = activation::exponential::in_two_parts(gate);
      s.slope = s.a.value;
    }
    return s;
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE affine_with_rest<Lane> map(const step<Lane>& s) {
    return {s.a.value, s.a.rest, s.u.value};
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE std::array<Lane, 2> gradients(const step<Lane>& s,
                                                                 const cell_cotangents<Lane>& d) {
    return {simd::mul(d.state, s.u.slope), through(d.state, d.before, s.slope)};
  }
};

/// QRNN pooling of any kind as one cell. It chooses the kind at run time from the gates that are
/// present, and equals the cells of qrnn.hpp bit for bit. This saves two of three kernels for each
/// of four types and three instruction sets. A cell that also covered scans of logarithms would
/// make pooling a fifth slower.
struct any_pooling {
  using outputs = output_is_gated<2>;
  template <class View>
  struct arrays {
    View candidate, forget_gate, output_gate, input_gate;
  };
  static constexpr std::array names = ifo_pooling<>::names;
  bool has_output_gate = true, has_input_gate = true;
  double forget_bias = 0;

  template <class Lane>
  struct step {
    activated<Lane> z, f, o, i;
    Lane kept;  // the forget gate's gradient contains (state before the step) - kept
  };
  template <class Lane>
  SCANREC_HD SCANREC_INLINE step<Lane> load(Lane candidate, Lane forget, Lane output,
                                            Lane input) const {
    using activation::sigmoid, activation::tanh;
    const Lane zero = simd::constant<Lane>(0);
    const activated<Lane> one{simd::constant<Lane>(1), zero, zero};
    step<Lane> s{activated_by<tanh>(candidate),
                 activated_by<sigmoid>(biased(forget, forget_bias)),
                 {},
                 {},
                 zero};
    s.o = has_output_gate ? activated_by<sigmoid>(output) : one;
    if (has_input_gate) {
      s.i = activated_by<sigmoid>(input);
    } else {
      s.i.value = s.f.complement;
      s.kept = s.z.value;
    }
    return s;
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE affine<Lane> map(const step<Lane>& s) {
    return {s.f.value, simd::mul(s.i.value, s.z.value)};
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE std::array<Lane, 4> gradients(const step<Lane>& s,
                                                                 const cell_cotangents<Lane>& d) {
    return {through(d.state, s.i.value, s.z.slope), through(d.state, d.before - s.kept, s.f.slope),
            through(d.output, d.after, s.o.slope), through(d.state, s.z.value, s.i.slope)};
  }
};

/// Whether pooling has one kernel per kind or one for all kinds. Calls that recompute states use
/// one for all.
enum class kernels_of { every_kind, one_kind };

/// Runs f(cell) with the cell of a call. Throws argument_error for an input gate without an output
/// gate.
template <kernels_of Which, class Arrays, class F>
void with_pooling(const char* name, const call& c, const Arrays& a, F f) {
  const bool output = is_given(a.output_gate), input = is_given(a.input_gate);
  if (input && !output)
    throw argument_error(name, "output_gate", "an array, since 'input_gate' is present", "none");
  if constexpr (Which == kernels_of::one_kind)
    f(any_pooling{output, input, c.forget_bias});
  else if (input)
    f(ifo_pooling<>{c.forget_bias});
  else if (output)
    f(fo_pooling<>{c.forget_bias});
  else
    f(f_pooling<>{c.forget_bias});
}
/// The kernels of calls that do not recompute states.
inline constexpr kernels_of stored_kernels =
    kernel_per_kind ? kernels_of::every_kind : kernels_of::one_kind;

/// The views of the arrays of a cell, in the order of the cell's names.
template <class T, class Cell, std::size_t N>
auto views_of(const call& c, const Cell&, const std::array<const scanrec_array*, N>& from) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return typename Cell::template arrays<sequence_view<T>>{sequence_of<T>(c, *from[I])...};
  }
  (std::make_index_sequence<Cell::names.size()>{});
}

/// The pre-activations of a call. The candidate, which is read anyway, stands in for an absent
/// gate.
template <class T, class Cell, class Arrays>
auto pre_activations(const call& c, const Cell& cell, const Arrays& a) {
  const auto gate = [&](const scanrec_array& x) { return is_given(x) ? &x : &a.candidate; };
  return views_of<const T>(
      c, cell, std::array{&a.candidate, &a.forget_gate, gate(a.output_gate), gate(a.input_gate)});
}

template <class T>
void run_gated_scan(const call& c, const scanrec_gated_arrays& a) {
  const auto output = sequence_of<T>(c, a.output);
  const gated_options<compute_t<T>> options{.order = order_of(c),
                                            .initial_state = state_of<T>(c, a.initial_state),
                                            .final_state = state_of<T>(c, a.final_state),
                                            .resets = resets_of(c, a.resets),
                                            .zoneout = sequence_of<const bool>(c, a.zoneout)};
  const auto with = [&](const auto& cell, const auto& kept) {
    gated_scan(backend_of<T>(c), cell, pre_activations<T>(c, cell, a), output, kept, options);
  };
  if (is_given(a.checkpoints)) {
    if (is_given(a.state))
      throw argument_error("gated_scan", "checkpoints", "an absent array, since 'state' is present",
                           "an array");
    with_pooling<kernels_of::one_kind>("gated_scan", c, a, [&](const auto& cell) {
      with(cell, memory::recompute{checkpoints_of<T>(c, a.checkpoints)});
    });
    return;
  }
  with_pooling<stored_kernels>("gated_scan", c, a, [&](const auto& cell) {
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
void run_gated_scan_vjp(const call& c, const scanrec_gated_vjp_arrays& a) {
  const auto output_grad = sequence_of<const T>(c, a.output_grad);
  const gated_vjp_options<compute_t<T>> options{.order = order_of(c),
                                                .initial_state = state_of<T>(c, a.initial_state),
                                                .final_grad = state_of<T>(c, a.final_grad),
                                                .resets = resets_of(c, a.resets),
                                                .zoneout = sequence_of<const bool>(c, a.zoneout)};
  const auto with = [&](const auto& cell, const auto& kept) {
    const gated_gradients<std::remove_cvref_t<decltype(cell)>, T> gradients{
        .arrays = views_of<T>(c, cell,
                              std::array{&a.candidate_grad, &a.forget_gate_grad,
                                         &a.output_gate_grad, &a.input_gate_grad}),
        .initial_grad = state_of<T>(c, a.initial_grad),
        .update = c.accumulate ? update::accumulate : update::overwrite};
    gated_scan_vjp(backend_of<T>(c), cell, pre_activations<T>(c, cell, a), kept, output_grad,
                   gradients, options);
  };
  // Only the gradients of the forget and output gates depend on states. If both are absent, any
  // array can stand in for the states.
  const bool reads_states = is_given(a.forget_gate_grad) || is_given(a.output_gate_grad);
  if (reads_states && !is_given(a.state) && !is_given(a.checkpoints) &&
      memory::checkpoint_extents(c.shape).time > 0)
    throw argument_error("gated_scan_vjp", "state",
                         "an array, or 'checkpoints' for more than 128 steps", "none");
  if (is_given(a.state) || !reads_states)
    with_pooling<stored_kernels>("gated_scan_vjp", c, a, [&](const auto& cell) {
      const scanrec_array& state = is_given(a.state) ? a.state : a.candidate;
      with(cell, memory::store{sequence_of<const T>(c, state)});
    });
  else
    with_pooling<kernels_of::one_kind>("gated_scan_vjp", c, a, [&](const auto& cell) {
      with(cell, memory::recompute{checkpoints_of<const T>(c, a.checkpoints)});
    });
}

/// Runs f, a gated scan of `any_logarithms`, and reports errors under the names of linear_scan.
template <class F>
void as_linear_scan(const char* name, F f) {
  try {
    f();
  } catch (const argument_error& error) {
    std::string argument = error.argument();
    if (argument == "output" || argument == "output_grad") argument.replace(0, 6, "state");
    if (argument == "states") argument = "state";
    throw argument_error(name, argument, error.expected(), error.got());
  }
}

template <class T>
void run_log_scan(const call& c, const scanrec_scan_arrays& a) {
  const any_logarithms cell{c.logarithms};
  const gated_options<compute_t<T>> options{.order = order_of(c),
                                            .initial_state = state_of<T>(c, a.initial_state),
                                            .final_state = state_of<T>(c, a.final_state),
                                            .resets = resets_of(c, a.resets)};
  const auto arrays = views_of<const T>(c, cell, std::array{&a.input, &a.gate});
  as_linear_scan("linear_scan", [&] {
    const auto with = [&](const auto& kept) {
      gated_scan(backend_of<T>(c), cell, arrays, sequence_of<T>(c, a.state), kept, options);
    };
    if constexpr (kernel_keeps_if_given)
      with(scanrec::detail::store_if_given<T>{});
    else
      with(none);
  });
}

template <class T>
void run_log_scan_vjp(const call& c, const scanrec_vjp_arrays& a) {
  const any_logarithms cell{c.logarithms};
  const auto refuse_absent = [&](const char* argument, const char* when) {
    throw argument_error("linear_scan_vjp", argument, std::string("an array") + when, "none");
  };
  const bool reads_input = (c.logarithms & SCANREC_LOG_INPUT) != 0 && is_given(a.input_grad);
  if (reads_input && !is_given(a.input))
    refuse_absent("input", " of logarithms, since 'input_grad' is present");
  if (is_given(a.gate_grad) && !is_given(a.state))
    refuse_absent("state", ", since 'gate_grad' is present");
  // The kernel loads gate, input and state. Input and state may be absent if no gradient depends on
  // them. The gate then stands in for them.
  const auto or_gate = [&](const scanrec_array& x) { return is_given(x) ? &x : &a.gate; };
  const gated_vjp_options<compute_t<T>> options{.order = order_of(c),
                                                .initial_state = state_of<T>(c, a.initial_state),
                                                .final_grad = state_of<T>(c, a.final_grad),
                                                .resets = resets_of(c, a.resets)};
  const gated_gradients<any_logarithms, T> gradients{
      .arrays = views_of<T>(c, cell, std::array{&a.input_grad, &a.gate_grad}),
      .initial_grad = state_of<T>(c, a.initial_grad),
      .update = c.accumulate ? update::accumulate : update::overwrite};
  as_linear_scan("linear_scan_vjp", [&] {
    gated_scan_vjp(backend_of<T>(c), cell,
                   views_of<const T>(c, cell, std::array{or_gate(a.input), &a.gate}),
                   memory::store{sequence_of<const T>(c, *or_gate(a.state))},
                   sequence_of<const T>(c, a.state_grad), gradients, options);
  });
}

}  // namespace scanrec::native::SCANREC_LEVEL
