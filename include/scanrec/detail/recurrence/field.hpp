// SPDX-License-Identifier: BSD-3-Clause
// Fields: the arrays of a recurrence as a kernel sees them, in scan order. A kernel loads and
// stores one lane value (simd/lanes.hpp) at a time, that is, a scalar or a pack.
//
// A kernel owns a copy of the recurrence whose fields point at the first element of a block
// (`seek`). A `position` selects the lanes of a load or store, relative to that element. Kernels
// with packs require that the lanes of a field are contiguous or all the same. Arrays with other
// layouts are staged for them (detail/cpu/stage.hpp). Kernels without packs take any strides.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/recurrence/position.hpp>
#include <scanrec/detail/simd/memory.hpp>
#include <scanrec/element.hpp>
#include <scanrec/views.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

/// An input array. Strides are in scan order: a reverse scan has its time stride negated.
template <class S>
struct input_field {
  using stored = S;
  const S* data = nullptr;  // null: absent, with zero strides
  scanrec::strides strides{};

  SCANREC_HD SCANREC_INLINE bool present() const { return data != nullptr; }

  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane load(position<Axis, Assume> at) const {
    return load_from<Lane>(data + at.row * strides.time, at);
  }
  /// The lane value, or zero if the array is absent.
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane load_or_zero(position<Axis, Assume> at) const {
    return at.mostly(present()) ? load<Lane>(at) : simd::constant<Lane>(0);
  }
  /// The lane value `shift` steps later in scan order (earlier if negative). The array must have
  /// that step.
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane load_neighbour(position<Axis, Assume> at,
                                                std::int64_t shift) const {
    return load_from<Lane>(data + (at.row + shift) * strides.time, at);
  }
  /// The stored element of a single lane. Kernels keep it unconverted until they process the step.
  template <lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE S stored_at(position<Axis, Assume> at) const {
    return data[at.row * strides.time + at.index * strides.channel];
  }
  template <lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE S stored_or_zero(position<Axis, Assume> at) const {
    return at.mostly(present()) ? stored_at(at) : S{};
  }
  template <lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE S stored_neighbour(position<Axis, Assume> at,
                                               std::int64_t shift) const {
    return data[(at.row + shift) * strides.time + at.index * strides.channel];
  }
  /// Prefetches the cache lines of the lanes `gap` steps later, which may lie outside of the array.
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_INLINE void prefetch(position<Axis, Assume> at, std::int64_t gap) const {
    if constexpr (std::is_same_v<S, bool> && (Assume > assume::all_lanes)) return;  // no masks
    if (strides.time == 0) return;  // absent, or a broadcast, which is in cache already
    constexpr auto size = static_cast<std::int64_t>(sizeof(S));
    const auto there = reinterpret_cast<std::uintptr_t>(data) +
                       static_cast<std::uintptr_t>(offset<Lane>(at, at.row + gap) * size);
    for (std::uintptr_t byte = 0; byte < simd::lane_count<Lane> * sizeof(S); byte += 64)
      __builtin_prefetch(reinterpret_cast<const void*>(there + byte), 0, 2);  // to L2
  }

  /// Loads the cache lines of the lanes and discards them. Unlike a prefetch, such a load trains
  /// the hardware prefetchers.
  template <class Lane, class Position>
  SCANREC_INLINE void touch(Position at) const {
    if ((Position::along == lane_axis::time ? strides.time : strides.channel) == 0) return;
    const auto* first = reinterpret_cast<const char*>(data + offset<Lane>(at, at.row));
    const auto lanes = static_cast<std::size_t>(
        Position::along == lane_axis::time ? simd::lane_count<Lane> : at.count);
    for (std::size_t byte = 0; byte < lanes * sizeof(S); byte += 64)
      asm volatile("" : : "r"(first[byte]));
  }

  SCANREC_HD SCANREC_INLINE void bind(std::int64_t group, std::int64_t batch) {
    data += group * strides.group + batch * strides.batch;
  }
  SCANREC_HD SCANREC_INLINE void seek(std::int64_t time, std::int64_t channel) {
    data += time * strides.time + channel * strides.channel;
  }

