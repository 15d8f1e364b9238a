// SPDX-License-Identifier: BSD-3-Clause
// The assignment of the elements of a chunk (selective_plan.cuh) to the threads of a block. An
// element is one step of one channel. A thread has runs of elements: along steps if u is contiguous
// along time only, else along channels. A run of a complete chunk is loaded or stored by one access
// if the array is contiguous along it and aligned. Stores that add to an array are an exception.
// Offsets are computed once and kept in shared memory, because registers are needed for states.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/selective_functions.cuh>
#include <scanrec/detail/cuda/selective_plan.cuh>
#include <scanrec/detail/cuda/selective_problem.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// The calls that a kernel supports. `plain`: calls without resets and intervals, in which B and C
/// vary with the step. `any`: all calls.
enum class selective_kind { plain, any };

/// The axis along which the elements of a run are neighbours.
enum class selective_runs { channels, steps };

/// The elements of a block's current chunk.
template <class Shape, selective_kind Kind>
class selective_elements {
 public:
  using V = typename Shape::value;
  using number = typename Shape::number;
  using raw = raw_element<V>;
  static constexpr bool plain = Kind == selective_kind::plain;
  static constexpr int E = Shape::elements, run = Shape::run, runs = E / run, row = Shape::row;
  /// Whether all threads of a block have elements.
  static constexpr bool even = Shape::steps * Shape::channels % selective_threads == 0;
  using run_of_values = packed<V, run>;

  SCANREC_DEVICE selective_elements(const selective_device_problem<number>& p,
                                    const selective_position& at, std::int64_t offsets_byte,
                                    std::int64_t reset_mask_byte)
      : p_(p),
        at_(at),
        delta_u_(Shape::delta_u),
        d_(Shape::d),
        bias_(Shape::bias),
        thread_(device::thread_index()),
        skip_runs_(Shape::d),
        bias_runs_(Shape::bias),
        reset_mask_(reset_mask_byte),
        offsets_(offsets_byte),
        // Runs are along steps if u is contiguous along time, in either direction, and not along
        // channels.
        along_channels_(p.u.strides.channel == 1 ||
                        (p.u.strides.time != 1 && p.u.strides.time != -1)) {
    if (along_channels_) {
      constexpr int in_step = Shape::channels / run;
      step_ = thread_ / in_step, channel_of_run_ = thread_ % in_step * run;
    } else {
      constexpr int of_channel = Shape::steps / run;
      step_ = thread_ % of_channel * run, channel_of_run_ = thread_ / of_channel;
    }
    if (thread_ < Shape::channels) {
      const std::int64_t c = at.channel + thread_;
      const bool there = thread_ < at.count;
      d_.store(thread_, there && p.d.present() ? *p.d.at(0, c) : V(0));
      bias_.store(thread_, there && p.bias.present() ? *p.bias.at(0, c) : V(0));
    }
  }

  /// Calls f with the axis of runs as a constant.
  template <class F>
  SCANREC_DEVICE SCANREC_INLINE void along(const F& f) const {
    if (along_channels_)
      f(std::integral_constant<selective_runs, selective_runs::channels>());
    else
      f(std::integral_constant<selective_runs, selective_runs::steps>());
  }
  /// Moves to the chunk that begins at step `begin`. For an incomplete first chunk, `begin` is
  /// negative.
  SCANREC_DEVICE SCANREC_INLINE void stand_at(std::int64_t begin) {
    begin_ = begin;
    idle_ = begin < 0 ? static_cast<int>(-begin) : 0;
  }
  /// Whether all elements of all threads exist.
  SCANREC_DEVICE SCANREC_INLINE bool whole() const {
    return even && idle_ == 0 && at_.count == Shape::channels;
  }
  /// The step and channel of the k-th element of a run, within the chunk.
  template <selective_runs Along>
  SCANREC_DEVICE SCANREC_INLINE int step_of(int of_run, int k) const {
    if constexpr (Along == selective_runs::channels)
      return step_ + of_run * (selective_threads * run / Shape::channels);
    else
      return step_ + k;
  }
  template <selective_runs Along>
  SCANREC_DEVICE SCANREC_INLINE int channel_of(int of_run, int k) const {
    if constexpr (Along == selective_runs::channels)
      return channel_of_run_ + k;
    else
      return channel_of_run_ + of_run * (selective_threads * run / Shape::steps);
  }
  /// The index of the k-th element of a run in shared memory, where each step has a row.
  template <selective_runs Along>
  SCANREC_DEVICE SCANREC_INLINE int slot(int of_run, int k) const {
    return step_of<Along>(of_run, k) * row + channel_of<Along>(of_run, k);
  }
  /// Whether this thread has elements.
  SCANREC_DEVICE SCANREC_INLINE bool has_elements() const {
    return even || thread_ < Shape::with_elements;
  }
  /// Whether an element exists.
  template <selective_runs Along>
  SCANREC_DEVICE SCANREC_INLINE bool there(int of_run, int k) const {
    return has_elements() && channel_of<Along>(of_run, k) < at_.count &&
           step_of<Along>(of_run, k) >= idle_;
  }

