// SPDX-License-Identifier: BSD-3-Clause
// Turns the arguments of selective_scan and its adjoint into the problem of their kernels.
#pragma once

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include <scanrec/detail/problem/call_arrays.hpp>
#include <scanrec/detail/recurrence/selective.hpp>
#include <scanrec/error.hpp>
#include <scanrec/memory.hpp>
#include <scanrec/selective_arrays.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Collects the arrays of a call, checks them, and brings them to scan order in the form Rows.
template <class V, template <class> class Rows>
class selective_call : call_arrays<V, Rows> {
  using base = call_arrays<V, Rows>;
  using base::check, base::refuse, base::require, base::values, base::reverse_;
  template <class E>
  static constexpr access access_to = base::template access_to<E>;

 public:
  using typename base::real;

  selective_call(const char* name, const selective_arrays<V>& arrays, direction order)
      : base(name, order == direction::reverse) {
    const extents& shape = arrays.u.shape();
    shape_ = shape;
    require("u", !arrays.u.absent());
    if (shape.batch < 0 || shape.time < 0 || shape.channel < 0)
      refuse("u", "extents of 0 or more", text(shape));
    if (shape.group != 1) refuse("u", "one group", text(shape));
    require("delta", !arrays.delta.absent());
    require("a", !arrays.a.absent());
    require("b", !arrays.b.absent());
    require("c", !arrays.c.absent());
    states_ = arrays.a.shape.group;
    if (states_ < 1 || states_ > std::numeric_limits<int>::max())
      refuse("a", "1 to 2^31 - 1 states on its group axis", text(arrays.a.shape));
    for (const auto& [bc, of] : {named_bc{"b", &arrays.b}, named_bc{"c", &arrays.c}})
      if (!of->steps.absent()) take_groups(bc, of->steps.shape().channel);
    std::int64_t bytes = sizeof(std::complex<double>);
    for (const std::int64_t n : {shape.batch, shape.time, shape.channel, states_})
      bytes = clipped_product(bytes, std::max<std::int64_t>(n, 1));
    if (bytes >= most_array_bytes)
      refuse("u", "fewer than 2^52 bytes for the states of all steps",
             text(shape, " with ", states_, " states"));
  }

  // Each function checks an array and returns its form for kernels.
  template <class E>
  Rows<real> rows(const char* name, const stored_sequence<E>& of) {
    return this->template checked_rows<E>(name, of, shape_);
  }
  template <class E>
  auto per_channel(const char* name, const state_view<E>& of, std::int64_t states = 1) {
    auto v = values(name, of, {.channel = shape_.channel, .group = states});
    v.strides.batch = 0;  // the batch axis has extent 1
    return v;
  }
  /// An array with one number per step for all channels.
  template <class E>
  value_array<real> per_step(const char* name, const sequence_view<E>& of) {
    check(use_of(name, of, access_to<E>), {.batch = shape_.batch, .time = shape_.time});
    value_array<real> v{const_cast<real*>(of.data), of.strides};
    if (!reverse_ || of.absent() || of.shape.time == 0) return v;
    v.data += (of.shape.time - 1) * of.strides.time;
    v.strides.time = -v.strides.time;
    return v;
  }
  template <class E>
  value_array<V> state(const char* name, const state_view<E>& of) {
    return values(name, of, {.batch = shape_.batch, .channel = shape_.channel, .group = states_});
  }
  template <class E>
  value_array<V> checkpoints(const sequence_view<E>& of) {
    extents wanted = memory::checkpoint_extents(shape_);
    wanted.group = states_;
    check(use_of("checkpoints", of, access_to<E>), wanted);
    return {const_cast<V*>(of.data), of.strides};
  }
  template <class E>
  bc_array<V, Rows> bc(const char* name, const bc_view<E>& of) {
    bc_array<V, Rows> m;
    if ((!of.steps.absent() || !of.imaginary.absent()) && !of.channels.absent())
      refuse(name, "an array per step or an array per channel", "both");
    if (!is_complex<V> && !of.imaginary.absent())
      refuse(name, "no imaginary part, since 'a' is real", "an imaginary part");
    if (is_complex<V> && of.steps.absent() != of.imaginary.absent())
      refuse(name, "a real and an imaginary part",
             of.steps.absent() ? "only the imaginary part" : "only the real part");
    m.channels = per_channel(name, of.channels, states_);
    const extents wanted{
        .batch = shape_.batch, .time = shape_.time, .channel = groups_, .group = states_};
    m.steps = this->template checked_rows<E>(name, of.steps, wanted);
    m.imaginary = this->template checked_rows<E>(name, of.imaginary, wanted);
    // Kernels read states along the channel axis.
    for (Rows<real>* const rows : {&m.steps, &m.imaginary})
      std::swap(rows->strides.channel, rows->strides.group);
    return m;
  }
  /// A gradient of B or C.
  bc_array<V, Rows> bc_grad(const char* name, const bc_view<V>& of, const bc_view<const V>& value) {
    if (!of.steps.absent() && value.steps.absent())
      refuse(name, "an array per channel, like the array whose gradient it is",
             "an array per step");
    if (!of.channels.absent() && value.channels.absent())
      refuse(name, "an array per step, like the array whose gradient it is",
             "an array per channel");
    return bc(name, of);
  }
  recurrence::reset_field resets(const sequence_view<const bool>& resets) {
    if (resets.absent()) return {};
    extents wanted = shape_;
    if (resets.shape.channel == 1) wanted.channel = 1;
    const bool one_more = resets.shape.time == shape_.time + 1;
    if (one_more) wanted.time = resets.shape.time;
    check(use_of("resets", resets, access::read), wanted, ", or 1 channel, or one step more");
    if (element_count(shape_) == 0) return {};
    recurrence::input_field<bool> reset_mask{resets.data, resets.strides};
    if (wanted.channel == 1) reset_mask.strides.channel = 0;
    if (reverse_) {
      reset_mask.data += (shape_.time - 1) * resets.strides.time;
      reset_mask.strides.time = -reset_mask.strides.time;
    }
    const direction order = reverse_ ? direction::reverse : direction::forward;
    return recurrence::resets_of(reset_mask, order, false, shape_.time, one_more);
  }

