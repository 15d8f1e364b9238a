// SPDX-License-Identifier: BSD-3-Clause
// Checks of a call's arguments: shapes, null pointers, address range, alignment, overlap.
//
// All checks run before anything is written. The first invalid argument throws argument_error.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include <scanrec/error.hpp>
#include <scanrec/memory.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

[[noreturn]] inline void refuse(const problem& p, const array_use& array, const text& expected,
                                const text& got) {
  refuse(p.call, array.name, expected, got);
}

/// Every array must have fewer bytes than this.
inline constexpr std::int64_t most_array_bytes = std::int64_t{1} << 52;

/// One axis of an array, or of the distance between elements of two arrays: `count` positions,
/// `step` bytes (or elements) apart.
struct address_term {
  std::int64_t step = 0;
  std::int64_t count = 1;  // 1 or more
};

/// Sorts a handful of terms from large to small steps.
inline void sort_by_step(address_term* terms, int count) {
  for (int i = 1; i < count; ++i)
    for (int k = i; k > 0 && terms[k].step > terms[k - 1].step; --k)
      std::swap(terms[k], terms[k - 1]);
}

/// Whether lowest <= start + sum(step[i] * k[i]) <= highest for some 0 <= k[i] < count[i].
///
/// Steps are positive and sorted from large to small. The search is short in all common layouts,
/// where steps nest: each is larger than the distance that all smaller ones span. If the search
/// visits more than `budget` nodes, the result is true; otherwise it is exact.
[[gnu::noinline]] inline bool reaches(const address_term* term, const address_term* last,
                                      std::int64_t start, std::int64_t lowest, std::int64_t highest,
                                      int& budget) {
  if (--budget < 0) return true;
  if (term == last) return lowest <= start && start <= highest;
  std::int64_t rest = 0;
  for (const address_term* t = term + 1; t != last; ++t) rest += t->step * (t->count - 1);
  // start + k * step must come within [lowest - rest, highest].
  const std::int64_t need = lowest - rest - start;
  std::int64_t k = need <= 0 ? 0 : (need + term->step - 1) / term->step;
  for (; k < term->count && start + k * term->step <= highest; ++k)
    if (reaches(term + 1, last, start + k * term->step, lowest, highest, budget)) return true;
  return false;
}

inline constexpr int reach_budget = 4096;

/// The bytes that an array spans, as offsets from its data pointer; offsets are negative for
/// negative strides.
struct byte_range {
  std::int64_t low = 0, high = 0;  // [low, high)
};
inline byte_range range_of(const array_use& array) {
  byte_range r{0, array.element_bytes};
  for (const axis a : all_axes) {
    const std::int64_t reach =
        (along(array.shape, a) - 1) * along(array.strides, a) * array.element_bytes;
    (reach < 0 ? r.low : r.high) += reach;
  }
  return r;
}

/// Whether two arrays alias element by element: same pointer, type, shape and strides.
inline bool same_elements(const array_use& x, const array_use& y) {
  if (x.data != y.data || x.type != y.type) return false;
  for (const axis a : all_axes)
    if (along(x.shape, a) != along(y.shape, a) ||
        (along(x.shape, a) > 1 && along(x.strides, a) != along(y.strides, a)))
      return false;
  return true;
}

