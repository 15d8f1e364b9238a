// SPDX-License-Identifier: BSD-3-Clause
// Implements axes.hpp: merges axes, and loops over the outer ones.
#include "axes.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <scanrec/detail/problem/check.hpp>
#include <scanrec/error.hpp>
#include <scanrec/memory.hpp>

namespace scanrec::native {
namespace {

/// Calls f(first, count) for contiguous runs of elements that together cover the array. An axis
/// with a stride of 0 counts as one position.
template <class F>
void for_runs(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
              F f) {
  struct stepped {
    std::int64_t count, stride;
  };
  std::vector<stepped> axes;
  std::int64_t first = 0, run = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (strides[i] == 0 || shape[i] == 1) continue;
    if (shape[i] == 0) return;
    first += std::min<std::int64_t>(0, (shape[i] - 1) * strides[i]);
    axes.push_back({shape[i], std::abs(strides[i])});
  }
  std::sort(axes.begin(), axes.end(),
            [](const stepped& x, const stepped& y) { return x.stride < y.stride; });
  while (!axes.empty() && axes.front().stride == run) {
    run *= axes.front().count;
    axes.erase(axes.begin());
  }
  const std::function<void(std::size_t, std::int64_t)> visit = [&](std::size_t axis,
                                                                   std::int64_t offset) {
    if (axis == axes.size()) return f(offset, run);
    for (std::int64_t i = 0; i < axes[axis].count; ++i)
      visit(axis + 1, offset + i * axes[axis].stride);
  };
  visit(0, first);
}

/// "(8, 4096, 256)"
std::string text_of(const std::vector<std::int64_t>& numbers) {
  std::string text = "(";
  for (const std::int64_t n : numbers) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + ")";
}

}  // namespace

axes::axes(const char* call, const scanrec_problem& problem)
    : call_(call), more_resets_(problem.more_resets != 0) {
  if (problem.rank < 1 || problem.shape == nullptr)
    throw argument_error(call, "shape", "one axis or more", std::to_string(problem.rank));
  if (problem.axis < 0 || problem.axis >= problem.rank)
    throw argument_error(call, "axis", "an axis below " + std::to_string(problem.rank),
                         std::to_string(problem.axis));
  arrays_.reserve(most_arrays);
  shape_.assign(problem.shape, problem.shape + problem.rank);
  time_ = static_cast<std::size_t>(problem.axis);
  for (const std::int64_t extent : shape_)
    if (extent < 0)
      throw argument_error(call, "shape", "extents of 0 or more", std::to_string(extent));
  // Merging axes multiplies their extents, also if every array broadcasts along them, so the
  // product of all extents must be representable.
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape_)
    elements = detail::clipped_product(elements, std::max<std::int64_t>(extent, 1));
  if (elements >= detail::most_array_bytes)
    throw argument_error(call, "shape",
                         "fewer than 2^52 elements (broadcast axes count in full, empty axes as 1)",
                         text_of(shape_));
}

std::int64_t axes::checkpoint_steps() const {
  return memory::checkpoint_extents({.time = shape_[time_]}).time;
}

void axes::add(const char* name, scanrec_array& array, std::int64_t element_bytes, role use,
               const char* in_place_of) {
  if (array.strides == nullptr) return;
  if (is_checkpoints(use) && checkpoint_steps() == 0) return;
  entry e{name, in_place_of, &array, static_cast<char*>(array.data), {}, element_bytes, use};
  e.strides.assign(array.strides, array.strides + shape_.size());
  if (is_boundary(e.use)) e.strides[time_] = 0;
  check_reach(e);
  arrays_.push_back(std::move(e));
}

// Checks that every sum of offsets is representable.
void axes::check_reach(const entry& e) const {
  constexpr std::int64_t limit = std::numeric_limits<std::int64_t>::max() / 16;
  std::int64_t reach = 0;
  for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
    if (shape_[axis] <= 1) continue;  // the stride is not used
    std::int64_t bytes = 0;
    const bool wraps = __builtin_mul_overflow(shape_[axis] - 1, e.strides[axis], &bytes) ||
                       __builtin_mul_overflow(bytes, e.element_bytes, &bytes) || bytes > limit ||
                       bytes < -limit;
    if (!wraps) reach += std::abs(bytes);
    if (wraps || reach > limit)
      throw argument_error(call_, e.name, "strides that stay within the address space",
                           "shape " + text_of(shape_) + ", strides " + text_of(e.strides));
  }
}

