// SPDX-License-Identifier: BSD-3-Clause
// Maps arrays with any number of axes to the four axes of the C++ interface. Two axes become one if
// in every array the stride of one is the stride times the extent of the other. If more than three
// axes besides time remain, a loop outside the kernels runs over the shortest ones. They are called
// outer axes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "kernels.hpp"

namespace scanrec::native {

/// The axes of a problem and of its arrays.
class axes {
 public:
  /// Throws argument_error, with the name of the call, if the shape or the time axis is invalid.
  axes(const char* call, const scanrec_problem& problem);

  /// Adds an array of the problem, unless it is absent. run() replaces its pointer and strides by
  /// those that kernels take. `in_place_of` is the name of the array that it may alias, or null.
  /// Throws argument_error for strides that leave the address space.
  void add(const char* name, scanrec_array& array, std::int64_t element_bytes, role use,
           const char* in_place_of);

  /// Calls f(call) once per position of the outer axes, or once if there are none. f checks only
  /// the part of the arrays at that position, so run() first checks all parts together. If several
  /// positions add to one gradient, run() also calls f once to check, and clears the gradients. If
  /// there are no sequences, it only clears them. clear(data, bytes) sets memory to zero.
  void run(call c, const std::function<void(void*, std::int64_t)>& clear,
           const std::function<void(const call&)>& f);

 private:
  struct entry {
    const char* name;
    const char* in_place_of;  // or null
    scanrec_array* array;
    char* data;
    std::vector<std::int64_t> strides;  // in elements
    std::int64_t element_bytes;
    role use;
    std::array<std::int64_t, 4> in_kernels{};  // the strides that kernels take
  };

  [[nodiscard]] std::int64_t checkpoint_steps() const;
  void check_reach(const entry& e) const;
  void drop(std::size_t axis);
  void merge();
  [[nodiscard]] bool continues(std::size_t outer, std::size_t inner) const;
  [[nodiscard]] std::vector<std::size_t> choose_outer() const;
  void clear_gradients(const std::function<void(void*, std::int64_t)>& clear) const;
  [[nodiscard]] std::vector<std::int64_t> extents_of(const entry& e) const;
  /// The bytes that an array spans, relative to its first element: [low, high).
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> bytes_of(const entry& e) const;
  /// Whether an array is a gradient that is summed over at least one axis.
  [[nodiscard]] bool summed(const entry& e) const;
  [[nodiscard]] bool share(const entry& x, const entry& y) const;
  [[nodiscard]] bool same_elements(const entry& x, const entry& y) const;
  void check_offsets(const entry& e) const;
  void check_overlaps_of(const entry& written, bool cleared) const;
  /// Checks that no output overlaps another array, over all positions of the outer axes, except in
  /// place. `cleared` means that gradients are set to zero before anything is read.
  void check_overlaps(bool cleared) const;
  void check_memory(bool cleared) const;

  const char* call_;
  std::vector<std::int64_t> shape_;
  std::size_t time_;
  bool more_resets_;
  std::vector<entry> arrays_;
};

}  // namespace scanrec::native
