// SPDX-License-Identifier: BSD-3-Clause
// The forward pass of a selective scan over one checkpoint interval of one pack of channels, and
// over a single step.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/selective_tile.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Steps whose rows a forward call loads into cache at a time.
inline constexpr std::int64_t selective_chunk = 32;

/// The forward pass over checkpoint intervals.
template <class V, int W>
class selective_forward : selective_tile<V, W> {
  using base = selective_tile<V, W>;

 public:
  using typename base::lane;
  using typename base::state;
  selective_forward(const selective_problem<V>& p, arena& memory)
      : base(p, selective_chunk, false, memory) {}

  /// Processes one interval: computes its outputs and updates the states. At the first interval,
  /// `states` starts from the initial state.
  void run(const selective_position& position, state* states) {
    const selective_problem<V>& p = this->p_;
    if constexpr (steps_of_packs)
      if (is_step_of_packs(position)) return run_step(position);
    this->stand_at(position);
    if (position.begin == 0) this->load_states_or_zero(p.initial, states);
    for (std::int64_t t = position.begin; t < position.end; t += selective_chunk) {
      const std::int64_t steps = std::min(selective_chunk, position.end - t);
      const selective_rows<state> rows = this->template prepare<false>(t, steps, steps);
      const bool out = p.out.present();
      this->for_states(rows, [&](auto together, auto which, std::int64_t n) {
        if (out)
          run_states<together.value, which.value, true>(rows, this->a_values_, n, states);
        else
          run_states<together.value, which.value, false>(rows, this->a_values_, n, states);
      });
      if (out) put_out(t, steps);
    }
    // Checkpoint i holds the states before step time - 128 (i + 1).
    const std::int64_t checkpoint = (p.time - position.end) / memory::checkpoint_interval - 1;
    if (p.checkpoints.present() && checkpoint >= 0)
      this->store_states(p.checkpoints, states, false, checkpoint);
    if (p.final_state.present() && position.end == p.time)
      this->store_states(p.final_state, states);
  }

 private:
  static constexpr bool steps_of_packs = base::parts == 1 && W > 1 && W == base::width;

  // Whether run_step() can process the call: a single step without resets, with B and C per step, a
  // whole pack of channels, and a multiple of W states. The states and A must be contiguous for
  // each channel.
  [[nodiscard]] bool is_step_of_packs(const selective_position& position) const {
    const selective_problem<V>& p = this->p_;
    const auto in_packs = [](const value_array<V>& states) {
      return !states.present() || states.strides.group == 1;
    };
    return p.time == 1 && position.count == W && p.states % W == 0 && in_packs(p.a) &&
           in_packs(p.initial) && in_packs(p.final_state) && p.b.steps.present() &&
           p.c.steps.present() && !p.resets.present();
  }
  // Processes a step with lanes along the states of a channel. Only the new states are transposed,
  // for the outputs; A and the old states are not.
  void run_step(const selective_position& position) {
    const selective_problem<V>& p = this->p_;
    this->stand_at_channels(position);
    const selective_rows<state> rows = this->template prepare<false>(0, 1, 1);
    const auto* const delta = reinterpret_cast<const V*>(rows.delta);
    const auto* const delta_u = reinterpret_cast<const V*>(rows.delta_u);
    const V* const a_values = p.a.at(position.batch, position.channel);
    const V* const before =
        p.initial.present() ? p.initial.at(position.batch, position.channel) : nullptr;
    V* const after =
        p.final_state.present() ? p.final_state.at(position.batch, position.channel) : nullptr;
    const std::int64_t rate_stride = p.a.strides.channel;
    const std::int64_t before_stride = p.initial.strides.channel;
    const std::int64_t after_stride = p.final_state.strides.channel;
    lane y = this->zero();
    for (std::int64_t n = 0; n < p.states; n += W) {
      const lane b = simd::load_unit<lane>(rows.b.shared + n);
      lane x[W];
      simd::detail::unrolled<W>([&](auto i) SCANREC_LAMBDA {
        const lane gate = selective_gate<false>(
            simd::splat<lane>(delta[i]), simd::load_unit<lane>(a_values + i * rate_stride + n));
        x[i] = before != nullptr ? simd::load_unit<lane>(before + i * before_stride + n)
                                 : this->zero();
        x[i] = simd::fma(gate, x[i], simd::mul(simd::splat<lane>(delta_u[i]), b));
        if (after != nullptr) simd::store_unit(after + i * after_stride + n, x[i]);
      });
      simd::transpose(x);
      simd::detail::unrolled<W>([&](auto i) SCANREC_LAMBDA {
        y = simd::fma(simd::splat<lane>(rows.c.shared[n + i]), x[i], y);
      });
    }
    this->y_[0] = y;
    if (p.out.present()) put_out(0, 1);
  }
  void put_out(std::int64_t begin, std::int64_t steps) {
    const selective_problem<V>& p = this->p_;
    lane* const y = this->y_;
    if constexpr (base::parts == 2)
      for (std::int64_t t = 0; t < steps; ++t) y[t] = y[t] + y[t];
    if (p.d.present())
      for (std::int64_t t = 0; t < steps; ++t) y[t] = simd::fma(this->d_, this->u_[t], y[t]);
    if (p.z.present()) {
      this->load(p.z, begin, steps, this->z_);
      for (std::int64_t t = 0; t < steps; ++t) {
        const lane z = this->z_[t];
        y[t] = simd::mul(y[t], simd::mul(z, simd::sigmoid(z).value));
      }
    }
    this->store(p.out, begin, steps, y, false);
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
