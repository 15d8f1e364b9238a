// SPDX-License-Identifier: BSD-3-Clause
// The adjoint of causal convolutions, tile by tile.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/causal_conv1d_kernels.hpp>
#include <scanrec/detail/cpu/causal_conv1d_tile.hpp>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/detail/problem/causal_conv1d.hpp>
#include <scanrec/detail/simd/math.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The adjoint over tiles. A tile also reads the width - 1 steps after it, because their outputs
/// depend on its inputs.
template <class V, int W>
class conv1d_adjoint : public conv1d_tile<V, W> {
  using base = conv1d_tile<V, W>;
  using base::before_, base::seen_, base::size_, base::weight_, base::x_;

 public:
  using typename base::lane;
  conv1d_adjoint(const causal_conv1d_vjp_problem<V>& p, arena& memory)
      : base(p, p.initial.present() || p.initial_grad.present(), p.width - 1, memory),
        p_(p),
        sum_grad_(this->take_rows(size_.steps + before_, memory)),
        grad_(this->take_rows(size_.steps + before_, memory)) {}

  /// Computes the gradient of x at steps [begin, end) and, if begin is 0, that of the initial
  /// state. Adds the tile's gradients of the weights and the bias to `sums`. `sums` has the layout
  /// (pack, tap or bias, lane), with the current step's tap first and the bias last. It is null if
  /// neither gradient is requested.
  void run(std::int64_t begin, std::int64_t end, double* sums) {
    const std::int64_t steps = end - begin;
    const std::int64_t last = std::min(end + before_, p_.time), read = last - begin;
    const bool uniform = this->find_sequences(begin, last);
    const bool adds = p_.update || (p_.final_grad.present() && end > p_.time - p_.final_steps);
    const bool is_done =
        !adds && p_.out_grad.present() &&
        this->in_place(begin, uniform, {&p_.x, &p_.out_grad, &p_.x_grad}, [&](auto element) {
          using S = decltype(element);
          const auto x = this->template stored_rows<const S>(p_.x, begin);
          load_gradient_rows(x, this->template stored_rows<const S>(p_.out_grad, begin), read);
          add_row_sums(x, steps, sums);
          correlate_rows(this->template stored_rows<S>(p_.x_grad, begin), steps, read,
                         this->streams(p_.x_grad));
        });
    if (!is_done) run_in_cache(begin, steps, read, uniform, sums);
    if (begin > 0 || !p_.initial_grad.present()) return;
    for (std::int64_t t = -p_.initial_steps; t < 0; ++t) {
      for (std::int64_t pack = 0; pack < this->packs(); ++pack)
        grad_[pack] = t < -before_ ? zero() : input_grad(t, pack, read, uniform);
      add_final_grad(t, 1);
      this->store(p_.initial_grad, p_.initial_steps + t, 1, grad_, p_.update);
    }
  }

 private:
  static lane zero() { return simd::constant<lane>(0); }

  // The inner loops, on rows in memory or in cache.
  template <class S>
  void load_gradient_rows(conv1d_rows<const S> x, conv1d_rows<const S> y_grad, std::int64_t read) {
    this->with_activation([&](auto f) {
      load_gradient<f.value, base::taps>(x, weight_, this->bias_, {read, this->packs()}, y_grad,
                                         sum_grad_, size_.packs);
    });
  }
  template <class S>
  void add_row_sums(conv1d_rows<const S> x, std::int64_t steps, double* sums) const {
    if (sums == nullptr) return;
    for (std::int64_t pack = 0; pack < this->packs(); ++pack, x.first += W) {
      lane of[base::taps + 1];
      sum_products<base::taps>(x, steps, sum_grad_ + pack, size_.packs, of);
      for (const lane& sum : of) simd::add_into(sums, 1, W, sum), sums += W;
    }
  }
  template <class S>
  void correlate_rows(conv1d_rows<S> x_grad, std::int64_t steps, std::int64_t read, bool stream) {
    if (x_grad.first == nullptr) return;
    this->fill_zero(sum_grad_ + read * size_.packs, steps + before_ - read);
    correlate<base::taps>(sum_grad_, size_.packs, weight_, {steps, this->packs()}, x_grad, stream);
  }

