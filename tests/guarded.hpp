// SPDX-License-Identifier: BSD-3-Clause
// Arrays with random strides. Each array begins or ends at an inaccessible page. An access to that
// page ends the process, and gaps_untouched() detects writes between the elements.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <scanrec/views.hpp>

#include "reference.hpp"

namespace tested {

using reference::generator;

/// Memory between two inaccessible pages. It begins right after the first or ends right before the
/// second, at random. Its bytes are 0xff, which are NaN as floating-point numbers.
class guarded_memory {
 public:
  guarded_memory(std::size_t bytes, generator& bits) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t inside = (bytes + page - 1) / page * page;
    mapped_ = inside + 2 * page;
    void* const all = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    all_ = static_cast<std::byte*>(all);
    if (inside > 0 && mprotect(all_ + page, inside, PROT_READ | PROT_WRITE) != 0) {
      munmap(all_, mapped_);
      throw std::bad_alloc();
    }
    data_ = all_ + page + (bits() % 2 == 0 ? 0 : inside - bytes);
    if (bytes > 0) std::memset(data_, 0xff, bytes);
  }
  ~guarded_memory() { munmap(all_, mapped_); }
  guarded_memory(const guarded_memory&) = delete;
  guarded_memory& operator=(const guarded_memory&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::byte *all_, *data_;
  std::size_t mapped_;
};

/// An allocator that places each std::vector next to an inaccessible page.
template <class T>
struct guarded_allocator {
  using value_type = T;
  guarded_allocator() = default;
  template <class U>
  guarded_allocator(const guarded_allocator<U>&) {}  // NOLINT(google-explicit-constructor)

  T* allocate(std::size_t n) {
    auto memory = std::make_unique<guarded_memory>(n * sizeof(T), bits());
    T* const data = reinterpret_cast<T*>(memory->data());
    blocks()[data] = std::move(memory);
    return data;
  }
  void deallocate(T* data, std::size_t) { blocks().erase(data); }
  bool operator==(const guarded_allocator&) const { return true; }

 private:
  static generator& bits() {
    static generator all{1};
    return all;
  }
  static std::map<T*, std::unique_ptr<guarded_memory>>& blocks() {
    static std::map<T*, std::unique_ptr<guarded_memory>> all;
    return all;
  }
};
template <class T>
using guarded_vector = std::vector<T, guarded_allocator<T>>;

/// Whether strides may be zero along axes with more than one index.
enum class broadcasts { never, sometimes };

/// Random strides of either sign, with axes in any order and some gaps. No two elements share an
/// address, except along broadcast axes.
inline scanrec::strides random_strides(const scanrec::extents& shape, broadcasts allowed,
                                       generator& bits) {
  enum { group, batch, time, channel };
  std::array<int, 4> order{channel, time, batch, group};  // the innermost first
  if (bits() % 2 == 0) std::swap(order[0], order[1]);
  if (bits() % 3 == 0) std::swap(order[bits() % 4], order[bits() % 4]);
  const std::array<std::int64_t, 4> counts{shape.group, shape.batch, shape.time, shape.channel};
  std::array<std::int64_t, 4> strides{};
  std::int64_t span = bits() % 6 == 0 ? 2 : 1;
  for (const int axis : order) {
    const std::int64_t n = std::max<std::int64_t>(counts[axis], 1);
    if (allowed == broadcasts::sometimes && bits() % 6 == 0) continue;
    if (bits() % 5 == 0) span += 1 + bits() % 3;
    strides[axis] = bits() % 3 == 0 ? -span : span;
    if (n == 1 && bits() % 2 == 0) strides[axis] = 4099;  // any stride works for one index
    span *= n;
  }
  return {.batch = strides[batch],
          .time = strides[time],
          .channel = strides[channel],
          .group = strides[group]};
}

/// The memory from the lowest to the highest address of an array.
struct spanned {
  std::int64_t elements;   // size of the memory, in elements
  std::int64_t first = 0;  // position of the element with index 0
  spanned(const scanrec::extents& shape, const scanrec::strides& strides) {
    std::int64_t high = 0;
    bool empty = false;
    const auto add_axis = [&](std::int64_t n, std::int64_t stride) {
      if (stride == 0) return;  // one element, even for a sum over an empty axis
      empty = empty || n == 0;
      (stride < 0 ? first : high) += std::abs((n - 1) * stride);
    };
    add_axis(shape.group, strides.group), add_axis(shape.batch, strides.batch);
    add_axis(shape.time, strides.time), add_axis(shape.channel, strides.channel);
    if (empty) first = 0;
    elements = empty ? 0 : first + high + 1;
  }
};

/// An array of random elements next to an inaccessible page.
template <class T>
class guarded {
 public:
  guarded() = default;
  guarded(const scanrec::extents& shape, const scanrec::strides& strides, generator& bits,
          bool gate = false)
      : shape_(shape), strides_(strides) {
    const spanned span(shape, strides);
    bytes_ = static_cast<std::size_t>(span.elements) * sizeof(T);
    memory_ = std::make_shared<guarded_memory>(bytes_, bits);
    data_ = reinterpret_cast<T*>(memory_->data()) + span.first;
    owned_ = std::make_unique<bool[]>(bytes_ + 1);
    each([&](T& element) {
      element = random_element(bits, gate);
      const auto at = reinterpret_cast<std::byte*>(&element) - memory_->data();
      std::fill_n(owned_.get() + at, sizeof(T), true);
    });
  }

