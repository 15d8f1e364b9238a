// SPDX-License-Identifier: BSD-3-Clause
// Common part of the forward pass and the adjoint of a selective scan, for one pack of channels. It
// loads rows into cache as packs, and also loads the values that all steps share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cpu/selective_steps.hpp>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/detail/recurrence/selective.hpp>
#include <scanrec/detail/simd/softplus.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// States that are processed together.
template <class State>
inline constexpr int selective_block = 4 / parts_of<State>;

/// A checkpoint interval of a pack of channels.
struct selective_position {
  std::int64_t batch = 0, group = 0, channel = 0;
  int count = 1;                    // channels in use, of W lanes
  std::int64_t begin = 0, end = 0;  // steps
};

/// Common part of the forward pass and the adjoint.
template <class V, int W>
class selective_tile {
 public:
  using real = real_part_of<V>;
  using lane = simd::lane_t<real, W>;
  using state = simd::lane_t<V, W>;

 protected:
  static constexpr int parts = parts_of<state>;

  /// Takes memory for the values of `steps` steps, and with `grads` also for the values that only
  /// the adjoint needs.
  selective_tile(const selective_problem<V>& p, std::int64_t steps, bool grads, arena& memory)
      : p_(p),
        u_(memory.take<lane>(steps)),
        delta_(memory.take<lane>(steps)),
        slope_(memory.take<lane>(grads ? steps : 0)),
        soft_(memory.take<lane>(grads && p.intervals.present() ? steps : 0)),
        delta_u_(memory.take<lane>(steps)),
        y_(memory.take<lane>(steps)),
        z_(memory.take<lane>(steps)),
        resets_(memory.take<lane>(p.resets.present() ? steps : 0)),
        any_reset_(memory.take<bool>(p.resets.present() ? steps : 0)),
        b_rows_(memory.take<real>(p.b.steps.present() ? steps * parts * padded(p.states) : 0)),
        c_rows_(memory.take<real>(p.c.steps.present() ? steps * parts * padded(p.states) : 0)),
        a_values_(memory.take<state>(p.states)),
        b_constant_(memory.take<state>(p.b.channels.present() ? p.states : 0)),
        c_constant_(memory.take<state>(p.c.channels.present() ? p.states : 0)) {}

  /// Moves to a position, and loads the values that all steps share.
  void stand_at(const selective_position& position) {
    stand_at_channels(position);
    load_states(p_.a, a_values_);
    if (p_.b.channels.present()) load_states(p_.b.channels, b_constant_);
    if (p_.c.channels.present()) load_states(p_.c.channels, c_constant_);
    grows_ = false;
    for (std::int64_t n = 0; n < p_.states; ++n)
      grows_ = grows_ ||
               !simd::all_zero(simd::select_less(zero(), part_of<0>(a_values_[n]), one(), zero()));
  }
  /// Moves to a position, and loads D and the bias, but no values per state.
  void stand_at_channels(const selective_position& position) {
    at_ = position;
    d_ = load_channels(p_.d), bias_ = load_channels(p_.bias);
  }
  lane load_channels(const value_array<real>& from) const {
    if (!from.present()) return zero();
    return simd::load<lane>(static_cast<const real*>(from.at(0, at_.channel)), from.strides.channel,
                            at_.count);
  }
  // Loads an array with one value per state and channel: A, a constant B or C, or states. Real
  // values use load_rows, with the index of the state in place of the step.
  void load_states(const value_array<V>& from, state* to, std::int64_t time = 0) const {
    V* const first = from.at(at_.batch, at_.channel, 0, time);
    if constexpr (parts == 1)
      load_rows<V, V, W>(first, strides_of(from), p_.states, at_.count, reinterpret_cast<V*>(to));
    else
      for (std::int64_t n = 0; n < p_.states; ++n)
        to[n] = simd::load<state>(static_cast<const V*>(first + n * from.strides.group),
                                  from.strides.channel, at_.count);
  }
  void store_states(const value_array<V>& to, const state* from, bool add = false,
                    std::int64_t time = 0) const {
    V* const first = to.at(at_.batch, at_.channel, 0, time);
    if constexpr (parts == 1) {
      store_rows<V, V, W>(first, strides_of(to), p_.states, at_.count,
                          reinterpret_cast<const V*>(from), add);
    } else {
      for (std::int64_t n = 0; n < p_.states; ++n) {
        V* const position = first + n * to.strides.group;
        state x = from[n];
        if (add)
          x = x + simd::load<state>(static_cast<const V*>(position), to.strides.channel, at_.count);
        simd::store(position, to.strides.channel, at_.count, x);
      }
    }
  }
  static row_strides strides_of(const value_array<V>& states) {
    return {states.strides.group, states.strides.channel};
  }
  void load_states_or_zero(const value_array<V>& from, state* to) const {
    if (from.present())
      load_states(from, to);
    else
      std::fill_n(to, p_.states, simd::constant<state>(0));
  }

