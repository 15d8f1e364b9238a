// SPDX-License-Identifier: BSD-3-Clause
// Fields: the arrays of a recurrence as a kernel sees them, in scan order, one lane at a time.
#pragma once

#include <cstdint>

#include <scanrec/element.hpp>
#include <scanrec/sequence_view.hpp>
#include <scanrec/simd/memory.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

/// Along which axis the lanes of a pack lie.
enum class lane_axis { channel, time };

/// What a kernel knows of the lanes at a site.
enum class reach {
  any,    // any stride, any count
  whole,  // every lane is in use, and every array's stride along the lanes is 1, -1 or 0
};

/// Where a kernel stands: lanes i < count are (time, channel + i), or (time + i, channel).
template <lane_axis Axis, reach Reach = reach::any>
struct site {
  std::int64_t time = 0;
  std::int64_t channel = 0;
  int count = 1;
};

/// A whole site also knows where it is in the arrays that share one layout (`dense` fields): most
/// calls have no others, and then one offset serves every load and store.
template <lane_axis Axis>
struct site<Axis, reach::whole> {
  std::int64_t time = 0;
  std::int64_t channel = 0;
  int count = 1;
  std::int64_t offset = 0;  // of lane 0, in elements
  std::int64_t step = 0;    // between two steps
  bool reversed = false;    // lanes lie in descending addresses

  template <class Lane>
  SCANREC_HD SCANREC_INLINE std::int64_t lowest() const {
    return reversed ? offset - (simd::lane_count<Lane> - 1) : offset;
  }
};

/// An array that is read. Strides are in scan order: a reverse scan has its time stride negated.
template <class S>
struct input_field {
  const S* data = nullptr;  // null: absent
  extents strides{0, 0, 0, 0};
  bool dense = false;   // has the strides that whole sites go by
  bool steady = false;  // constant over time; along the channels side by side

  SCANREC_HD SCANREC_INLINE bool present() const { return data != nullptr; }

  SCANREC_HD SCANREC_INLINE const S* address(std::int64_t time, std::int64_t channel) const {
    return data + (time * strides.time + channel * strides.channel);
  }
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE Lane load(site<Axis, Reach> at) const {
    if constexpr (Reach == reach::whole) {
      if (dense) [[likely]] {
        const Lane lanes = simd::load_unit<Lane>(data + at.template lowest<Lane>());
        return at.reversed ? simd::reverse_lanes(lanes) : lanes;
      }
      if (steady) {
        if constexpr (Axis == lane_axis::channel) return simd::load_unit<Lane>(data + at.channel);
      }
    }
    return simd::load<Lane>(address(at.time, at.channel), stride_along(Axis), at.count);
  }
  /// The lane, or zero if the array is absent.
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE Lane load_or_zero(site<Axis, Reach> at) const {
    return present() ? load<Lane>(at) : simd::constant<Lane>(0);
  }

  /// What stands `Shift` steps (+1 or -1, in scan order) from the lanes of `at`; at step `edge`,
  /// the last (+1) or the first (-1) of the scan, `boundary` takes the place of what is not there.
  template <int Shift, class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE Lane load_neighbour(site<Axis, Reach> at, std::int64_t edge,
                                                Lane boundary) const {
    static_assert(Shift == 1 || Shift == -1, "scanrec: a halo is one step wide");
    constexpr int lanes = simd::lane_count<Lane>;
    site<Axis, Reach> there = at;
    there.time += Shift;
    if constexpr (Reach == reach::whole) there.offset += Shift * at.step;
    if constexpr (Axis == lane_axis::channel || lanes == 1) {
      return at.time == edge ? boundary : load<Lane>(there);
    } else {
      if (edge < at.time || edge >= at.time + lanes) [[likely]]
        return load<Lane>(there);
      if constexpr (Shift == 1)
        return simd::slide_in<lanes - 1>(load<Lane>(at), boundary);
      else
        return simd::slide_in<1>(boundary, load<Lane>(at));
    }
  }

  /// Asks for the lines under the lanes of a dense array; others (broadcasts) are left alone.
  template <class Lane, lane_axis Axis>
  SCANREC_INLINE void prefetch(site<Axis, reach::whole> at) const {
    if (!dense) return;
    const auto* first = reinterpret_cast<const char*>(data + at.template lowest<Lane>());
    for (std::size_t byte = 0; byte < simd::lane_count<Lane> * sizeof(S); byte += 64)
      __builtin_prefetch(first + byte);
  }
  SCANREC_HD SCANREC_INLINE void bind(std::int64_t group, std::int64_t batch) {
    if (data) data += group * strides.group + batch * strides.batch;
  }
  /// Whether lanes along this axis can be had whole.
  bool whole_along(lane_axis axis) const {
    return !present() || (stride_along(axis) >= -1 && stride_along(axis) <= 1);
  }
  SCANREC_HD SCANREC_INLINE std::int64_t stride_along(lane_axis axis) const {
    return axis == lane_axis::time ? strides.time : strides.channel;
  }
};

