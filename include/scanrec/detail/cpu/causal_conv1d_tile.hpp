// SPDX-License-Identifier: BSD-3-Clause
// Causal convolutions of a tile: some steps of some channels of one sequence. A row holds the
// tile's channels at one step. Kernels process rows in the arrays themselves if possible.
// Otherwise rows are copied as packs to a buffer in cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include <scanrec/detail/cpu/causal_conv1d_kernels.hpp>
#include <scanrec/detail/cpu/tile_policy.hpp>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/detail/problem/causal_conv1d.hpp>
#include <scanrec/detail/simd/math.hpp>
#include <scanrec/matrix.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The size of tiles. If the channels of x are contiguous, a row of a tile may have several packs.
/// Otherwise it has one.
struct conv1d_tile_size {
  std::int64_t packs = 1, steps = 64;

  template <class V>
  static conv1d_tile_size of(const causal_conv1d_problem<V>& p, int lanes) {
    constexpr std::int64_t row_bytes = 1024;
    if (p.x.strides.channel != 1)
      return {.packs = 1, .steps = std::clamp<std::int64_t>(p.time, 1, 64)};
    // Tiles of neighbouring channels have about the same number of packs.
    const std::int64_t packs = (p.channels + lanes - 1) / lanes;
    const std::int64_t most = row_bytes / (lanes * static_cast<std::int64_t>(sizeof(V)));
    const std::int64_t tiles = std::max<std::int64_t>(1, (packs + most - 1) / most);
    return {.packs = std::max<std::int64_t>(1, (packs + tiles - 1) / tiles),
            .steps = std::clamp<std::int64_t>(p.time, 1, 16)};
  }
};

/// Common part of the forward pass and the adjoint: a tile, with buffers of layout (step, pack).
template <class V, int W>
class conv1d_tile {
 public:
  using lane = simd::lane_t<V, W>;

  /// Moves the tile to a sequence, and there to the channels from `channel` on.
  void move_to(std::int64_t batch, std::int64_t channel) {
    batch_ = batch, channel_ = channel;
    channels_ = std::min(size_.packs * W, p_.channels - channel);
    for (std::int64_t pack = 0; pack < packs(); ++pack) {
      load_weight(pack, weight_ + pack * p_.width);
      bias_[pack] = p_.bias.present() ? per_channel(p_.bias, pack, 0) : simd::constant<lane>(0);
    }
  }

 protected:
  /// The only number of taps (`width`) with unrolled loops.
  static constexpr int taps = 4;

  /// `history_counts`: whether steps before step 0 count as inputs. They do if the initial state
  /// is present or its gradient is requested.
  /// `steps_after`: number of steps after the tile that are loaded as well.
  conv1d_tile(const causal_conv1d_problem<V>& p, bool history_counts, std::int64_t steps_after,
              arena& memory)
      : p_(p),
        size_(conv1d_tile_size::of(p, W)),
        history_counts_(history_counts),
        before_(p.width - 1),
        x_(take_rows(size_.steps + before_ + steps_after, memory)),
        weight_(take_rows(p.width, memory)),
        bias_(take_rows(1, memory)),
        seen_(memory.take<std::int16_t>(size_.steps + steps_after)) {}

  lane* take_rows(std::int64_t count, arena& memory) const {
    return memory.take<lane>(count * size_.packs);
  }
  [[nodiscard]] std::int64_t packs() const { return (channels_ + W - 1) / W; }