 private:
  // Number of elements from `data` to the lane with the lowest address at a row. Lanes of a pack
  // count as contiguous; a scalar lane may have any stride.
  template <class Lane, class Position>
  SCANREC_INLINE std::int64_t offset(Position at, std::int64_t row) const {
    const std::int64_t lane_stride = simd::lane_count<Lane> == 1 ? strides.channel : 1;
    return row * strides.time + at.index * lane_stride;
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane load_from(const S* from, position<Axis, Assume> at) const {
    if constexpr (simd::lane_count<Lane> == 1) {
      return simd::load_one<Lane>(from + at.index * strides.channel);
    } else {
      const std::int64_t lane_stride = Axis == lane_axis::time ? strides.time : strides.channel;
      if (Assume != assume::plain && lane_stride == 0)
        return simd::splat<Lane>(simd::load_one<simd::scalar_of<Lane>>(from));
      if (at.lacks_lanes(simd::lane_count<Lane>))
        return simd::load_some<Lane>(from + at.index, at.count);
      return simd::load_unit<Lane>(from + at.index, Axis == lane_axis::time && at.reversed);
    }
  }
};

/// How an output treats a value.
enum class write : std::uint8_t {
  nothing,   // absent
  store,     // data = value
  add,       // data += value
  sum_time,  // a sum over time: added to a running lane, which is flushed into `sums` periodically
  sum_site,  // a sum over other axes only: added to `sums` without a running lane
};

/// Accumulators of a summed output in the wide type. The backend chooses the layout: element (t, c)
/// is at data[offset + t * strides.time + c * strides.channel].
template <class S>
struct accumulators {
  wide_t<S>* data = nullptr;
  std::int64_t offset = 0;
  scanrec::strides strides{};

  /// Adds the lanes at a position. Lanes that share an accumulator are summed first.
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void add(position<Axis, Assume> at, Lane value) const {
    simd::add_into(data + (offset + at.time * strides.time + at.channel * strides.channel),
                   Axis == lane_axis::time ? strides.time : strides.channel, at.count, value);
  }
};

/// An output array, or the sum over its zero-stride axes.
template <class S>
struct output_field {
  S* data = nullptr;
  scanrec::strides strides{};
  write action = write::nothing;
  bool stream = false;  // bypass the caches
  bool update = false;  // add to the array when the sums are written out
  accumulators<S> sums;

  SCANREC_HD SCANREC_INLINE bool present() const { return action != write::nothing; }
  SCANREC_HD SCANREC_INLINE bool summed() const {
    return action == write::sum_time || action == write::sum_site;
  }

  /// Stores or adds one value per lane. `running` is the caller's running sum for this output.
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void put(position<Axis, Assume> at, Lane value, Lane& running) const {
    if (Assume != assume::plain && action == write::sum_time)
      running = running + value;
    else
      put(at, value);
  }
  /// Overload for outputs that are never summed over time.
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void put(position<Axis, Assume> at, Lane value) const {
    if (Assume == assume::plain || action == write::store) [[likely]] {
      save(at, value);
    } else if (action == write::sum_site) {
      // Packs that are joined side by side never get here: see run_inside in
      // kernels_by_channel.hpp.
      if constexpr (Axis == lane_axis::time ||
                    simd::lane_count<Lane> <= simd::lanes_v<compute_t<S>>)
        sums.add(at, value);
    } else if (at.rarely(action != write::nothing)) {
      add_to_old(*this, at, value);
    }
  }
  /// Stores one value per lane if the array is present. This function is for outputs that are not
  /// gradients.
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void store(position<Axis, Assume> at, Lane value) const {
    if (Assume == assume::plain || action == write::store) [[likely]]
      save(at, value);
  }
  /// Adds a running lane to the accumulators and clears it.
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void flush(position<Axis, Assume> at, Lane& running) const {
    if (action != write::sum_time) return;
    sums.add(at, running);
    running = simd::constant<Lane>(0);
  }

  SCANREC_HD SCANREC_INLINE void bind(std::int64_t group, std::int64_t batch) {
    data += group * strides.group + batch * strides.batch;
    sums.offset += group * sums.strides.group + batch * sums.strides.batch;
  }
  SCANREC_HD SCANREC_INLINE void seek(std::int64_t time, std::int64_t channel) {
    data += time * strides.time + channel * strides.channel;
  }