  [[nodiscard]] scanrec::sequence_view<T> view() const {
    return memory_ ? scanrec::sequence_view<T>(data_, shape_, strides_)
                   : scanrec::sequence_view<T>();
  }
  [[nodiscard]] scanrec::state_view<T> state() const {
    return memory_ ? scanrec::state_view<T>(data_, shape_, strides_) : scanrec::state_view<T>();
  }
  /// Calls f(element) once for every element in memory; broadcast axes count as one index.
  template <class F>
  void each(F f) const {
    const auto count = [](std::int64_t n, std::int64_t stride) { return stride == 0 ? 1 : n; };
    for (std::int64_t g = 0; g < count(shape_.group, strides_.group); ++g)
      for (std::int64_t b = 0; b < count(shape_.batch, strides_.batch); ++b)
        for (std::int64_t t = 0; t < count(shape_.time, strides_.time); ++t)
          for (std::int64_t c = 0; c < count(shape_.channel, strides_.channel); ++c)
            f(data_[g * strides_.group + b * strides_.batch + t * strides_.time +
                    c * strides_.channel]);
  }
  /// Whether the gaps between the elements are unchanged.
  [[nodiscard]] bool gaps_untouched() const {
    for (std::size_t i = 0; i < bytes_; ++i)
      if (!owned_[i] && memory_->data()[i] != std::byte{0xff}) return false;
    return true;
  }
  [[nodiscard]] bool all_finite() const {
    bool finite = true;
    each([&](const T& element) {
      each_number(element, [&](const auto& x) { finite = finite && is_finite(x); });
    });
    return finite;
  }
  /// The bytes of the elements, in the order of the axes.
  [[nodiscard]] std::string elements() const {
    std::string all;
    each([&](const T& x) { all.append(reinterpret_cast<const char*>(&x), sizeof(T)); });
    return all;
  }

 private:
  /// Calls f(number) for all numbers of an element, which may be a vector or a matrix (by rows).
  template <class E, class F>
  static void each_number(E& x, F f) {
    if constexpr (std::is_array_v<E>)
      for (auto& part : x) each_number(part, f);
    else if constexpr (requires { x.at; })
      each_number(x.at, f);
    else
      f(x);
  }
  template <class E>
  static bool is_finite(const E& x) {
    if constexpr (requires { x.imag(); })
      return is_finite(x.real()) && is_finite(x.imag());
    else if constexpr (std::is_integral_v<E>)
      return true;
    else
      return std::isfinite(reference::widened(x));
  }
  static T random_element(generator& bits, bool gate) {
    T x{};
    each_number(x, [&]<class E>(E& number) {
      if constexpr (std::is_same_v<E, bool>)
        number = bits() % 6 == 0;
      else
        number = reference::array<E>::random(bits, gate);
      // Halved, so that products of matrices stay in range.
      if constexpr (!std::is_same_v<E, T> && !std::is_integral_v<E>) number *= E(0.5f);
    });
    return x;
  }

