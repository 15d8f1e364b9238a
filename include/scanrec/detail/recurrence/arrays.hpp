// SPDX-License-Identifier: BSD-3-Clause
// The list of the arrays of a recurrence, with the member and the use of each.
//
//     using arrays = array_list<reads<&vjp::gate>, reads_reset_mask<&vjp::resets>,
//                               writes<&vjp::gate_grad>, starts_from<&vjp::final_grad>>;
//
// All loops over the arrays of a recurrence follow this list. Outputs have the same order as in the
// problem of the call: sequences before values per sequence, such as final states.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <scanrec/detail/recurrence/field.hpp>
#include <scanrec/detail/recurrence/reset_field.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

/// The use of an array: a sequence that is read or written, or values per sequence that are read
/// before the first step or written after the last. Checkpoints count as such values.
enum class role { none, read, write, start, end };

/// One array, or an std::array of them: its member and its use.
template <auto Member, role Use, int Neighbour = 0, bool Optional = false, bool ResetMask = false>
struct array_entry {
  static constexpr auto member = Member;
  static constexpr role use = Use;
  /// The step at which the array is read: 0 the current, 1 the next in scan order, -1 the previous.
  static constexpr int neighbour = Neighbour;
  /// Whether an input may be absent even under assume::whole, or an output even under assume::plain
  /// (position.hpp).
  static constexpr bool optional = Optional;
  /// Whether the member is a reset_field, whose mask may also be read at a neighbour.
  static constexpr bool is_reset_mask = ResetMask;
};
struct no_array {
  static constexpr role use = role::none;
};

template <auto Member>
using reads = array_entry<Member, role::read>;
template <auto Member>
using reads_if_given = array_entry<Member, role::read, 0, true>;
template <auto Member>
using reads_next = array_entry<Member, role::read, 1>;
template <auto Member>
using reads_next_if_given = array_entry<Member, role::read, 1, true>;
template <auto Member>
using reads_previous_if_given = array_entry<Member, role::read, -1, true>;
/// The mask of a reset_field.
template <auto Member>
using reads_reset_mask = array_entry<Member, role::read, 0, false, true>;
template <auto Member>
using writes = array_entry<Member, role::write>;
template <auto Member>
using writes_if_given = array_entry<Member, role::write, 0, true>;
template <auto Member>
using starts_from = array_entry<Member, role::start>;
template <auto Member>
using ends_in = array_entry<Member, role::end>;
/// An entry that only some instances of a recurrence have.
template <bool Has, class Entry>
using only_if = std::conditional_t<Has, Entry, no_array>;

template <class... Entries>
struct array_list {};

}  // namespace scanrec::inline SCANREC_ABI::recurrence

