// SPDX-License-Identifier: BSD-3-Clause
// problem_builder, which turns the arguments of a call into a checked problem in scan order and
// into fields.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <scanrec/concepts.hpp>
#include <scanrec/detail/problem/check.hpp>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/check_recurrence.hpp>
#include <scanrec/detail/recurrence/field.hpp>
#include <scanrec/detail/recurrence/sizes.hpp>
#include <scanrec/element.hpp>
#include <scanrec/options.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/views.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Collects the arrays of a call into a problem, and returns them as fields in scan order.
class problem_builder {
 public:
  problem_builder(const char* name, const extents& shape) {
    problem_.call = name;
    problem_.shape = shape;
  }

  template <class T>
  int add(const char* name, const sequence_view<T>& view, access use) {
    return insert(name, view, use, true, !view.absent());
  }
  template <class T>
  int add(const char* name, const state_view<T>& view, access use) {
    return insert(name, view, use, false, !view.absent());
  }
  int add(const char* name, none_t, access use) {
    return insert(name, sequence_view<const char>{}, use, true, false);
  }
  int add_resets(const sequence_view<const bool>& view) {
    const int index = add("resets", view, access::read);
    array_use& resets = problem_.arrays[index];
    resets.one_channel_will_do = resets.one_step_more_will_do = resets.makes_factor = true;
    return index;
  }
  /// Adds an array from which the factors of the maps are computed.
  template <class Array>
  int add_factor(const char* name, const Array& array) {
    const int index = add(name, array, access::read);
    problem_.arrays[index].makes_factor = true;
    return index;
  }
  /// Adds the checkpoints of a call.
  template <class T>
  int add_checkpoints(const char* name, const sequence_view<T>& view, access use) {
    const bool any = memory::checkpoint_extents(problem_.shape).time > 0;
    const int index = insert(name, view, use, false, any || !view.absent());
    problem_.arrays[index].checkpoints = true;
    return index;
  }
  /// Throws argument_error if the array is absent.
  void require(int index, const char* why) const {
    const array_use& array = problem_.arrays[index];
    if (!array.given) refuse(problem_, array, why, "none");
  }

  /// Checks all arrays, then brings them to scan order for the recurrence R, which runs in
  /// direction `order`.
  template <class R, std::size_t N = 0>
  void prepare(direction order, const std::array<in_place_pair, N>& may_alias = {},
               update gradients = update::overwrite);

  [[nodiscard]] const problem& described() const { return problem_; }
  [[nodiscard]] std::int64_t steps() const { return problem_.shape.time; }

  template <class S>
  recurrence::input_field<S> input(int index) const {
    const array_use& array = problem_.arrays[index];
    if (!array.data) return {};
    return {reinterpret_cast<const S*>(array.data), array.strides};
  }
  template <class S>
  recurrence::output_field<S> output(int index) const {
    recurrence::output_field<S> out;
    fill(out, problem_.arrays[index]);
    return out;
  }
  template <class V>
  recurrence::state_input<V> start(int index) const {
    const array_use& array = problem_.arrays[index];
    if (!array.data) return {};
    return {reinterpret_cast<const V*>(array.data), array.strides};
  }
  template <class V>
  recurrence::state_output<V> end(int index) const {
    recurrence::state_output<V> out;
    fill(out, problem_.arrays[index]);
    return out;
  }
  /// The checkpoints of the forward call.
  template <class V>
  recurrence::checkpoint_input<V> checkpoints(int index) const {
    const array_use& array = problem_.arrays[index];
    if (!array.data) return {};
    return {reinterpret_cast<const V*>(array.data), array.strides};
  }
  /// An array of elements of an operator, which are copied as bytes.
  template <class E>
  recurrence::element_field<E> elements(int index) const {
    const array_use& array = problem_.arrays[index];
    if (!array.data) return {};
    return {reinterpret_cast<E*>(const_cast<std::byte*>(array.data)), array.strides};
  }
  /// The resets. `call` is the direction of the forward call, even if this call is its adjoint.
  /// `adjoint` is true for scans that run in the opposite direction.
  recurrence::reset_field resets(int index, direction call, bool adjoint) const {
    return recurrence::resets_of(input<bool>(index), call, adjoint, steps(),
                                 problem_.arrays[index].one_step_more);
  }

 private:
  template <class View>
  int insert(const char* name, const View& view, access use, bool is_sequence, bool given) {
    using element_t = std::remove_const_t<std::remove_pointer_t<decltype(view.data)>>;
    array_use& array = problem_.arrays[problem_.count];
    describe_view(array, name, view, use);
    if constexpr (element<element_t>) array.wide_bytes = sizeof(wide_t<element_t>);
    array.sequence = is_sequence;
    array.given = given;
    return problem_.count++;
  }
  template <class S>
  void fill(recurrence::output_field<S>& out, const array_use& array) const {
    using recurrence::write;
    if (!array.given) return;
    out.data = reinterpret_cast<S*>(const_cast<std::byte*>(array.data));
    if (out.data) out.strides = array.strides;
    out.update = problem_.update && array.use == access::accumulate;
    out.action = out.update ? write::add : write::store;
    out.stream = !array.in_place && !out.update && array.sequence;
    if (summed(array))
      out.action =
          broadcast_along(array, axis::time) && array.sequence ? write::sum_time : write::sum_site;
  }

  problem problem_;
};

// Not inline, so that `extern template` can prevent its instantiation.
template <class R, std::size_t N>
void problem_builder::prepare(direction order, const std::array<in_place_pair, N>& may_alias,
                              update gradients) {
  check_recurrence<R>();
  check_arguments(problem_, may_alias);
  problem_.update = gradients == update::accumulate;
  for (array_use& array : problem_) {
    if (array.one_channel_will_do && array.given && array.shape.channel == 1) {
      array.shape.channel = problem_.shape.channel;
      array.strides.channel = 0;
    }
    // The stride of an axis with one position has no meaning, and plans must not depend on it.
    for (const axis a : all_axes)
      if (along(array.shape, a) == 1) along(array.strides, a) = 0;
    if (array.one_step_more_will_do && array.given && array.shape.time == steps() + 1) {
      array.shape.time = steps();
      array.one_step_more = true;
    }
    // The strides of an array without elements have not been checked. Clamp them, so that products
    // with extents stay representable; a stride of 0 stays 0.
    if (!placeless(array)) continue;
    for (const axis a : all_axes) {
      const std::int64_t most =
          most_array_bytes / array.element_bytes / std::max<std::int64_t>(along(array.shape, a), 1);
      along(array.strides, a) = std::clamp(along(array.strides, a), -most, most);
    }
  }
  to_scan_order(problem_, order == direction::reverse);
  merge_axes(problem_);
  static_cast<recurrence_sizes&>(problem_) = sizes_of<R>();
  for (const array_use& array : problem_)
    if (array.one_channel_will_do && array.data) problem_.map_bytes += reset_bytes_of<R>();
}

}  // namespace scanrec::detail::inline SCANREC_ABI