  /// Loads the inputs of steps [first, last). `first` may be as low as -(width - 1). Inputs before
  /// step 0 come from the initial state, or are 0 if it is absent.
  void load_inputs(std::int64_t first, std::int64_t last) {
    const std::int64_t history = std::clamp<std::int64_t>(-first, 0, last - first);
    if (p_.initial.present())
      load(p_.initial, p_.initial_steps + first, history, x_);
    else
      fill_zero(x_, history);
    load(p_.x, first + history, last - first - history, x_ + history * size_.packs);
  }
  /// Sets seen_[i] to the number of earlier steps that the output of step begin + i depends on.
  /// Returns whether all outputs depend on width - 1 earlier steps. In this case seen_ may be left
  /// unset.
  bool find_sequences(std::int64_t begin, std::int64_t end) {
    if (!p_.resets.present() && (history_counts_ || begin >= before_)) return true;
    bool uniform = true;
    for (std::int64_t t = begin, seen = 0; t < end; ++t) {
      seen = t == begin ? steps_before(t) : std::min(seen + 1, before_);
      if (p_.resets.present() && p_.resets.at(batch_, t)) seen = 0;
      seen_[t - begin] = static_cast<std::int16_t>(seen);
      uniform = uniform && seen == before_;
    }
    return uniform;
  }
  /// The last step from `first` on that is reset, or `first` if no step is.
  [[nodiscard]] std::int64_t last_sequence(std::int64_t first) const {
    if (p_.resets.present())
      for (std::int64_t t = p_.time - 1; t >= std::max<std::int64_t>(first, 0); --t)
        if (p_.resets.at(batch_, t)) return t;
    return first;
  }
  /// Computes the outputs of steps whose inputs are in x_, without the activation. `y` may be x_.
  void run_convolution(std::int64_t steps, bool uniform, lane* y) const {
    for (std::int64_t pack = 0; pack < packs(); ++pack) {
      const lane* const x = x_ + pack;
      const lane* const weight = weight_ + pack * p_.width;
      for (std::int64_t t = 0; t < steps; ++t) {
        const std::int64_t most = uniform ? before_ : seen_[t];
        lane sum = bias_[pack];
        for (std::int64_t k = 0; k <= most; ++k)
          sum = simd::fma(weight[k], x[(t + before_ - k) * size_.packs], sum);
        y[t * size_.packs + pack] = sum;
      }
    }
  }
  /// Calls f(S{}) if the arrays that are present all store S and a kernel can process them in
  /// place. This requires four taps, whole packs of contiguous channels, and outputs that all
  /// depend on width - 1 earlier steps of x itself. Returns whether f was called.
  template <class F>
  bool in_place(std::int64_t begin, bool uniform, std::initializer_list<const row_array<V>*> arrays,
                F f) const {
    if (!has_loops(uniform) || begin < before_ || channels_ % W != 0) return false;
    for (const row_array<V>* const array : arrays)
      if (array->present() && (array->access != p_.x.access || array->strides.channel != 1))
        return false;
    const auto run = [&](auto element) {
      const bool has = p_.x.access == &rows_of<decltype(element), V>;
      if (has) f(element);
      return has;
    };
    if constexpr (std::is_same_v<V, float>)
      if (run(bfloat16{}) || run(float16{})) return true;
    return run(V{});
  }
  /// Whether an output is so large that it would evict everything else from the caches.
  [[nodiscard]] bool streams(const row_array<V>& out) const {
    return out.present() &&
           p_.batch * p_.time * p_.channels * out.access->bytes >= tile_policy::stream_bytes / 2;
  }
  /// Calls f(the activation as a constant).
  template <class F>
  void with_activation(F f) const {
    using enum conv1d_activation;
    if (p_.silu)
      f(std::integral_constant<conv1d_activation, silu>{});
    else
      f(std::integral_constant<conv1d_activation, none>{});
  }
  /// Whether the inner loops for four taps can process a tile.
  [[nodiscard]] bool has_loops(bool uniform) const { return uniform && p_.width == taps; }
  /// The rows of a buffer in cache.
  conv1d_rows<V> cached_rows(lane* rows) const {
    return {reinterpret_cast<V*>(rows), size_.packs * W};
  }
  /// The rows of the tile's channels in memory, from a step on.
  template <class S>
  conv1d_rows<S> stored_rows(const row_array<V>& array, std::int64_t first) const {
    if (!array.present()) return {};
    return {reinterpret_cast<S*>(array.at(batch_, first, channel_)), array.strides.time};
  }
  /// Calls f(index in the buffer) for every pack of the first `steps` rows.
  template <class F>
  void for_lanes(std::int64_t steps, F f) const {
    for (std::int64_t t = 0; t < steps; ++t)
      for (std::int64_t pack = 0; pack < packs(); ++pack) f(t * size_.packs + pack);
  }
  void fill_zero(lane* rows, std::int64_t steps) const {
    std::fill_n(rows, steps * size_.packs, simd::constant<lane>(0));
  }

  void load(const row_array<V>& from, std::int64_t first, std::int64_t steps, lane* to) const {
    for_pieces(from, first, steps,
               [&](std::byte* at, row_strides strides, std::int64_t count, int lanes,
                   std::int64_t position) {
                 const auto run = W == 1 ? from.access->load_one : from.access->load;
                 run(at, strides, count, lanes, reinterpret_cast<V*>(to + position));
               });
  }
  void store(const row_array<V>& to, std::int64_t first, std::int64_t steps, const lane* from,
             bool add = false) const {
    for_pieces(to, first, steps,
               [&](std::byte* at, row_strides strides, std::int64_t count, int lanes,
                   std::int64_t position) {
                 const auto run = W == 1 ? to.access->store_one : to.access->store;
                 run(at, strides, count, lanes, reinterpret_cast<const V*>(from + position), add);
               });
  }