/// Whether any byte belongs to both arrays. Interleaved slices of one buffer do not overlap. If the
/// search exceeds its budget, the result is true.
inline bool overlap(const array_use& x, const array_use& y) {
  const byte_range rx = range_of(x), ry = range_of(y);
  const auto address = [](const array_use& a) { return reinterpret_cast<std::intptr_t>(a.data); };
  const std::int64_t apart = address(y) - address(x);
  if (apart + ry.low >= rx.high || apart + ry.high <= rx.low) return false;

  // Is apart + (offset in y) - (offset in x) greater than -y.element_bytes and less than
  // x.element_bytes? Negative steps are made positive by moving the start.
  std::array<address_term, 8> terms{};
  int count = 0;
  std::int64_t start = apart;
  const auto add = [&](std::int64_t step, std::int64_t n) {
    if (n <= 1 || step == 0) return;
    if (step < 0) start += step * (n - 1);
    terms[count++] = {std::abs(step), n};
  };
  for (const axis a : all_axes) {
    // An axis with equal steps and extents contributes only the difference of the two indices.
    const std::int64_t sx = along(x.strides, a) * x.element_bytes,
                       sy = along(y.strides, a) * y.element_bytes;
    if (sx == sy && along(x.shape, a) == along(y.shape, a)) {
      if (along(x.shape, a) > 1 && sx != 0) {
        const std::int64_t n = along(x.shape, a);
        start -= std::abs(sx) * (n - 1);
        add(std::abs(sx), 2 * n - 1);
      }
    } else {
      add(sy, along(y.shape, a));
      add(-sx, along(x.shape, a));
    }
  }
  sort_by_step(terms.data(), count);
  int budget = reach_budget;
  return reaches(terms.data(), terms.data() + count, start, -(y.element_bytes - 1),
                 x.element_bytes - 1, budget);
}

/// Whether the strides other than 0 nest (see reaches). Then two elements overlap only if all their
/// indices along axes with such strides are equal.
inline bool injective(const array_use& array) {
  std::array<address_term, 4> terms{};
  int count = 0;
  for (const axis a : all_axes)
    if (along(array.shape, a) > 1 && along(array.strides, a) != 0)
      terms[count++] = {std::abs(along(array.strides, a)), along(array.shape, a)};
  sort_by_step(terms.data(), count);
  std::int64_t reach = 0;
  for (int i = count - 1; i >= 0; --i) {
    if (terms[i].step <= reach) return false;
    reach += terms[i].step * (terms[i].count - 1);
  }
  return true;
}

inline void check_array(const problem& p, const array_use& reference, const array_use& array) {
  if (!array.given) return;
  extents wanted = p.shape;
  if (array.checkpoints)
    wanted.time = memory::checkpoint_extents(wanted).time;
  else if (!array.sequence)
    wanted.time = 1;
  extents got = array.shape;
  if (array.one_channel_will_do && got.channel == 1) got.channel = wanted.channel;
  if (array.one_step_more_will_do && got.time == wanted.time + 1) got.time = wanted.time;
  if (got != wanted) {
    bool stretched = array.sequence && !array.checkpoints;
    for (const axis a : all_axes)
      stretched = stretched && (along(wanted, a) == along(got, a) || along(wanted, a) == 1);
    refuse(p, array,
           text("shape ", wanted, array.checkpoints ? ", checkpoint_extents() of '" : " as '",
                reference.name, array.checkpoints ? "'" : "' has",
                array.one_channel_will_do ? ", or 1 channel" : "",
                array.one_step_more_will_do ? ", or one step more" : "",
                stretched ? " (broadcast_to() repeats an extent of 1)" : ""),
           text(array.shape));
  }
  if (placeless(array)) return;
  const bool unread = array.use == access::read && element_count(array.shape) == 0;
  if (array.data == nullptr && !unread)
    refuse(p, array, text("a pointer to the elements of shape ", array.shape), "a null pointer");
  // Sums of offsets must stay representable.
  constexpr std::int64_t limit = std::numeric_limits<std::int64_t>::max() / 16;
  std::int64_t reach = 0;
  for (const axis a : all_axes) {
    std::int64_t bytes = 0;
    const bool wraps =
        __builtin_mul_overflow(along(array.shape, a) - 1, along(array.strides, a), &bytes) ||
        __builtin_mul_overflow(bytes, array.element_bytes, &bytes) || bytes > limit ||
        bytes < -limit;
    if (!wraps) reach += std::abs(bytes);
    if (wraps || reach > limit)
      refuse(p, array, "strides that stay within the address space",
             text("shape ", array.shape, ", strides ", array.strides));
  }
  if (unread) return;
  if (reinterpret_cast<std::uintptr_t>(array.data) % array.alignment != 0)
    refuse(p, array, text("a pointer aligned to ", array.alignment, " bytes"),
           "a misaligned pointer");
  if (array.use == access::read) return;
  if (array.use == access::write)
    for (const axis a : all_axes)
      if (broadcast_along(array, a))
        refuse(p, array, "strides that give every element its own address",
               text("a zero stride among strides ", array.strides));
  if (!injective(array))
    refuse(p, array, "nested strides, so that every element has its own address",
           text("shape ", array.shape, ", strides ", array.strides));
}

