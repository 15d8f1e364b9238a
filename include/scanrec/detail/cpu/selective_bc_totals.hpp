// SPDX-License-Identifier: BSD-3-Clause
// Sums over channels: the gradient of a B or C with a value per step, added strip by strip.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/selective_plan.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The gradient of a B or C with a value per step: sums over the strips (channel blocks) of each
/// group, in the wide type. There is memory for two checkpoint intervals per group.
template <class V>
class bc_totals {
 public:
  using real = real_part_of<V>;
  static constexpr std::int64_t width = simd::lanes_v<real>;
  static constexpr int parts = is_complex<V> ? 2 : 1;

  bc_totals(const selective_problem<V>& p, const selective_plan& plan, const bc_array<V>& grad,
            bool update, arena& memory)
      : grad_{grad.steps, grad.imaginary},
        states_(p.states),
        padded_((p.states + width - 1) / width * width),
        groups_(p.groups),
        update_(update),
        totals_(memory.take<double>(
            wanted() ? clipped_product(2 * plan.group_count, memory::checkpoint_interval * row())
                     : 0)) {}

  [[nodiscard]] bool wanted() const { return grad_[0].present(); }
  /// Adds the sums of a strip. `first` is true for the first strip of its group.
  void add(std::int64_t group, const selective_position& at, bool first, const real* sums) const {
    double* const total = total_of(group, at);
    const std::int64_t count = (at.end - at.begin) * row();
    for (std::int64_t i = 0; i < count; ++i) total[i] = (first ? 0.0 : total[i]) + sums[i];
  }
  /// Stores the sum of all strips of a group in the gradient, or adds it with `update`. If `none`
  /// is true, the group has no strip, and the sum is 0.
  void put(std::int64_t group, const selective_position& at, bool none = false) const {
    for (int part = 0; part < parts; ++part) put_part(part, group, at, none);
  }

 private:
  static constexpr std::int64_t row_steps = 32;
  [[nodiscard]] std::int64_t row() const { return parts * padded_; }
  double* total_of(std::int64_t group, const selective_position& at) const {
    const std::int64_t odd =
        (at.end + memory::checkpoint_interval - 1) / memory::checkpoint_interval % 2;
    return totals_ + (2 * group + odd) * memory::checkpoint_interval * row();
  }
  void put_part(int part, std::int64_t group, const selective_position& at, bool none) const {
    const double* const total = total_of(group, at) + part * padded_;
    const row_array<real>& grad = grad_[part];
    real rows[width * row_steps];
    for (std::int64_t t = at.begin; t < at.end; t += row_steps)
      for (std::int64_t n = 0; n < states_; n += width) {
        const std::int64_t steps = std::min(row_steps, at.end - t);
        for (std::int64_t i = 0; i < steps; ++i)
          for (std::int64_t k = 0; k < width; ++k)
            rows[i * width + k] =
                none ? real(0) : static_cast<real>(total[(t - at.begin + i) * row() + n + k]);
        grad.template store<width>(grad.at(group / groups_, t, n, group % groups_), steps,
                                   static_cast<int>(std::min(width, states_ - n)), rows, update_);
      }
  }

  row_array<real> grad_[2];
  std::int64_t states_, padded_, groups_;
  bool update_;
  double* totals_;  // (group, parity of the interval, step, part, state)
};

}  // namespace scanrec::detail::inline SCANREC_ABI