 private:
  // Calls f(address, strides, packs, lanes per pack, index of the first pack in the buffer) for
  // pieces of an array that are contiguous in the buffer: all steps if a row has one pack, and
  // otherwise the packs of one step.
  template <class F>
  void for_pieces(const row_array<V>& array, std::int64_t first, std::int64_t steps, F f) const {
    const scanrec::strides& s = array.strides;
    if (size_.packs == 1) {
      if (steps > 0)
        f(array.at(batch_, first, channel_), row_strides{s.time, s.channel}, steps,
          static_cast<int>(channels_), 0);
      return;
    }
    const std::int64_t whole = channels_ / W;
    const int rest = static_cast<int>(channels_ % W);
    const row_strides strides{W * s.channel, s.channel};
    for (std::int64_t t = 0; t < steps; ++t) {
      if (whole > 0) f(array.at(batch_, first + t, channel_), strides, whole, W, t * size_.packs);
      if (rest > 0)
        f(array.at(batch_, first + t, channel_ + whole * W), strides, 1, rest,
          t * size_.packs + whole);
    }
  }
  // Loads the taps of a pack of channels, the current step's first.
  void load_weight(std::int64_t pack, lane* to) const {
    const value_array<V>& w = p_.weight;
    if constexpr (W > 1)
      if (p_.width == taps && w.strides.group == 1 && w.strides.channel == taps &&
          channels_ >= (pack + 1) * W) {
        const auto* const first = w.at(0, channel_ + pack * W);
        const auto of = simd::load_unit<simd::lane_t<vec<V, taps>, W>>(
            reinterpret_cast<const vec<V, taps>*>(first));
        simd::detail::unrolled<taps>([&](auto k) SCANREC_LAMBDA { to[k] = of[taps - 1 - k]; });
        return;
      }
    for (std::int64_t k = 0; k < p_.width; ++k) to[k] = per_channel(w, pack, before_ - k);
  }
  [[nodiscard]] lane per_channel(const value_array<V>& of, std::int64_t pack,
                                 std::int64_t tap) const {
    const std::int64_t channel = channel_ + pack * W;
    const V* const first = of.at(0, channel, tap);
    const int count = static_cast<int>(std::min<std::int64_t>(W, p_.channels - channel));
    if (count == W && of.strides.channel == 1) return load_lane<lane>(first);
    return simd::load<lane>(first, of.strides.channel, count);
  }
  // Number of steps before step t that its output depends on: back to the last reset, and at most
  // width - 1.
  [[nodiscard]] std::int64_t steps_before(std::int64_t t) const {
    for (std::int64_t k = 0; k < before_; ++k) {
      if (p_.resets.present() && p_.resets.at(batch_, t - k)) return k;
      if (t == k) return history_counts_ ? before_ : k;
    }
    return before_;
  }

 protected:
  const causal_conv1d_problem<V>& p_;
  const conv1d_tile_size size_;
  const bool history_counts_;
  const std::int64_t before_;  // earlier steps that an output depends on
  lane *x_, *weight_, *bias_;  // weights: (pack, tap), the current step's tap first
  std::int16_t* seen_;
  std::int64_t batch_ = 0, channel_ = 0, channels_ = 0;
};

/// The forward pass over tiles.
template <class V, int W>
class conv1d_forward : public conv1d_tile<V, W> {
  using base = conv1d_tile<V, W>;

 public:
  using typename base::lane;
  conv1d_forward(const causal_conv1d_problem<V>& p, arena& memory)
      : base(p, p.initial.present(), 0, memory) {}

  void run(std::int64_t begin, std::int64_t end) {
    const causal_conv1d_problem<V>& p = this->p_;
    if (p.out.present()) {
      const bool uniform = this->find_sequences(begin, end);
      const std::int64_t steps = end - begin;
      const bool is_done = this->in_place(begin, uniform, {&p.x, &p.out}, [&](auto element) {
        using S = decltype(element);
        convolve_rows(this->template stored_rows<const S>(p.x, begin),
                      this->template stored_rows<S>(p.out, begin), steps, this->streams(p.out));
      });
      if (!is_done) run_in_cache(begin, steps, uniform);
    }
  }
  /// Stores the final state of the tile's channels. The first part of a sequence does this after
  /// its last tile, because it alone reads the initial state, which the final state may alias.
  void store_final_state() {
    const causal_conv1d_problem<V>& p = this->p_;
    if (!p.final_state.present()) return;
    const std::int64_t first = p.time - p.final_steps, start = this->last_sequence(first);
    lane* const row = this->x_;
    // Copies one step at a time in ascending order, so that no step of an aliased initial state is
    // overwritten before it is read.
    for (std::int64_t t = first; t < p.time; ++t) {
      if (t >= start && t >= 0)
        this->load(p.x, t, 1, row);
      else if (t >= start && p.initial.present() && t >= -p.initial_steps)
        this->load(p.initial, p.initial_steps + t, 1, row);
      else
        this->fill_zero(row, 1);
      this->store(p.final_state, t - first, 1, row);
    }
  }

 private:
  template <class S>
  void convolve_rows(conv1d_rows<const S> x, conv1d_rows<S> y, std::int64_t steps, bool stream) {
    this->with_activation([&](auto f) {
      convolve<f.value, base::taps>(x, this->weight_, this->bias_, {steps, this->packs()}, y,
                                    stream);
    });
  }
  void run_in_cache(std::int64_t begin, std::int64_t steps, bool uniform) {
    this->load_inputs(begin - this->before_, begin + steps);
    lane* const y = this->x_;
    if (this->has_loops(uniform)) {
      const auto x = this->cached_rows(this->x_ + this->before_ * this->size_.packs);
      convolve_rows<V>({x.first, x.row}, this->cached_rows(y), steps, false);
    } else {
      this->run_convolution(steps, uniform, y);
      if (this->p_.silu)
        this->for_lanes(steps, [y](std::int64_t i) SCANREC_LAMBDA {
          y[i] = simd::mul(y[i], simd::sigmoid(y[i]).value);
        });
    }
    this->store(this->p_.out, begin, steps, y);
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