 private:
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void save(position<Axis, Assume> at, Lane value) const {
    if constexpr (simd::lane_count<Lane> == 1) {
      simd::store_one(data + (at.row * strides.time + at.index * strides.channel), value);
    } else {
      S* to = data + (at.row * strides.time + at.index);
      const bool reversed = Axis == lane_axis::time && at.reversed;
      if (at.lacks_lanes(simd::lane_count<Lane>))
        simd::store_some(to, value, at.count);
      else if (stream)
        simd::stream_unit(to, value, reversed);
      else
        simd::store_unit(to, value, reversed);
    }
  }
  // Takes the field by value, so that the caller's fields stay in registers.
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_NOINLINE static void add_to_old(output_field out, position<Axis, Assume> at,
                                                     Lane value) {
    const input_field<S> old{out.data, out.strides};
    out.save(at, value + old.template load<Lane>(at));
  }
};

/// An output that may be absent even where kernels assume that all outputs are stored. This costs a
/// test per step and saves a second kernel.
template <class S>
struct output_if_given : output_field<S> {
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void store(position<Axis, Assume> at, Lane value) const {
    if (this->action == write::store) output_field<S>::store(at, value);
  }
};
template <class Field>
inline constexpr bool is_output_if_given = false;
template <class S>
inline constexpr bool is_output_if_given<output_if_given<S>> = true;

/// An input array with one value per sequence, such as initial states.
template <class V>
struct state_input {
  const V* data = nullptr;
  scanrec::strides strides{};

  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane load_or_zero(position<Axis, Assume> at) const {
    if (!data) return simd::constant<Lane>(0);
    return simd::load<Lane>(data + at.channel * strides.channel, strides.channel, at.count);
  }
  SCANREC_HD SCANREC_INLINE void bind(std::int64_t group, std::int64_t batch) {
    data += group * strides.group + batch * strides.batch;
  }
};

/// An output array with one value per sequence, such as final states.
template <class V>
struct state_output : output_field<V> {
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void put(position<Axis, Assume> at, Lane value) const {
    V* to = this->data + at.channel * this->strides.channel;
    const std::int64_t stride = this->strides.channel;
    if (this->action == write::store)
      simd::store(to, stride, at.count, value);
    else if (this->action == write::add)
      simd::store(to, stride, at.count, value + simd::load<Lane>(to, stride, at.count));
    else if (this->action == write::sum_site)
      this->sums.add(at, value);
  }
};

/// The lanes of `field` one step later (`Shift` = 1) or earlier (-1) in scan order. If `edge`, one
/// of these steps is outside of the sequence, and its value is that of `beyond`.
template <int Shift, class Lane, class S, class V, lane_axis Axis, assume Assume>
SCANREC_HD SCANREC_INLINE Lane load_shifted(const input_field<S>& field,
                                            const state_input<V>& beyond, position<Axis, Assume> at,
                                            bool edge) {
  if (!at.rarely(edge)) return field.template load_neighbour<Lane>(at, Shift);
  if constexpr (steps_of<Lane, Axis> == 1) {
    return beyond.template load_or_zero<Lane>(at);
  } else {
    auto one = beyond.template load_or_zero<simd::scalar_of<Lane>>(
        position<Axis>{.time = at.time, .channel = at.channel});
    Lane own = field.template load_or_zero<Lane>(at), other = simd::splat<Lane>(one);
    if constexpr (Shift > 0)
      return simd::slide_in<steps_of<Lane, Axis> - 1>(own, other);
    else
      return simd::slide_in<1>(other, own);
  }
}

/// The checkpoints stored by a forward call.
template <class V>
struct checkpoint_input {
  const V* data = nullptr;
  scanrec::strides strides{};

  SCANREC_HD void bind(std::int64_t group, std::int64_t batch) {
    data += group * strides.group + batch * strides.batch;
  }
  /// The states before a checkpoint interval of the forward scan. Intervals are counted from the
  /// end of that scan.
  SCANREC_HD [[nodiscard]] state_input<V> before_interval(std::int64_t interval) const {
    return {data + interval * strides.time, strides};
  }
};

/// An array whose elements are loaded and stored without conversion.
template <class E>
struct element_field {
  E* data = nullptr;
  scanrec::strides strides{};

  template <class Position>
  SCANREC_HD SCANREC_INLINE E& operator[](Position at) const {
    return data[at.row * strides.time + at.index * strides.channel];
  }
  SCANREC_HD SCANREC_INLINE void bind(std::int64_t group, std::int64_t batch) {
    data += group * strides.group + batch * strides.batch;
  }
  SCANREC_HD SCANREC_INLINE void seek(std::int64_t time, std::int64_t channel) {
    data += time * strides.time + channel * strides.channel;
  }
};

}  // namespace scanrec::inline SCANREC_ABI::recurrence

namespace scanrec::detail::inline SCANREC_ABI {

/// Lanes of the packs of R in kernels that have no packs of small vectors.
template <class R>
inline constexpr int lanes_of = R::one_by_one ? 1 : simd::lanes_v<typename R::value>;

/// Lanes of the packs of R in kernels_by_channel, the only kernels with packs of small vectors.
template <class R>
inline constexpr int run_lanes_of =
    simd::vectors_in_packs<typename R::value> && !R::any_operator ? simd::lanes_v<typename R::value>
                                                                  : lanes_of<R>;

/// Layout of the lanes in the arrays of a call: along which axis, and whether addresses descend.
struct lane_layout {
  recurrence::lane_axis along = recurrence::lane_axis::channel;
  bool reversed = false;
  bool whole = false;   // no array is staged: lanes are contiguous or all the same, or `single`
  bool single = false;  // sequences are processed one by one, without packs
  bool scalar = false;  // lanes are scalars, so their stride does not matter

  [[nodiscard]] std::int64_t unit() const { return reversed ? -1 : 1; }
  [[nodiscard]] std::int64_t stride_of(const scanrec::strides& strides) const {
    return along == recurrence::lane_axis::time ? strides.time : strides.channel;
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
