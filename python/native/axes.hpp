// SPDX-License-Identifier: BSD-3-Clause
// From arrays of any number of axes to the four of the C++ interface: axes that continue one
// another in every array become one; where more than three besides time are left, the shortest are
// processed from outside.
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
  /// Throws argument_error, with the name of the call, for a problem that is none.
  axes(const char* call, const scanrec_problem& problem);

  /// An array of the problem, which run() gives the strides that kernels take; `in_place_of` names
  /// the one whose place it may have. Throws argument_error for strides that nothing can have.
  void add(const char* name, scanrec_array& array, std::int64_t element_bytes, role use,
           const char* in_place_of);

  /// Calls f(call) with the arrays in place: once, but where axes are processed from outside. Such
  /// arrays are checked here, whole, as f checks what it sees of them. clear(data, bytes) sets
  /// memory of the arrays to zero.
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
    std::array<std::int64_t, 4> in_kernels{};  // the strides there
  };

  [[nodiscard]] std::int64_t checkpoint_steps() const;
  void check_reach(const entry& e) const;
  void drop(std::size_t axis);
  void merge();
  [[nodiscard]] bool continues(std::size_t outer, std::size_t inner) const;
  [[nodiscard]] std::vector<std::size_t> choose_outer() const;
  void clear_gradients(const std::function<void(void*, std::int64_t)>& clear) const;
  [[nodiscard]] std::vector<std::int64_t> extents_of(const entry& e) const;
  /// The bytes an array may touch, from its first element: [low, high).
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> bytes_of(const entry& e) const;
  /// Whether a gradient is a sum over one of its axes.
  [[nodiscard]] bool summed(const entry& e) const;
  [[nodiscard]] bool share(const entry& x, const entry& y) const;
  [[nodiscard]] bool same_elements(const entry& x, const entry& y) const;
  void check_offsets(const entry& e) const;
  void check_overlaps_of(const entry& written, bool cleared) const;
  /// Checks arrays whole; `cleared` says that gradients are set to zero before anything is read.
  void check_overlaps(bool cleared) const;
  void check_memory(bool cleared) const;

  const char* call_;
  std::vector<std::int64_t> shape_;
  std::size_t time_;
  bool more_resets_;
  std::vector<entry> arrays_;
};

}  // namespace scanrec::native