  scanrec::extents shape_{0, 0, 0, 0};
  scanrec::strides strides_{};
  std::size_t bytes_ = 0;
  std::shared_ptr<guarded_memory> memory_;
  T* data_ = nullptr;
  std::shared_ptr<bool[]> owned_;
};

/// Random extents around the sizes of packs, tiles and checkpoint intervals, with at most 10,000
/// elements.
inline scanrec::extents random_extents(generator& bits) {
  const auto one_of = [&](const auto&... values) {
    const std::int64_t all[]{values...};
    return all[bits() % sizeof...(values)];
  };
  for (;;) {
    const scanrec::extents shape{
        .batch = one_of(1, 1, 2, 3, 5),
        .time = one_of(0, 1, 2, 3, 15, 16, 17, 31, 33, 48, 65, 66, 100, 127, 128, 129, 130, 260),
        .channel = one_of(1, 1, 2, 3, 7, 8, 15, 16, 17, 19, 31, 33, 48, 64, 65, 70, 129),
        .group = one_of(1, 1, 1, 1, 2, 3)};
    if (scanrec::detail::element_count(shape) <= 10000) return shape;
  }
}

/// Makes the arrays of one problem with random layouts.
class guarded_layouts {
 public:
  scanrec::extents shape;
  scanrec::direction order;
  std::string text;

  explicit guarded_layouts(unsigned number) : bits_{number * 7919ULL + 1} {
    shape = random_extents(bits_);
    dense_ = bits_() % 3 == 0;
    order = bits_() % 2 == 0 ? scanrec::direction::forward : scanrec::direction::reverse;
    text = "case " + std::to_string(number) + ", " + scanrec::to_string(shape) +
           (order == scanrec::direction::reverse ? ", reverse" : "");
  }
  [[nodiscard]] bool one_in(unsigned n) { return bits_() % n == 0; }

  template <class T>
  guarded<T> input(const char* name, bool gate = false) {
    return make<T>(name, shape, broadcasts::sometimes, gate);
  }
  template <class T>
  guarded<T> output(const char* name) {
    return make<T>(name, shape, broadcasts::never, false);
  }
  /// A gradient, which may be a sum over broadcast axes.
  template <class T>
  guarded<T> gradient(const char* name) {
    return make<T>(name, shape, one_in(2) ? broadcasts::sometimes : broadcasts::never, false);
  }
  template <class V>
  guarded<V> state(const char* name, broadcasts allowed) {
    return make<V>(name, one_step(), allowed, false);
  }
  /// An array of any extents.
  template <class T>
  guarded<T> made(const char* name, const scanrec::extents& of) {
    return make<T>(name, of, broadcasts::never, false);
  }
  /// A reset mask of shape (batch, time or time + 1, 1 or channel), or an absent one.
  guarded<bool> resets() {
    if (one_in(3)) return {};
    scanrec::extents mask_shape = shape;
    mask_shape.time += one_in(2) ? 1 : 0;
    if (one_in(2)) mask_shape.channel = 1;
    return make<bool>("resets", mask_shape, broadcasts::sometimes, false);
  }

 private:
  [[nodiscard]] scanrec::extents one_step() const {
    scanrec::extents one = shape;
    one.time = 1;
    return one;
  }
  template <class T>
  guarded<T> make(const char* name, const scanrec::extents& of, broadcasts allowed, bool gate) {
    // In some cases most arrays are contiguous, which selects the fastest kernels.
    const scanrec::strides strides = dense_ && bits_() % 4 != 0
                                         ? scanrec::channels_last(of)
                                         : random_strides(of, allowed, bits_);
    text += std::string("; ") + name + " " + std::to_string(strides.group) + ", " +
            std::to_string(strides.batch) + ", " + std::to_string(strides.time) + ", " +
            std::to_string(strides.channel);
    return guarded<T>(of, strides, bits_, gate);
  }

  generator bits_;
  bool dense_ = false;
};

}  // namespace tested