namespace scanrec::detail::inline SCANREC_ABI {

template <class Field>
inline constexpr bool is_field_array = false;
template <class Field, std::size_t N>
inline constexpr bool is_field_array<std::array<Field, N>> = true;

template <class Entry, class Field, class F>
SCANREC_HD constexpr SCANREC_INLINE void visit_field(Field& field, F& f) {
  if constexpr (std::is_invocable_v<F&, Field&, Entry>)
    f(field, Entry{});
  else
    f(field);
}
// Everything is forced inline and unrolled. GCC treats a function that only prefetches as having no
// effect, and drops calls of it. A loop over fields that is not unrolled moves them from registers
// to memory.
template <class Entry, class R, class F>
SCANREC_HD constexpr SCANREC_INLINE void visit_entry(R& r, F& f) {
  auto& member = r.*Entry::member;
  if constexpr (is_field_array<std::remove_cvref_t<decltype(member)>>)
    [&]<std::size_t... I>(std::index_sequence<I...>) SCANREC_LAMBDA {
      (visit_field<Entry>(member[I], f), ...);
    }
  (std::make_index_sequence<std::tuple_size_v<std::remove_cvref_t<decltype(member)>>>{});
  else if constexpr (Entry::is_reset_mask) visit_field<Entry>(member.reset_mask, f);
  else visit_field<Entry>(member, f);
}
template <recurrence::role Use, class R, class F, class... Entries>
SCANREC_HD constexpr SCANREC_INLINE void visit_list(R& r, F& f,
                                                    recurrence::array_list<Entries...>) {
  const auto visit = [&]<class Entry>(Entry) SCANREC_LAMBDA {
    if constexpr (Entry::use == Use) visit_entry<Entry>(r, f);
  };
  (visit(Entries{}), ...);
}

/// These functions call f(field), or f(field, its entry in the list), for each array of one use:
/// for_reads for input sequences and reset masks, for_writes for output sequences, for_starts for
/// the values read before the first step, for_ends for those written after the last.
template <class R, class F>
SCANREC_HD constexpr SCANREC_INLINE void for_reads(R& r, F f) {
  visit_list<recurrence::role::read>(r, f, typename R::arrays{});
}
template <class R, class F>
SCANREC_HD constexpr SCANREC_INLINE void for_writes(R& r, F f) {
  visit_list<recurrence::role::write>(r, f, typename R::arrays{});
}
template <class R, class F>
SCANREC_HD constexpr SCANREC_INLINE void for_starts(R& r, F f) {
  visit_list<recurrence::role::start>(r, f, typename R::arrays{});
}
template <class R, class F>
SCANREC_HD constexpr SCANREC_INLINE void for_ends(R& r, F f) {
  visit_list<recurrence::role::end>(r, f, typename R::arrays{});
}
/// Calls f(field) for every output, in the order of the problem. Scans with an operator are left
/// out: their outputs are never sums.
template <class R, class F>
SCANREC_HD constexpr SCANREC_INLINE void for_outputs(R& r, F f) {
  if constexpr (!R::any_operator) for_writes(r, f), for_ends(r, f);
}

template <class R, class Entry>
constexpr int count_of_entry() {
  if constexpr (Entry::use == recurrence::role::read || Entry::use == recurrence::role::write) {
    using member = std::remove_cvref_t<decltype(std::declval<R&>().*Entry::member)>;
    if constexpr (is_field_array<member>) return static_cast<int>(std::tuple_size_v<member>);
    return 1;
  }
  return 0;
}
template <class Field>
constexpr int bytes_of_field(int least) {
  using stored = std::remove_cvref_t<decltype(*std::declval<Field&>().data)>;
  const int bytes = static_cast<int>(sizeof(stored));
  return std::is_same_v<stored, bool> ? 0 : bytes > least ? bytes : least;
}
template <class R, class Entry>
constexpr int bytes_of_entry(int least) {
  if constexpr (Entry::use == recurrence::role::read) {
    using member = std::remove_cvref_t<decltype(std::declval<R&>().*Entry::member)>;
    if constexpr (is_field_array<member>)
      return static_cast<int>(std::tuple_size_v<member>) *
             bytes_of_field<typename member::value_type>(least);
    else if constexpr (!Entry::is_reset_mask)
      return bytes_of_field<member>(least);
  }
  return 0;
}
template <class R, class... Entries>
constexpr int add_bytes(int least, recurrence::array_list<Entries...>) {
  return (0 + ... + bytes_of_entry<R, Entries>(least));
}
template <class Entry>
constexpr int neighbour_of_entry() {
  if constexpr (Entry::use == recurrence::role::read) return Entry::neighbour;
  return 0;
}
template <class R, class... Entries>
constexpr int count_sequences(recurrence::array_list<Entries...>) {
  return (0 + ... + count_of_entry<R, Entries>());
}
template <class... Entries>
constexpr int find_neighbour(recurrence::array_list<Entries...>) {
  int found = 0;
  ((found = neighbour_of_entry<Entries>() != 0 ? neighbour_of_entry<Entries>() : found), ...);
  return found;
}
/// Number of arrays with a time axis that a recurrence reads or writes, masks included.
template <class R>
inline constexpr int sequences_of = count_sequences<R>(typename R::arrays{});
/// Bytes that one step of one sequence reads, where an element counts as `least` bytes or more.
/// Masks (resets, zoneout) are not counted.
template <class R>
constexpr int bytes_of_step(int least = 1) {
  return add_bytes<R>(least, typename R::arrays{});
}
/// The neighbour that a recurrence reads, reset masks aside: 0 none, 1 the next step in scan order,
/// -1 the previous step.
template <class R>
inline constexpr int halo_of = find_neighbour(typename R::arrays{});

/// A copy of the recurrence in which the fields of arrays with a time axis are moved by `time`
/// steps and `channel` channels. Forced inline, because a kernel's own copy does not stay in
/// registers if its address escapes.
template <class R>
SCANREC_HD SCANREC_INLINE R standing_at(R r, std::int64_t time, std::int64_t channel) {
  const auto seek = [=](auto& field) { field.seek(time, channel); };
  for_reads(r, seek), for_writes(r, seek);
  return r;
}
/// Moves all fields of a recurrence to one batch row.
template <class R>
SCANREC_HD SCANREC_INLINE void bind_row(R& r, std::int64_t group, std::int64_t batch) {
  const auto bind = [=](auto& field) { field.bind(group, batch); };
  for_reads(r, bind), for_writes(r, bind), for_starts(r, bind), for_ends(r, bind);
}
/// A copy of the recurrence with all its fields at one batch row.
template <class R>
SCANREC_HD R bound(R r, std::int64_t group, std::int64_t batch) {
  bind_row(r, group, batch);
  return r;
}
/// Whether the call has a reset mask.
template <class R>
SCANREC_INLINE bool any_resets(const R& r) {
  bool any = false;
  for_reads(r, [&](const auto& field, auto entry) {
    if constexpr (entry.is_reset_mask) any = any || field.present();
  });
  return any;
}
/// Whether the factor of each channel is known to be the same at all steps.
template <class R>
SCANREC_INLINE bool is_steady(const R& r) {
  if constexpr (requires { r.gate.strides, r.resets.present(); })
    return r.gate.strides.time == 0 && !r.resets.present();
  else
    return false;
}
/// Whether the factor of each step is known to be the same for all channels of a row.
template <class R>
SCANREC_INLINE bool shares_factors(const R& r) {
  if constexpr (requires { r.gate.strides, r.resets.present(); })
    return r.gate.strides.channel == 0 && !r.resets.present();
  else
    return false;
}
/// Whether an output aliases an array from which factors are computed: the gate, or any input if
/// the recurrence has no gate. Factors cannot be computed again after such an output is written.
template <class R>
SCANREC_INLINE bool overwrites_factors(const R& r) {
  bool any = false;
  const auto check = [&](const void* read) {
    for_writes(r, [&](const auto& out) { any = any || (read != nullptr && read == out.data); });
  };
  if constexpr (requires { r.gate.data; })
    check(r.gate.data);
  else
    for_reads(r, [&](const auto& field) { check(field.data); });
  return any;
}
/// Prefetches the cache lines of all inputs `gap` steps after a position.
template <class Lane, class R, class Position>
SCANREC_INLINE void prefetch(const R& r, Position at, std::int64_t gap) {
  for_reads(r, [=](const auto& field) SCANREC_LAMBDA { field.template prefetch<Lane>(at, gap); });
}

/// The values that one step of a single sequence reads.
template <class R>
using step_of = std::remove_cvref_t<
    decltype(std::declval<const R&>().template load<simd::lane_t<typename R::value, 1>>(
        recurrence::position<recurrence::lane_axis::channel>{}))>;

/// The assumptions that hold for a call. Exceptions are steps with a neighbour outside of the
/// sequence and packs with lanes past the last channel.
template <class R>
recurrence::assume assumption(const R& r, const lane_layout& layout) {
  using recurrence::assume;
  using recurrence::write;
  assume known = layout.whole ? assume::plain : assume::nothing;
  for_reads(r, [&](const auto& field, auto entry) {
    if (std::is_same_v<decltype(field), const recurrence::input_field<bool>&>) {
      if (field.present()) known = assume::nothing;  // masks, which are rare
    } else if (!field.present() && !entry.optional) {
      known = assume::nothing;
    } else if (!field.present() || (!layout.scalar && layout.stride_of(field.strides) == 0)) {
      known = std::min(known, assume::whole);
    }
  });
  for_writes(r, [&](const auto& field, auto entry) {
    if (field.action == write::store || (entry.optional && !field.present())) return;
    known = field.action == write::add ? assume::nothing : std::min(known, assume::whole);
  });
  return known;
}

}  // namespace scanrec::detail::inline SCANREC_ABI
