// SPDX-License-Identifier: BSD-3-Clause
// A call of the tiled backend that is checked and planned once, and run often.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <utility>

#include <scanrec/backends.hpp>
#include <scanrec/detail/cpu/tiled.hpp>
#include <scanrec/detail/problem/check.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Aligned bytes that a planned call owns.
class kept_memory {
 public:
  kept_memory() = default;
  kept_memory(std::int64_t bytes, std::int64_t alignment)
      : alignment_(static_cast<std::align_val_t>(alignment)) {
    if (bytes >= most_bytes) throw std::bad_alloc();
    position_ =
        static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), alignment_));
  }
  ~kept_memory() { ::operator delete(position_, alignment_); }
  kept_memory(kept_memory&& other) noexcept
      : position_(std::exchange(other.position_, nullptr)), alignment_(other.alignment_) {}
  kept_memory& operator=(kept_memory&& other) noexcept {
    std::swap(position_, other.position_), std::swap(alignment_, other.alignment_);
    return *this;
  }

  [[nodiscard]] std::byte* data() const { return position_; }

 private:
  std::byte* position_ = nullptr;
  std::align_val_t alignment_{64};
};

/// A planned call consists of a recurrence, a problem, a plan, and scratch memory.
///
/// Arrays are identified by their index in the problem. Addresses stored here are those of the
/// first step in scan order, a fixed number of bytes from the caller's pointer.
template <class R, std::size_t Pairs>
class planned_call {
 public:
  /// `may_alias`: pairs of arrays that may alias. `descending`: whether the scan runs backwards in
  /// time (see to_scan_order).
  planned_call(const tiled& backend, const R& r, const problem& p,
               const std::array<in_place_pair, Pairs>& may_alias, bool descending)
      : recurrence_(r),
        problem_(p),
        plan_(plan_for(backend, p)),
        executor_(backend.executor),
        may_alias_(may_alias) {
    for_outputs(recurrence_, [&](auto& out) { out.stream = out.stream && plan_.streaming; });
    take_scratch(backend.workspace);
    whole_ = takes_no_driver(plan_) && problem_.recomputed_bytes == 0;
    for (int i = 0; i < problem_.count; ++i) {
      const array_use& array = problem_.arrays[i];
      data_[i] = array.data;
      if (descending && array.sequence && array.data && array.shape.time > 0)
        first_step_[i] = -(array.shape.time - 1) * array.strides.time * array.element_bytes;
      if (array.data && !placeless(array)) reach_[i] = reach_of(array);
    }
    find_pairs();
  }

  void run() {
    if constexpr (!R::one_by_one)
      if (whole_) return run_whole();
    tile_schedule(kernel_table_for<R>(plan_), &recurrence_, plan_, scratch_).run(executor_);
  }

  /// Replaces the addresses of arrays. `given` has one pointer per array, in the order of the
  /// problem; null keeps the current address. Throws argument_error and changes nothing if a call
  /// with these arrays would throw. The caller then sets the fields of recurrence() from at().
  template <std::size_t N>
  void move_to(const std::array<const void*, N>& given) {
    std::array<const std::byte*, most_arrays> next;
    for (int i = 0; i < problem_.count; ++i) {
      next[i] = data_[i];
      if (given[i] == nullptr) continue;
      const array_use& array = problem_.arrays[i];
      if (!array.given)
        refuse(problem_, array, "null, since the array was absent when the call was planned",
               "a pointer");
      if (array.data == nullptr) continue;  // no elements
      if (reinterpret_cast<std::uintptr_t>(given[i]) % array.alignment != 0)
        refuse(problem_, array, text("a pointer aligned to ", array.alignment, " bytes"),
               "a misaligned pointer");
      next[i] = static_cast<const std::byte*>(given[i]) + first_step_[i];
    }
    if (!lie_apart(next)) check_apart(next);
    data_ = next;
  }
  /// The address of the first step, in scan order, of the array with this index.
  template <class T>
  T* at(int index) const {
    return reinterpret_cast<T*>(const_cast<std::byte*>(data_[index]));
  }

  R& recurrence() { return recurrence_; }
  [[nodiscard]] const tile_plan& plan() const { return plan_; }

