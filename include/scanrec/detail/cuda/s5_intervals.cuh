// SPDX-License-Identifier: BSD-3-Clause
// S5 with irregular sampling intervals on a GPU: the gates and the scales of B u at every step, and
// their adjoint.
// scanrec/detail/cpu/s5_intervals.hpp is the version for CPUs.
#pragma once

#include <complex>
#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/s5_kernels.cuh>
#include <scanrec/discretise.hpp>
#include <scanrec/options.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// Gate and scale of state p for a step, computed in R, the type of the system.
template <class R>
SCANREC_HD scanrec::detail::discretised_lanes<R> discretised_step(const s5_system<const R>& s,
                                                                  std::int64_t p, R interval) {
  return scanrec::detail::discretise_lanes<R>(s.method, read(s.lambda + p),
                                              interval * scanrec::detail::step_size(s.log_step[p]));
}

/// Writes the gates of every step. Multiplies `states`, which hold B u, by the scales.
template <class R>
struct discretise_rows {
  s5_system<const R> s;
  rows_ref<const R> intervals;
  rows_ref<std::complex<R>> gates, states;

  SCANREC_DEVICE void operator()(std::int64_t b, std::int64_t t, std::int64_t p) const {
    const auto d = discretised_step(s, p, *intervals.at(b, t));
    write(gates.at(b, t) + p, d.gate);
    std::complex<R>* const x = states.at(b, t) + p;
    write(x, simd::mul(read(x), d.scale));
  }
};

/// The states before the steps, in one direction of time.
template <class R>
struct states_before {
  rows_ref<const std::complex<R>> states;
  state_view<const std::complex<R>> start;
  sequence_view<const bool> resets;
  std::int64_t steps;
  int direction;  // 0: forward, 1: backward in time

  /// The state before step t, for a scan in this direction. Forwards, it is 0 if step t has a
  /// reset, or if t is 0 and there is no initial state. Backwards, it is 0 if step t + 1 has a
  /// reset or does not exist.
  SCANREC_DEVICE complex_of<R> at(std::int64_t b, std::int64_t t, std::int64_t p) const {
    const std::int64_t from = direction == 0 ? t - 1 : t + 1, later = direction == 0 ? t : from;
    // For both directions, a reset at a step lies between this step and the one before it in time.
    if (resets.data && later < steps &&
        resets.data[b * resets.strides.batch + later * resets.strides.time +
                    (resets.shape.channel > 1 ? p * resets.strides.channel : 0)])
      return {0, 0};
    if (from >= 0 && from < steps) return read(states.at(b, from) + p);
    if (direction == 0 && start.data)
      return read(start.data + b * start.strides.batch + p * start.strides.channel);
    return {0, 0};
  }
};

/// Computes the adjoint of the discretisation for the scan in one direction, from v, the gradients
/// of its inputs. Writes the gradients of lambda and log_step, summed per chunk of rows. Writes the
/// gradients of the intervals in the forward direction, and adds to them in the backward direction.
/// Overwrites v with the gradients of B u. A warp processes one chunk.
template <class R>
struct steps_vjp {
  static constexpr int threads = device::warp_size, blocks_together = 16;
  static constexpr bool synchronises = true;
  s5_system<const R> s;
  rows_ref<const R> intervals;
  rows_ref<const std::complex<R>> projected;  // B u
  states_before<R> before;
  rows_ref<std::complex<R>> v;
  rows_ref<R> intervals_grad;  // null: not computed
  extents shape;               // batch and time
  std::int64_t chunks;
  std::complex<R>* by_lambda;  // (chunks, P)
  R* by_log_step;              // (chunks, P)

  SCANREC_DEVICE void operator()() const {
    const std::int64_t chunk = device::block_index();
    const row_range rows(chunk, chunks, shape.batch * shape.time);
    // Runs at least once, because without states the gradients of intervals must be written as 0.
    for (std::int64_t first = 0; first == 0 || first < s.states; first += device::warp_size) {
      const std::int64_t p = first + device::thread_index();
      const bool there = p < s.states;
      const R step = there ? scanrec::detail::step_size(s.log_step[p]) : R(0);
      complex_of<R> of_lambda(0, 0);
      R of_log_step = 0;
      for (std::int64_t row = rows.first; row < rows.last; ++row) {
        const std::int64_t b = row / shape.time, t = row % shape.time;
        const R interval = *intervals.at(b, t);
        R of_interval = 0;
        if (there) {
          const auto d = step_vjp(b, t, p, interval * step);
          of_lambda = of_lambda + d.lambda;
          of_log_step = simd::fma(interval * step, d.step, of_log_step);
          of_interval = simd::mul(step, d.step);
        }
        if (intervals_grad.data) add_interval(b, t, of_interval, first > 0);
      }
      if (!there) continue;
      write(by_lambda + chunk * s.states + p, of_lambda);
      by_log_step[chunk * s.states + p] = of_log_step;
    }
  }

 private:
  SCANREC_DEVICE scanrec::detail::discretise_lanes_gradients<R> step_vjp(std::int64_t b,
                                                                         std::int64_t t,
                                                                         std::int64_t p,
                                                                         R step) const {
    using scanrec::detail::conjugate;
    std::complex<R>* const at = v.at(b, t) + p;
    const complex_of<R> grad = read(at), lambda = read(s.lambda + p);
    const auto d = scanrec::detail::discretise_lanes_vjp<R>(
        s.method, lambda, step, simd::mul(grad, conjugate(before.at(b, t, p))),
        simd::mul(grad, conjugate(read(projected.at(b, t) + p))));
    write(at,
          simd::mul(grad,
                    conjugate(scanrec::detail::discretise_lanes<R>(s.method, lambda, step).scale)));
    return d;
  }
  // Sums a gradient over the states of the warp. Writes the sum, or adds it if `more` is set or the
  // direction is backward.
  SCANREC_DEVICE void add_interval(std::int64_t b, std::int64_t t, R mine, bool more) const {
    const int lane = device::thread_index();
    for (int apart = device::warp_size / 2; apart > 0; apart /= 2)
      mine += device::exchange(mine, lane ^ apart);
    if (lane != 0) return;
    R* const to = intervals_grad.at(b, t);
    *to = (more || before.direction != 0 ? *to : R(0)) + mine;
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
