// SPDX-License-Identifier: BSD-3-Clause
// From arrays of any number of axes to the four of the C++ interface: axes that continue one
// another in every array become one; where more than three besides time are left, the shortest are
// walked from outside.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels.hpp"

namespace scanrec::native {

/// What the library does with an array, as far as its axes are concerned.
enum class role {
  sequence,       ///< read, or written at every step
  edge,           ///< one element per sequence, read or written: no time axis
  gradient,       ///< a stride of 0 receives the sum over its axis
  edge_gradient,  ///< both
};

/// The axes of a problem and of its arrays.
class axes {
 public:
  /// Throws argument_error, with the name of the call, for a problem that is none.
  axes(const char* call, const scanrec_problem& problem);

  /// An array of the problem; `result` is where run() puts it.
  /// Throws argument_error for strides that nothing can have.
  void add(const char* name, const scanrec_array& given, array& result, std::int64_t element_bytes,
           role use);

  /// Calls f(call) with the arrays in place: once, but where axes are walked from outside.
  /// clear(data, bytes) sets memory of the arrays to zero.
  void run(call c, const std::function<void(void*, std::int64_t)>& clear,
           const std::function<void(const call&)>& f);

 private:
  struct entry {
    array* result;
    char* data;
    std::vector<std::int64_t> strides;  // in elements
    std::int64_t element_bytes;
    role use;
    [[nodiscard]] bool gradient() const {
      return use == role::gradient || use == role::edge_gradient;
    }
  };

  void check_strides(const char* name, const entry& e) const;
  void drop(std::size_t axis);
  void merge();
  [[nodiscard]] bool continues(std::size_t outer, std::size_t inner) const;
  [[nodiscard]] std::vector<std::size_t> choose_walked() const;
  void clear_gradients(const std::function<void(void*, std::int64_t)>& clear) const;
  [[nodiscard]] std::vector<std::int64_t> extents_of(const entry& e) const;
  /// The bytes an array may touch, from its first element: [low, high).
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> bytes_of(const entry& e) const;
  [[nodiscard]] bool share(const entry& x, const entry& y) const;
  void refuse_shared_gradients() const;

  const char* call_;
  std::vector<std::int64_t> shape_;
  std::size_t time_;
  std::vector<entry> arrays_;
};

}  // namespace scanrec::native