/// A pair (written, read) of arrays that may alias.
using in_place_pair = std::array<const char*, 2>;

inline bool named(const array_use& array, const char* name) {
  return std::strcmp(array.name, name) == 0;
}

/// The range of addresses of an array; empty if the array has no elements.
struct address_range {
  std::intptr_t low = 0, high = 0;  // [low, high)

  static address_range of(const array_use& array) {
    if (!array.data || placeless(array)) return {};
    const byte_range bytes = range_of(array);
    const auto start = reinterpret_cast<std::intptr_t>(array.data);
    return {start + bytes.low, start + bytes.high};
  }
  [[nodiscard]] bool meets(const address_range& other) const {
    return low < other.high && other.low < high;
  }
};

/// Refuses arrays that overlap an array that is written, unless the two may alias and have the same
/// elements. In that case, sets in_place of the written array. There are at most `Most` arrays.
template <int Most = most_arrays, class Arrays, std::size_t N>
void check_overlaps(const char* call, Arrays& arrays,
                    const std::array<in_place_pair, N>& may_alias) {
  std::array<address_range, Most> ranges;
  int count = 0;
  for (const array_use& array : arrays) ranges[count++] = address_range::of(array);
  const auto index_of = [&](const array_use& array) { return &array - &*std::begin(arrays); };
  for (array_use& written : arrays) {
    if (written.use == access::read) continue;
    for (const array_use& other : arrays) {
      if (!ranges[index_of(written)].meets(ranges[index_of(other)]) || &other == &written) continue;
      if (other.use != access::read && &other < &written) continue;  // each pair of outputs once
      bool allowed = false;
      for (const in_place_pair& pair : may_alias)
        allowed = allowed || (named(written, pair[0]) && named(other, pair[1]));
      if (allowed && same_elements(written, other) && !summed(written)) {
        written.in_place = true;
        continue;
      }
      if (!overlap(written, other)) continue;
      refuse(call, written.name,
             text("memory apart from '", other.name,
                  allowed ? "', or the same pointer, strides and type (in place)" : "'"),
             "memory that overlaps it");
    }
  }
}

/// Checks all arrays of p, the first of which determines the shape. Sets in_place of outputs that
/// alias an input.
template <std::size_t N>
void check_arguments(problem& p, const std::array<in_place_pair, N>& may_alias) {
  const array_use& reference = p.arrays[0];
  for (const axis a : all_axes)
    if (along(p.shape, a) < 0) refuse(p, reference, "extents of 0 or more", text(p.shape));
  // Every product of extents and bytes per element must stay representable, even if axes are empty
  // or broadcast.
  std::int64_t bytes = 1;
  for (const array_use& array : p) bytes = std::max(bytes, array.element_bytes);
  for (const axis a : all_axes)
    bytes = clipped_product(bytes, std::max<std::int64_t>(along(p.shape, a), 1));
  if (bytes >= most_array_bytes)
    refuse(p, reference, "fewer than 2^52 bytes (broadcast axes count in full, empty axes as 1)",
           text(p.shape));
  for (const array_use& array : p) check_array(p, reference, array);

  check_overlaps(p.call, p, may_alias);
}

}  // namespace scanrec::detail::inline SCANREC_ABI
