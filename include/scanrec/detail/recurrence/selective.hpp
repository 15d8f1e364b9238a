// SPDX-License-Identifier: BSD-3-Clause
// The arrays of a selective scan in scan order, for kernels on CPUs and GPUs.
#pragma once

#include <cstdint>

#include <scanrec/detail/recurrence/reset_field.hpp>
#include <scanrec/detail/recurrence/rows.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// B or C, or its gradient. If it varies over time, `steps` has a value per step, group of channels
/// and state; `imaginary` has the imaginary parts of complex values. If it is time-invariant,
/// `channels` has a value per channel and state.
template <class V, template <class> class Rows = row_array>
struct bc_array {
  Rows<real_part_of<V>> steps, imaginary;
  value_array<V> channels;
};

/// A call of selective_scan in scan order. Rows is the type of arrays with elements of any stored
/// type: row_array on CPUs, device_rows on GPUs.
template <class V, template <class> class Rows = row_array>
struct selective_problem {
  using value = V;
  using real = real_part_of<V>;
  std::int64_t batch = 0, time = 0, channels = 0, groups = 1;
  int states = 0;
  bool softplus = false;
  Rows<real> u, delta, z, out;
  value_array<V> a, initial, final_state, checkpoints;
  value_array<real> d, bias, intervals;  // `intervals` has the axes batch and time
  bc_array<V, Rows> b, c;
  recurrence::reset_field resets;

  SCANREC_HD SCANREC_INLINE std::int64_t group_channels() const { return channels / groups; }
};

/// A call of the adjoint. Sums go to arrays of the wide type, and from there to the gradients.
template <class V, template <class> class Rows = row_array>
struct selective_vjp_problem : selective_problem<V, Rows> {
  using typename selective_problem<V, Rows>::real;
  Rows<real> out_grad, u_grad, delta_grad, z_grad;
  value_array<V> a_grad, initial_grad, final_grad;
  value_array<real> d_grad, bias_grad, intervals_grad;
  bc_array<V, Rows> b_grad, c_grad;
  bool update = false;  // add to the gradients
};

}  // namespace scanrec::detail::inline SCANREC_ABI