  void run_in_cache(std::int64_t begin, std::int64_t steps, std::int64_t read, bool uniform,
                    double* sums) {
    this->load_inputs(begin - before_, begin + read);
    const bool has_loops = this->has_loops(uniform);
    const auto rows = this->cached_rows(x_ + before_ * size_.packs);
    const conv1d_rows<const V> x{rows.first, rows.row};
    if (p_.out_grad.present()) {
      this->load(p_.out_grad, begin, read, sum_grad_);
      const auto y_grad = this->cached_rows(sum_grad_);
      if (p_.silu && has_loops)
        load_gradient_rows(x, {y_grad.first, y_grad.row}, read);
      else if (p_.silu)
        apply_slope(read, uniform);
    } else {
      this->fill_zero(sum_grad_, read);
    }
    if (has_loops)
      add_row_sums(x, steps, sums);
    else if (sums != nullptr)
      add_sums(steps, uniform, sums);
    if (!p_.x_grad.present()) return;
    if (has_loops)
      correlate_rows(this->cached_rows(grad_), steps, read, false);
    else
      for (std::int64_t pack = 0; pack < this->packs(); ++pack)
        for (std::int64_t t = 0; t < steps; ++t)
          grad_[t * size_.packs + pack] = input_grad(t, pack, read, uniform);
    add_final_grad(begin, steps);
    this->store(p_.x_grad, begin, steps, grad_, p_.update);
  }
  // Multiplies the gradient of outputs by the slope of SiLU, whose arguments are recomputed.
  void apply_slope(std::int64_t read, bool uniform) {
    this->run_convolution(read, uniform, grad_);
    this->for_lanes(read, [sum = grad_, grad = sum_grad_](std::int64_t i) SCANREC_LAMBDA {
      auto s = simd::sigmoid(sum[i]);
      grad[i] = simd::mul(grad[i], simd::fma(sum[i], s.slope, s.value));
    });
  }
  // The gradient of the input at step t of the tile. In the first tile t may be negative: a step of
  // the initial state.
  [[nodiscard]] lane input_grad(std::int64_t t, std::int64_t pack, std::int64_t read,
                                bool uniform) const {
    lane sum = zero();
    for (std::int64_t k = std::max<std::int64_t>(0, -t); k <= before_ && t + k < read; ++k)
      if (uniform || k <= seen_[t + k])
        sum = simd::fma(weight_[pack * p_.width + k], sum_grad_[(t + k) * size_.packs + pack], sum);
    return sum;
  }
  void add_sums(std::int64_t steps, bool uniform, double* sums) const {
    for (std::int64_t pack = 0; pack < this->packs(); ++pack, sums += (p_.width + 1) * W) {
      const lane *const x = x_ + pack, *const grad = sum_grad_ + pack;
      for (std::int64_t k = 0; k <= before_; ++k) {
        lane sum = zero();
        for (std::int64_t t = 0; t < steps; ++t)
          if (uniform || k <= seen_[t])
            sum = simd::fma(grad[t * size_.packs], x[(t + before_ - k) * size_.packs], sum);
        simd::add_into(sums + k * W, 1, W, sum);
      }
      lane sum = zero();
      for (std::int64_t t = 0; t < steps; ++t) sum = sum + grad[t * size_.packs];
      simd::add_into(sums + p_.width * W, 1, W, sum);
    }
  }
  // Adds the gradient of the final state at steps [first, first + steps) to grad_.
  void add_final_grad(std::int64_t first, std::int64_t steps) {
    const std::int64_t begin = p_.time - p_.final_steps;
    if (!p_.final_grad.present() || first + steps <= begin) return;
    lane* const row = x_;
    for (std::int64_t t = std::max(first, this->last_sequence(begin)); t < first + steps; ++t) {
      this->load(p_.final_grad, t - begin, 1, row);
      for (std::int64_t pack = 0; pack < this->packs(); ++pack) {
        lane& grad = grad_[(t - first) * size_.packs + pack];
        grad = grad + row[pack];
      }
    }
  }

  const causal_conv1d_vjp_problem<V>& p_;
  lane *sum_grad_, *grad_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