 private:
  // Whether run_whole() can replace the schedule: one worker processes one row in one tile, with
  // lanes along channels, and without sums or non-temporal stores.
  static bool takes_no_driver(const tile_plan& plan) {
    return plan.items == 1 && plan.tiles == 1 && plan.threads == 1 && !plan.streaming &&
           plan.shape.group * plan.shape.batch == 1 && !plan.rows_together &&
           plan.lanes.along == recurrence::lane_axis::channel &&
           std::none_of(plan.sums.begin(), plan.sums.end(),
                        [](const sum_plan& sum) { return sum.active; });
  }
  void run_whole() {
    using kernel = kernels_by_channel<R>;
    auto* const slots = reinterpret_cast<typename kernel::slot*>(scratch_);
    const block all{0, plan_.shape.time, 0, plan_.shape.channel};
    kernel::begin(recurrence_, all, slots);
    kernel::run(recurrence_, all, slots, plan_);
    kernel::end(recurrence_, all, slots);
  }

  void take_scratch(const std::span<std::byte>& given) {
    if (given.data() != nullptr) {
      scratch::check(problem_, plan_.workspace_bytes, plan_.alignment, given);
      scratch_ = given.data();
      return;
    }
    own_ = kept_memory(plan_.workspace_bytes, plan_.alignment);
    scratch_ = own_.data();
  }

  // ---- replacing the addresses of arrays -------------------------------------------------------

  // The byte range of an array. If the array has a reset after the last step, the range is extended
  // by one step at both ends.
  static byte_range reach_of(const array_use& array) {
    byte_range reach = range_of(array);
    if (array.one_step_more) {
      const std::int64_t step = std::abs(array.strides.time) * array.element_bytes;
      reach.low -= step, reach.high += step;
    }
    return reach;
  }
  // Two arrays that must not overlap. The first is written, the other is read or written.
  struct pair {
    std::int8_t written, other;
    bool may_be_one;  // whether both may begin at the same address
  };
  void find_pairs() {
    for (int i = 0; i < problem_.count; ++i) {
      const array_use& written = problem_.arrays[i];
      if (written.use == access::read) continue;
      for (int k = 0; k < problem_.count; ++k) {
        array_use other = problem_.arrays[k];
        if (k == i || (other.use != access::read && k < i)) continue;
        if (reach_[i].high == reach_[i].low || reach_[k].high == reach_[k].low) continue;
        other.data = written.data;
        const bool allowed =
            std::any_of(may_alias_.begin(), may_alias_.end(), [&](const in_place_pair& names) {
              return named(written, names[0]) && named(other, names[1]);
            });
        pairs_[pair_count_++] = {static_cast<std::int8_t>(i), static_cast<std::int8_t>(k),
                                 allowed && same_elements(written, other) && !summed(written)};
      }
    }
  }
  bool lie_apart(const std::array<const std::byte*, most_arrays>& next) const {
    return std::all_of(pairs_.begin(), pairs_.begin() + pair_count_, [&](const pair& p) {
      const auto x = reinterpret_cast<std::intptr_t>(next[p.written]),
                 y = reinterpret_cast<std::intptr_t>(next[p.other]);
      const byte_range& of_x = reach_[p.written];
      const byte_range& of_y = reach_[p.other];
      return x + of_x.high <= y + of_y.low || y + of_y.high <= x + of_x.low ||
             (x == y && p.may_be_one);
    });
  }
  // The full overlap check, for interleaved arrays.
  void check_apart(const std::array<const std::byte*, most_arrays>& next) const {
    problem moved = problem_;
    for (int i = 0; i < moved.count; ++i) moved.arrays[i].data = next[i];
    check_overlaps(moved.call, moved, may_alias_);
  }

  R recurrence_;
  problem problem_;
  tile_plan plan_;
  executor executor_;
  bool whole_ = false;
  kept_memory own_;
  std::byte* scratch_ = nullptr;
  std::array<const std::byte*, most_arrays> data_{};
  std::array<std::int64_t, most_arrays> first_step_{};  // bytes from the caller's pointer
  std::array<byte_range, most_arrays> reach_{};         // in bytes, relative to data_
  std::array<pair, most_outputs * most_arrays> pairs_{};
  int pair_count_ = 0;
  std::array<in_place_pair, Pairs> may_alias_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