/// What an output does with a value.
enum class write : std::uint8_t {
  nothing,   // absent
  store,     // data = value
  add,       // data += value
  sum_time,  // added to a running lane, which is drained into `sums` now and then
  sum_site,  // added to `sums` at once
};

/// An array that is written, or the sum over its zero-stride axes.
template <class S>
struct output_field {
  using wide = wide_t<S>;

  S* data = nullptr;
  extents strides{0, 0, 0, 0};
  write action = write::nothing;
  bool dense = false;    // has the strides that whole sites go by
  bool stream = false;   // bypass the caches
  bool update = false;   // add to what is there, when the sums are written out
  bool sequence = true;  // false: one value per sequence, written at the end

  // Accumulators in the wide type, laid out by the backend: element (t, c) is at
  // sums[offset + t * sum_strides.time + c * sum_strides.channel].
  wide* sums = nullptr;
  std::int64_t offset = 0;
  extents sum_strides{0, 0, 0, 0};

  SCANREC_HD SCANREC_INLINE bool present() const { return action != write::nothing; }
  SCANREC_HD SCANREC_INLINE bool summed() const {
    return action == write::sum_time || action == write::sum_site;
  }

  /// Takes one value per lane of `at`; `running` belongs to the caller and this output.
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE void put(site<Axis, Reach> at, Lane value, Lane& running) const {
    if (action == write::store) [[likely]]
      return save(at, value);
    if (action == write::sum_time)
      running = running + value;
    else if (action == write::add)
      save(at, value + fetch<Lane>(at));
    else if (action == write::sum_site)
      add_to_sums(at, value);
  }
  /// The same for an output that is never summed over time.
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE void put(site<Axis, Reach> at, Lane value) const {
    Lane unused = value;
    put(at, value, unused);
  }
  /// put(x * y), with the addition fused where there is one.
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE void put_product(site<Axis, Reach> at, Lane x, Lane y,
                                             Lane& running) const {
    if (action == write::store) [[likely]]
      return save(at, simd::mul(x, y));
    if (action == write::sum_time)
      running = simd::fma(x, y, running);
    else if (action == write::add)
      save(at, simd::fma(x, y, fetch<Lane>(at)));
    else if (action == write::sum_site)
      add_to_sums(at, simd::mul(x, y));
  }
  /// Moves a running lane into the accumulators.
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE void drain(site<Axis, Reach> at, Lane& running) const {
    if (action != write::sum_time) return;
    add_to_sums(at, running);
    running = simd::constant<Lane>(0);
  }

  /// Adds the lanes of `at` to the accumulators; lanes that share an accumulator are summed first.
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE void add_to_sums(site<Axis, Reach> at, Lane value) const {
    simd::add_into(sums + (offset + at.time * sum_strides.time + at.channel * sum_strides.channel),
                   Axis == lane_axis::time ? sum_strides.time : sum_strides.channel, at.count,
                   value);
  }

  SCANREC_HD SCANREC_INLINE void bind(std::int64_t group, std::int64_t batch) {
    if (data) data += group * strides.group + batch * strides.batch;
    offset += group * sum_strides.group + batch * sum_strides.batch;
  }
  bool whole_along(lane_axis axis) const {
    return !sequence || !present() || summed() || stride_along(axis) == 1 ||
           stride_along(axis) == -1;
  }
  SCANREC_HD SCANREC_INLINE std::int64_t stride_along(lane_axis axis) const {
    return axis == lane_axis::time ? strides.time : strides.channel;
  }

 private:
  SCANREC_HD SCANREC_INLINE S* address(std::int64_t time, std::int64_t channel) const {
    return data + (time * strides.time + channel * strides.channel);
  }
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE void save(site<Axis, Reach> at, Lane value) const {
    if constexpr (Reach == reach::whole) {
      if (dense) [[likely]]
        return simd::store_unit(data + at.template lowest<Lane>(),
                                at.reversed ? simd::reverse_lanes(value) : value, stream);
    }
    simd::store(address(at.time, at.channel), stride_along(Axis), at.count, value, stream);
  }
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE Lane fetch(site<Axis, Reach> at) const {
    return simd::load<Lane>(address(at.time, at.channel), stride_along(Axis), at.count);
  }
};

/// Whether a problem has resets: with them the operator is segmented.
enum class resets { absent, present };

/// Where the scan is cut. A reset at step t cuts the link between t - 1 and t, whichever way the
/// scan runs; seen from a scan that crosses the link the other way, the mark is one step off.
struct cut_field {
  input_field<bool> marks;
  int shift = 0;  // 0: the mark of this step; -1 or +1: of its neighbour in scan order
  std::int64_t steps = 0;

  template <class Mask, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE Mask load(site<Axis, Reach> at) const {
    if (shift == 0) return marks.load<Mask>(at);
    const Mask linked = simd::constant<Mask>(0);
    return shift < 0 ? marks.load_neighbour<-1>(at, 0, linked)
                     : marks.load_neighbour<1>(at, steps - 1, linked);
  }
};

}  // namespace scanrec::inline SCANREC_ABI::recurrence