void axes::run(call c, const std::function<void(void*, std::int64_t)>& clear,
               const std::function<void(const call&)>& f) {
  for (std::size_t axis = 0; axis < shape_.size(); ++axis)
    if (axis != time_ && shape_[axis] == 0) {  // there are no sequences
      clear_gradients(clear);
      return;
    }
  merge();
  const std::vector<std::size_t> outer = choose_outer();

  // The remaining axes become channel, batch and group, the innermost first.
  using detail::axis;
  constexpr std::array fields{axis::channel, axis::batch, axis::group};
  std::size_t next = 0;
  c.shape = {.time = shape_[time_]};
  for (entry& e : arrays_) {
    e.in_kernels = {e.strides[time_], 0, 0, 0};
    e.array->strides = e.in_kernels.data();
  }
  std::vector<std::int64_t> positions;
  for (std::size_t axis = shape_.size(); axis-- > 0;) {
    if (axis == time_ || std::find(outer.begin(), outer.end(), axis) != outer.end()) continue;
    detail::along(c.shape, fields[next]) = shape_[axis];
    ++next;
    for (entry& e : arrays_) e.in_kernels[next] = e.strides[axis];
  }

  for (const entry& e : arrays_)
    for (const std::size_t axis : outer)
      c.accumulate = c.accumulate || (is_gradient(e.use) && e.strides[axis] == 0);
  // A rejected call must not write anything. f checks one position of the outer axes at a time, so
  // memory that is written at one position and used at another is checked here. Overlaps in scans
  // of logarithms are also checked here, since their kernels, gated scans, have other names for the
  // arrays.
  if (!outer.empty())
    check_memory(c.accumulate);
  else if (c.logarithms != 0)
    check_overlaps(false);
  if (c.accumulate) {
    for (entry& e : arrays_) e.array->data = e.data;
    c.check_only = true;
    f(c);
    c.check_only = false;
    clear_gradients(clear);
  }
  std::vector<std::int64_t> at(outer.size());
  while (true) {
    for (entry& e : arrays_) {
      e.array->data = e.data;
      if (e.data == nullptr) continue;
      std::int64_t offset = 0;
      for (std::size_t i = 0; i < outer.size(); ++i) offset += at[i] * e.strides[outer[i]];
      e.array->data = e.data + offset * e.element_bytes;
    }
    f(c);
    std::size_t i = 0;
    while (i < outer.size() && ++at[i] == shape_[outer[i]]) at[i++] = 0;
    if (i == outer.size()) return;
  }
}

void axes::drop(std::size_t axis) {
  const auto index = static_cast<std::ptrdiff_t>(axis);
  shape_.erase(shape_.begin() + index);
  for (entry& e : arrays_) e.strides.erase(e.strides.begin() + index);
  if (axis < time_) --time_;
}

bool axes::continues(std::size_t outer, std::size_t inner) const {
  return std::all_of(arrays_.begin(), arrays_.end(), [&](const entry& e) {
    return e.strides[outer] == e.strides[inner] * shape_[inner];
  });
}

void axes::merge() {
  for (std::size_t axis = shape_.size(); axis-- > 0;)
    if (axis != time_ && shape_[axis] == 1) drop(axis);
  for (std::size_t inner = shape_.size(); inner-- > 0;)
    for (std::size_t outer = inner; inner != time_ && outer-- > 0;) {
      if (outer == time_) continue;  // axes on either side of time may continue one another
      if (!continues(outer, inner)) break;
      shape_[inner] *= shape_[outer];
      drop(outer);
      --inner;
    }
}

std::vector<std::size_t> axes::choose_outer() const {
  std::vector<std::size_t> others;
  for (std::size_t axis = 0; axis < shape_.size(); ++axis)
    if (axis != time_) others.push_back(axis);
  std::stable_sort(others.begin(), others.end(),
                   [&](std::size_t x, std::size_t y) { return shape_[x] < shape_[y]; });
  others.resize(others.size() - std::min<std::size_t>(others.size(), 3));
  return others;
}

void axes::clear_gradients(const std::function<void(void*, std::int64_t)>& clear) const {
  for (const entry& e : arrays_)
    if (is_gradient(e.use) && e.data == nullptr && bytes_of(e).second > 0)
      throw argument_error(call_, "gradients", "a pointer to the elements", "a null pointer");
  for (const entry& e : arrays_) {
    if (!is_gradient(e.use)) continue;
    for_runs(extents_of(e), e.strides, [&](std::int64_t first, std::int64_t count) {
      clear(e.data + first * e.element_bytes, count * e.element_bytes);
    });
  }
}

std::vector<std::int64_t> axes::extents_of(const entry& e) const {
  std::vector<std::int64_t> shape = shape_;
  if (is_boundary(e.use)) shape[time_] = 1;
  if (e.use == role::read_resets && more_resets_) ++shape[time_];
  if (is_checkpoints(e.use)) shape[time_] = checkpoint_steps();
  return shape;
}

std::pair<std::int64_t, std::int64_t> axes::bytes_of(const entry& e) const {
  const std::vector<std::int64_t> shape = extents_of(e);
  std::int64_t low = 0, high = e.element_bytes;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (e.strides[axis] == 0) continue;
    if (shape[axis] == 0) return {0, 0};
    const std::int64_t reach = (shape[axis] - 1) * e.strides[axis] * e.element_bytes;
    (reach < 0 ? low : high) += reach;
  }
  return {low, high};
}