  // ---- arrays -----------------------------------------------------------------------------------

  /// Stores the offset of this thread's first element in the k-th array, and records whether the
  /// array allows access in runs.
  SCANREC_DEVICE SCANREC_INLINE void find(const device_rows<V>& rows, int k) {
    if (!rows.present() || !has_elements()) return;
    const auto& s = rows.strides;
    const std::int64_t first = rows.offset(at_.batch, 0, at_.channel);
    offsets_.store(k * Shape::with_elements + thread_,
                   first + step_ * s.time + channel_of_run_ * s.channel);
    // Every chunk begins a whole number of runs before the end of time. So all chunks are aligned
    // like the step with index p_.time % run.
    const std::int64_t beside = along_channels_ ? s.channel : s.time;
    const std::int64_t between = along_channels_ ? s.time : s.channel;
    const bool aligned =
        beside == 1 && between % run == 0 && rows.aligned(first + p_.time % run * s.time, run);
    remember(k, aligned);
  }
  /// Loads elements of the k-th array, from run `first_run` on.
  template <selective_runs Along, int Count>
  SCANREC_DEVICE SCANREC_INLINE void load(const device_rows<V>& rows, int k, raw (&to)[Count],
                                          int first_run = 0) const {
    if (!rows.present() || !has_elements()) return forget(to);
    const std::int64_t position = this->position<Along>(rows, k, first_run),
                       far = apart<Along>(rows);
    if (in_runs(k)) return rows.template load_runs<run>(to, position, far);
    const std::int64_t near =
        Along == selective_runs::channels ? rows.strides.channel : rows.strides.time;
    const bool all = whole();
    rows.load(to, [&](int e) SCANREC_LAMBDA {
      return all || there<Along>(first_run + e / run, e % run)
                 ? position + e / run * far + e % run * near
                 : device_rows<V>::none;
    });
  }
  template <int Count>
  SCANREC_DEVICE SCANREC_INLINE void numbers(const device_rows<V>& rows, int k,
                                             const raw (&from)[Count], V (&to)[Count]) const {
    to_numbers<run>(from, rows.as, in_runs(k), to);
  }
  template <selective_runs Along, int Count>
  SCANREC_DEVICE SCANREC_INLINE void store(const device_rows<V>& rows, int k, const V (&x)[Count],
                                           int first_run = 0, bool add = false) const {
    if (!rows.present() || !has_elements()) return;
    const std::int64_t position = this->position<Along>(rows, k, first_run),
                       far = apart<Along>(rows);
    if (in_runs(k) && !add) return rows.template store_runs<run>(x, position, far);
    const std::int64_t near =
        Along == selective_runs::channels ? rows.strides.channel : rows.strides.time;
    const bool all = whole();
    rows.store(x, add, [&](int e) SCANREC_LAMBDA {
      return all || there<Along>(first_run + e / run, e % run)
                 ? position + e / run * far + e % run * near
                 : device_rows<V>::none;
    });
  }
  template <int Count>
  SCANREC_DEVICE SCANREC_INLINE static void forget(raw (&to)[Count]) {
    SCANREC_UNROLL
    for (raw& x : to) x = 0;
  }

  // ---- steps ------------------------------------------------------------------------------------