  /// Sets the sizes, and checks that arrays do not overlap.
  template <std::size_t N>
  void finish(selective_problem<V, Rows>& p, const std::array<in_place_pair, N>& may_alias) {
    p.batch = shape_.batch, p.time = shape_.time, p.channels = shape_.channel;
    p.states = static_cast<int>(states_), p.groups = groups_;
    this->check_apart(may_alias);
  }

 private:
  struct named_bc {
    const char* name;
    const bc_view<const V>* of;
  };

  void take_groups(const char* name, std::int64_t groups) {
    if (groups < 1 || shape_.channel % groups != 0)
      refuse(
          name,
          text("a number of groups (its channel axis) that divides ", shape_.channel, " channels"),
          text(groups));
    if (grouped_ && groups != groups_)
      refuse(name, text(groups_, " groups like 'b'"), text(groups));
    groups_ = groups, grouped_ = true;
  }
  extents shape_;
  std::int64_t states_ = 0, groups_ = 1;
  bool grouped_ = false;
};

template <class V, template <class> class Rows>
void take_selective_arrays(selective_call<V, Rows>& c, const selective_arrays<V>& arrays,
                           selective_problem<V, Rows>& p) {
  p.softplus = arrays.softplus;
  p.u = c.rows("u", arrays.u), p.delta = c.rows("delta", arrays.delta);
  p.a = c.per_channel("a", arrays.a, arrays.a.shape.group);
  p.b = c.bc("b", arrays.b), p.c = c.bc("c", arrays.c);
  p.d = c.per_channel("d", arrays.d), p.z = c.rows("z", arrays.z);
  p.bias = c.per_channel("delta_bias", arrays.delta_bias);
  p.intervals = c.per_step("intervals", arrays.intervals);
}

template <template <class> class Rows = row_array, class V>
selective_problem<V, Rows> make_selective_scan(const selective_arrays<V>& arrays,
                                               const stored_sequence<real_part_of<V>>& out,
                                               const selective_options<V>& options) {
  selective_call<V, Rows> c("selective_scan", arrays, options.order);
  selective_problem<V, Rows> p;
  take_selective_arrays(c, arrays, p);
  p.initial = c.state("initial_state", options.initial_state);
  p.resets = c.resets(options.resets);
  p.out = c.rows("out", out);
  p.final_state = c.state("final_state", options.final_state);
  p.checkpoints = c.checkpoints(options.checkpoints);
  c.finish(p,
           std::array<in_place_pair, 4>{
               {{"out", "u"}, {"out", "delta"}, {"out", "z"}, {"final_state", "initial_state"}}});
  return p;
}

template <template <class> class Rows = row_array, class V>
selective_vjp_problem<V, Rows> make_selective_scan_vjp(
    const selective_arrays<V>& arrays, const stored_sequence<const real_part_of<V>>& out_grad,
    const selective_gradients<V>& gradients, const selective_vjp_options<V>& options) {
  selective_call<V, Rows> c("selective_scan_vjp", arrays, options.order);
  selective_vjp_problem<V, Rows> p;
  take_selective_arrays(c, arrays, p);
  p.out_grad = c.rows("out_grad", out_grad);
  p.initial = c.state("initial_state", options.initial_state);
  p.final_grad = c.state("final_grad", options.final_grad);
  p.resets = c.resets(options.resets);
  p.checkpoints = c.checkpoints(options.checkpoints);
  p.u_grad = c.rows("u_grad", gradients.u), p.delta_grad = c.rows("delta_grad", gradients.delta);
  p.a_grad = c.per_channel("a_grad", gradients.a, arrays.a.shape.group);
  p.b_grad = c.bc_grad("b_grad", gradients.b, arrays.b);
  p.c_grad = c.bc_grad("c_grad", gradients.c, arrays.c);
  p.d_grad = c.per_channel("d_grad", gradients.d);
  p.z_grad = c.rows("z_grad", gradients.z);
  if (p.z_grad.present() && !p.z.present())
    refuse("selective_scan_vjp", "z_grad", "an absent array, since 'z' is absent", "an array");
  p.bias_grad = c.per_channel("delta_bias_grad", gradients.delta_bias);
  p.initial_grad = c.state("initial_grad", gradients.initial_state);
  p.intervals_grad = c.per_step("intervals_grad", gradients.intervals);
  if (p.intervals_grad.present() && !p.intervals.present())
    refuse("selective_scan_vjp", "intervals_grad", "an absent array, since 'intervals' is absent",
           "an array");
  p.update = gradients.update == update::accumulate;
  c.finish(p, std::array<in_place_pair, 5>{{{"u_grad", "u"},
                                            {"u_grad", "out_grad"},
                                            {"delta_grad", "delta"},
                                            {"z_grad", "z"},
                                            {"initial_grad", "final_grad"}}});
  return p;
}

}  // namespace scanrec::detail::inline SCANREC_ABI