bool axes::share(const entry& x, const entry& y) const {
  const auto [x_low, x_high] = bytes_of(x);
  const auto [y_low, y_high] = bytes_of(y);
  const std::int64_t apart =
      reinterpret_cast<std::intptr_t>(y.data) - reinterpret_cast<std::intptr_t>(x.data);
  if (x_low >= x_high || y_low >= y_high) return false;
  if (apart + y_low >= x_high || apart + y_high <= x_low) return false;

  // The overlap test of the C++ calls, for any number of axes. Slices of one buffer may interleave
  // without sharing elements.
  std::vector<detail::address_term> terms;
  std::int64_t start = apart;
  const auto add = [&](std::int64_t step, std::int64_t n) {
    if (n <= 1 || step == 0) return;
    if (step < 0) start += step * (n - 1);
    terms.push_back({std::abs(step), n});
  };
  const std::vector<std::int64_t> x_shape = extents_of(x), y_shape = extents_of(y);
  for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
    const std::int64_t sx = x.strides[axis] * x.element_bytes,
                       sy = y.strides[axis] * y.element_bytes;
    if (sx == sy && x_shape[axis] == y_shape[axis]) {
      if (sx == 0) continue;
      start -= std::abs(sx) * (x_shape[axis] - 1);
      add(std::abs(sx), 2 * x_shape[axis] - 1);
    } else {
      add(sy, y_shape[axis]);
      add(-sx, x_shape[axis]);
    }
  }
  detail::sort_by_step(terms.data(), static_cast<int>(terms.size()));
  int budget = detail::reach_budget;
  return detail::reaches(terms.data(), terms.data() + terms.size(), start, -(y.element_bytes - 1),
                         x.element_bytes - 1, budget);
}

bool axes::summed(const entry& e) const {
  const std::vector<std::int64_t> shape = extents_of(e);
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    if (is_gradient(e.use) && e.strides[axis] == 0 && shape[axis] != 1) return true;
  return false;
}

bool axes::same_elements(const entry& x, const entry& y) const {
  if (x.data != y.data || x.element_bytes != y.element_bytes ||
      is_boundary(x.use) != is_boundary(y.use))
    return false;
  const std::vector<std::int64_t> shape = extents_of(x);
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] > 1 && x.strides[axis] != y.strides[axis]) return false;
  return true;
}

// Checks that every element of an output has its own address. Gradients may have strides of 0, for
// sums.
void axes::check_offsets(const entry& e) const {
  if (!is_written(e.use)) return;
  const std::vector<std::int64_t> shape = extents_of(e);
  const auto refuse = [&](const char* expected, const char* what) {
    throw argument_error(
        call_, e.name, expected,
        what + std::string("shape ") + text_of(shape) + ", strides " + text_of(e.strides));
  };
  const auto [low, high] = bytes_of(e);
  if (low >= high) return;  // the array is empty
  std::vector<detail::address_term> terms;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] <= 1) continue;
    if (e.strides[axis] != 0)
      terms.push_back({std::abs(e.strides[axis]), shape[axis]});
    else if (!is_gradient(e.use))
      refuse("strides that give every element its own address", "a zero stride: ");
  }
  detail::sort_by_step(terms.data(), static_cast<int>(terms.size()));
  std::int64_t reach = 0;
  for (std::size_t i = terms.size(); i-- > 0;) {
    if (terms[i].step <= reach)
      refuse("nested strides, so that every element has its own address", "");
    reach += terms[i].step * (terms[i].count - 1);
  }
}

void axes::check_overlaps_of(const entry& written, bool cleared) const {
  for (const entry& other : arrays_) {
    if (&other == &written || other.data == nullptr) continue;
    if (is_written(other.use) && &other < &written) continue;  // each pair of outputs once
    if (!share(written, other)) continue;
    const bool may_be =
        written.in_place_of != nullptr && std::string_view(other.name) == written.in_place_of;
    if (may_be && same_elements(written, other) && !summed(written)) {
      if (!cleared) continue;
      throw argument_error(call_, written.name,
                           std::string("memory apart from '") + other.name +
                               "', since a gradient is summed over too many axes",
                           "the same memory");
    }
    throw argument_error(call_, written.name,
                         std::string("memory apart from '") + other.name +
                             (may_be ? "', or the same pointer, strides and type (in place)" : "'"),
                         "memory that overlaps it");
  }
}

void axes::check_overlaps(bool cleared) const {
  for (const entry& e : arrays_)
    if (e.data != nullptr && is_written(e.use)) check_overlaps_of(e, cleared);
}

void axes::check_memory(bool cleared) const {
  for (const entry& e : arrays_)
    if (e.data != nullptr) check_offsets(e);
  check_overlaps(cleared);
}

}  // namespace scanrec::native