  /// D for the elements of a run.
  template <selective_runs Along>
  SCANREC_DEVICE SCANREC_INLINE run_of_values d_of(int of_run) const {
    return of_channels<Along>(d_, skip_runs_, of_run);
  }
  /// Turns deltas into step sizes, and computes slopes: derivatives of step sizes by deltas. Steps
  /// that do not exist have size 0.
  template <selective_runs Along, int Count>
  SCANREC_DEVICE SCANREC_INLINE void to_steps(V (&step)[Count], V (&slope)[Count],
                                              int first_run = 0) const {
    soften<Along>(step, slope, first_run), scale<Along>(step, slope, first_run);
  }
  /// Like to_steps, but without the intervals.
  template <selective_runs Along, int Count>
  SCANREC_DEVICE SCANREC_INLINE void soften(V (&step)[Count], V (&slope)[Count],
                                            int first_run = 0) const {
    SCANREC_UNROLL
    for (int e = 0; e < Count; e += run) {
      const run_of_values by = of_channels<Along>(bias_, bias_runs_, first_run + e / run);
      SCANREC_UNROLL
      for (int k = 0; k < run; ++k) step[e + k] = step[e + k] + by.of[k], slope[e + k] = 1;
    }
    if (p_.softplus) {
      SCANREC_UNROLL
      for (int e = 0; e < Count; ++e) {
        const auto soft = selective_softplus(step[e]);
        step[e] = soft.value, slope[e] = soft.slope;
      }
    }
    if (whole()) return;
    SCANREC_UNROLL
    for (int e = 0; e < Count; ++e)
      step[e] = there<Along>(first_run + e / run, e % run) ? step[e] : V(0);
  }
  /// Multiplies step sizes and slopes by the intervals.
  template <selective_runs Along, int Count>
  SCANREC_DEVICE SCANREC_INLINE void scale(V (&step)[Count], V (&slope)[Count],
                                           int first_run = 0) const {
    if constexpr (!plain) {
      if (!p_.intervals.present()) return;
      V by[Count];
      SCANREC_UNROLL
      for (int e = 0; e < Count; ++e) {
        const int of_run = first_run + e / run, k = e % run;
        by[e] = there<Along>(of_run, k)
                    ? *p_.intervals.at(at_.batch, 0, 0, begin_ + step_of<Along>(of_run, k))
                    : V(1);
      }
      SCANREC_UNROLL
      for (int e = 0; e < Count; ++e) step[e] = step[e] * by[e], slope[e] = slope[e] * by[e];
    }
  }
  template <selective_runs Along>
  SCANREC_DEVICE SCANREC_INLINE void set_reset(int of_run, int k) const {
    if constexpr (!plain) {
      if (!p_.resets.present()) return;
      const bool reset =
          there<Along>(of_run, k) && p_.resets.at(at_.batch, begin_ + step_of<Along>(of_run, k),
                                                  at_.channel + channel_of<Along>(of_run, k));
      reset_mask_.store(slot<Along>(of_run, k), reset ? 1u : 0u);
    }
  }
  /// Whether step t of the chunk has a reset for a channel.
  SCANREC_DEVICE SCANREC_INLINE bool reset(int t, int channel) const {
    if constexpr (plain)
      return false;
    else
      return p_.resets.present() && reset_mask_.load(t * row + channel) != 0;
  }

  const selective_device_problem<number>& p_;
  selective_position at_;
  device::shared_array<value_pair<V>> delta_u_;  // (step, channel): (step size, step size * u)
  device::shared_array<V> d_, bias_;             // (channel)
  int thread_;
  std::int64_t begin_ = 0;
  int idle_ = 0;  // steps of the chunk before the start of the sequence

 protected:
  /// Records whether array k can be loaded in runs.
  SCANREC_DEVICE SCANREC_INLINE void remember(int k, bool in_runs) {
    in_runs_ |= in_runs ? 1u << k : 0u;
  }
  SCANREC_DEVICE SCANREC_INLINE bool remembered(int k) const { return (in_runs_ >> k & 1) != 0; }

 private:
  SCANREC_DEVICE SCANREC_INLINE bool in_runs(int k) const { return whole() && remembered(k); }
  template <selective_runs Along>
  SCANREC_DEVICE SCANREC_INLINE static std::int64_t apart(const device_rows<V>& rows) {
    if constexpr (Along == selective_runs::channels)
      return selective_threads * run / Shape::channels * rows.strides.time;
    else
      return selective_threads * run / Shape::steps * rows.strides.channel;
  }
  template <selective_runs Along>
  SCANREC_DEVICE SCANREC_INLINE std::int64_t position(const device_rows<V>& rows, int k,
                                                      int first_run) const {
    return offsets_.load(k * Shape::with_elements + thread_) + begin_ * rows.strides.time +
           first_run * apart<Along>(rows);
  }
  template <selective_runs Along>
  SCANREC_DEVICE SCANREC_INLINE run_of_values
  of_channels(const device::shared_array<V>& each,
              const device::shared_array<run_of_values>& together, int of_run) const {
    if constexpr (Along == selective_runs::channels) {
      return together.load(channel_of_run_ / run);
    } else {
      const int channel = channel_of<Along>(of_run, 0);
      const V x = has_elements() ? each.load(channel) : V(0);
      run_of_values same;
      SCANREC_UNROLL
      for (V& of : same.of) of = x;
      return same;
    }
  }

  device::shared_array<run_of_values> skip_runs_, bias_runs_;
  device::shared_array<std::uint32_t> reset_mask_;
  device::shared_array<std::int64_t> offsets_;  // (array, thread), in elements
  bool along_channels_;
  int step_, channel_of_run_;
  std::uint32_t in_runs_ = 0;
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