  /// Loads the rows of `steps` steps into cache, and appends idle steps, whose delta is 0, up to
  /// `padded`.
  template <bool Slopes>
  selective_rows<state> prepare(std::int64_t begin, std::int64_t steps, std::int64_t padded) {
    load(p_.u, begin, steps, u_), load(p_.delta, begin, steps, delta_);
    lane least = zero();
    for (std::int64_t t = 0; t < steps; ++t) {
      lane delta = delta_[t] + bias_;
      if (p_.softplus) {
        auto soft = simd::softplus(delta);
        delta = soft.value;
        if constexpr (Slopes) slope_[t] = soft.slope;
      } else if constexpr (Slopes) {
        slope_[t] = one();
      }
      if (p_.intervals.present()) {
        const lane interval = simd::splat<lane>(*p_.intervals.at(at_.batch, 0, 0, begin + t));
        if constexpr (Slopes) soft_[t] = delta, slope_[t] = simd::mul(slope_[t], interval);
        delta = simd::mul(delta, interval);
      }
      least = simd::select_less(delta, least, delta, least);
      delta_[t] = delta, delta_u_[t] = simd::mul(delta, u_[t]), y_[t] = zero();
    }
    for (std::int64_t t = steps; t < padded; ++t) delta_[t] = delta_u_[t] = y_[t] = zero();
    decays_ = !grows_ && simd::all_zero(least);
    return {.steps = padded,
            .delta = delta_,
            .delta_u = delta_u_,
            .y = y_,
            .resets = set_resets(begin, steps, padded) ? resets_ : nullptr,
            .any_reset = any_reset_,
            .b = bc(p_.b, begin, steps, padded, b_rows_, b_constant_),
            .c = bc(p_.c, begin, steps, padded, c_rows_, c_constant_)};
  }
  void load(const row_array<real>& from, std::int64_t begin, std::int64_t steps, lane* to) const {
    from.template load<W>(from.at(at_.batch, begin, at_.channel), steps, at_.count,
                          reinterpret_cast<real*>(to));
  }
  void store(const row_array<real>& to, std::int64_t begin, std::int64_t steps, const lane* from,
             bool add) const {
    to.template store<W>(to.at(at_.batch, begin, at_.channel), steps, at_.count,
                         reinterpret_cast<const real*>(from), add);
  }
  /// Calls f(number of states, kernel variant, first state) for blocks of states that are processed
  /// together.
  template <class F>
  void for_states(const selective_rows<state>& rows, F f) const {
    using enum selective_case;
    const auto each = [&](auto which) {
      std::int64_t n = 0;
      constexpr int block = selective_block<state>;
      for (; n + block <= p_.states; n += block) f(std::integral_constant<int, block>{}, which, n);
      for (; n < p_.states; ++n) f(std::integral_constant<int, 1>{}, which, n);
    };
    if (decays_ && rows.b.constant == nullptr && rows.c.constant == nullptr)
      each(std::integral_constant<selective_case, decaying>{});
    else
      each(std::integral_constant<selective_case, any>{});
  }
  static lane zero() { return simd::constant<lane>(0); }
  static lane one() { return simd::constant<lane>(1); }
  /// `width` is the number of states in a block of B or C (bc_rows); it does not depend on W.
  /// padded() rounds a number of states up to whole blocks.
  static constexpr std::int64_t width = bc_rows<state>::width;
  static std::int64_t padded(std::int64_t states) { return (states + width - 1) / width * width; }

 private:
  // Loads the resets of some steps, and returns whether there are any. Lanes without a channel are
  // reset whenever a channel is. Otherwise NaN from a B or C that is not finite would stay in them.
  bool set_resets(std::int64_t begin, std::int64_t steps, std::int64_t padded) {
    if (!p_.resets.present()) return false;
    bool any = false;
    for (std::int64_t t = 0; t < padded; ++t) {
      real reset_mask[W];
      std::fill_n(reset_mask, W, real(1));
      bool of_step = false;
      for (int i = 0; i < at_.count; ++i) {
        const bool reset = t < steps && p_.resets.at(at_.batch, begin + t, at_.channel + i);
        reset_mask[i] = reset ? real(1) : real(0);
        of_step = of_step || reset;
      }
      resets_[t] = simd::load<lane>(static_cast<const real*>(reset_mask), 1, W);
      any_reset_[t] = of_step;
      any = any || of_step;
    }
    return any;
  }
  // Loads rows of B or C with lanes along the states, `width` states at a time.
  bc_rows<state> bc(const bc_array<V>& m, std::int64_t begin, std::int64_t steps,
                    std::int64_t padded, real* rows, const state* constant) const {
    if (!m.steps.present()) return {.constant = constant};
    const std::int64_t block = padded * width, all = (p_.states + width - 1) / width * block;
    const auto bring = [&](const row_array<real>& from, real* to) {
      for (std::int64_t n = 0; n < p_.states; n += width, to += block) {
        from.template load<width>(from.at(at_.batch, begin, n, at_.group), steps,
                                  static_cast<int>(std::min(width, p_.states - n)), to);
        std::fill(to + steps * width, to + block, real(0));
      }
    };
    bring(m.steps, rows);
    if constexpr (parts == 2) bring(m.imaginary, rows + all);
    return {.shared = rows, .imaginary = parts == 2 ? rows + all : nullptr, .block = block};
  }

 protected:
  const selective_problem<V>& p_;
  selective_position at_;
  lane *u_, *delta_, *slope_, *soft_, *delta_u_, *y_, *z_, *resets_;
  bool* any_reset_;
  real *b_rows_, *c_rows_;
  state *a_values_, *b_constant_, *c_constant_;
  lane d_, bias_;
  bool grows_ = false;   // whether some A has a positive real part
  bool decays_ = false;  // whether all gates of the loaded steps have modulus at most 1
};

}  // namespace scanrec::detail::inline SCANREC_ABI
