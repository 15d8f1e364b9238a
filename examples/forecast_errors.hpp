// SPDX-License-Identifier: BSD-3-Clause
// Forecast errors of exponential smoothing and their gradients: a recurrence that scanrec does not
// have.
//
//   error[t] = input[t] - level[t-1]                       level[t-1] is the forecast of input[t]
//   level[t] = decay[t] * level[t-1] + (1 - decay[t]) * input[t]
//
// decay may hold one value per channel: a view whose strides along batch and time are 0.
#pragma once

#include <scanrec/extend.hpp>

namespace smoothing {

using namespace scanrec::extend;
namespace simd = scanrec::simd;

// [own_recurrence]
struct forward : affine_steps<double> {
  input_field<double> decay, input;
  state_input<double> initial_level;
  output_field<double> error;

  template <class Lane>
  struct step_and_input : step<Lane> {  // gate, input and reset of the affine map
    Lane x;
  };
  template <class Lane, class Position>
  SCANREC_HD SCANREC_INLINE step_and_input<Lane> load(Position at) const {
    const Lane d = decay.load<Lane>(at), x = input.load<Lane>(at);
    return {{d, simd::mul(simd::constant<Lane>(1) - d, x), simd::constant<Lane>(0)}, x};
  }
  template <class Lane, class Position>
  SCANREC_HD SCANREC_INLINE void finish(Position at, const step_and_input<Lane>& read, Lane before,
                                        Lane /*after*/, sums<Lane>&) const {
    error.store(at, read.x - before);
  }
  template <class Lane, class Position>
  SCANREC_HD SCANREC_INLINE Lane begin(Position at) const {
    return initial_level.load_or_zero<Lane>(at);
  }
  template <class Lane, class Position>
  SCANREC_HD SCANREC_INLINE void end(Position, Lane /*after*/) const {}

  using arrays = array_list<reads<&forward::decay>, reads<&forward::input>, writes<&forward::error>,
                            starts_from<&forward::initial_level>>;
};
// [/own_recurrence]

// c[t] is the gradient of level[t-1]. Its recurrence runs backwards in time:
//
//   c[t] = decay[t] * c[t+1] - error_grad[t]               initial_grad  = c[0]
//   input_grad[t] = error_grad[t] + (1 - decay[t]) * c[t+1]
//   decay_grad[t] = -error[t] * c[t+1]                     since level[t-1] - input[t] = -error[t]
struct adjoint : affine_steps<double> {
  input_field<double> decay, error, error_grad;
  output_field<double> decay_grad, input_grad;
  state_output<double> initial_grad;

  template <class Lane>
  struct step_and_error : step<Lane> {
    Lane error;
  };
  template <class Lane, class Position>
  SCANREC_HD SCANREC_INLINE step_and_error<Lane> load(Position at) const {
    const Lane zero = simd::constant<Lane>(0);
    return {{decay.load<Lane>(at), zero - error_grad.load<Lane>(at), zero}, error.load<Lane>(at)};
  }
  template <class Lane, class Position>
  SCANREC_HD SCANREC_INLINE void finish(Position at, const step_and_error<Lane>& read, Lane before,
                                        Lane /*after*/, sums<Lane>&) const {
    const Lane zero = simd::constant<Lane>(0), rest = simd::constant<Lane>(1) - read.gate;
    input_grad.store(at, simd::fma(rest, before, zero - read.input));
    decay_grad.store(at, simd::mul(zero - read.error, before));
  }
  template <class Lane, class Position>
  SCANREC_HD SCANREC_INLINE Lane begin(Position) const {
    return simd::constant<Lane>(0);
  }
  template <class Lane, class Position>
  SCANREC_HD SCANREC_INLINE void end(Position at, Lane after) const {
    initial_grad.put(at, after);
  }

  using arrays = array_list<reads<&adjoint::decay>, reads<&adjoint::error>,
                            reads<&adjoint::error_grad>, writes<&adjoint::decay_grad>,
                            writes<&adjoint::input_grad>, ends_in<&adjoint::initial_grad>>;
};

using in = scanrec::sequence_view<const double>;
using out = scanrec::sequence_view<double>;

// [own_call]
template <scanrec::backend Backend>
void forecast_errors(const Backend& backend, const in& decay, const in& input,
                     const scanrec::state_view<const double>& initial_level, const out& error) {
  problem_builder c("forecast_errors", input.shape);
  const int d = c.add_factor("decay", decay);
  const int x = c.add("input", input, scanrec::access::read);
  const int start = c.add("initial_level", initial_level, scanrec::access::read);
  const int e = c.add("error", error, scanrec::access::write);
  for (const int array : {d, x, e}) c.require(array, "an array");
  c.prepare<forward>(scanrec::direction::forward);
  forward r;
  r.decay = c.input<double>(d);
  r.input = c.input<double>(x);
  r.initial_level = c.start<double>(start);
  r.error = c.output<double>(e);
  run(backend, r, c);
}
// [/own_call]

template <scanrec::backend Backend>
void forecast_errors_vjp(const Backend& backend, const in& decay, const in& error,
                         const in& error_grad, const out& decay_grad, const out& input_grad,
                         const scanrec::state_view<double>& initial_grad) {
  problem_builder c("forecast_errors_vjp", error.shape);
  const int d = c.add_factor("decay", decay);
  const int e = c.add("error", error, scanrec::access::read);
  const int ge = c.add("error_grad", error_grad, scanrec::access::read);
  const int gd = c.add("decay_grad", decay_grad, scanrec::access::write);
  const int gx = c.add("input_grad", input_grad, scanrec::access::write);
  const int g0 = c.add("initial_grad", initial_grad, scanrec::access::write);
  for (const int array : {d, e, ge}) c.require(array, "an array");
  c.prepare<adjoint>(scanrec::direction::reverse);
  adjoint r;
  r.decay = c.input<double>(d);
  r.error = c.input<double>(e);
  r.error_grad = c.input<double>(ge);
  r.decay_grad = c.output<double>(gd);
  r.input_grad = c.output<double>(gx);
  r.initial_grad = c.end<double>(g0);
  run(backend, r, c);
}

}  // namespace smoothing
