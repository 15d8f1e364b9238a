// SPDX-License-Identifier: BSD-3-Clause
// Decodes call frames of XLA's foreign function interface for calls whose arrays may have different
// element types: selective scans and causal convolutions. The sizes of the problem come from the
// shapes of the buffers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

#include <scanrec/c/scanrec.h>

#include "xla_call.hpp"

namespace scanrec::native {

/// An array of a call: the member of the struct of arrays (plain or typed), and the role.
template <class Arrays>
struct typed_entry {
  constexpr typed_entry(scanrec_array Arrays::*member, role use) : plain(member), use(use) {}
  constexpr typed_entry(scanrec_typed_array Arrays::*member, role use) : typed(member), use(use) {}

  [[nodiscard]] constexpr std::size_t bytes() const {
    return typed != nullptr ? sizeof(scanrec_typed_array) : sizeof(scanrec_array);
  }

  scanrec_array Arrays::*plain = nullptr;
  scanrec_typed_array Arrays::*typed = nullptr;
  role use;
};

/// The arrays of a selective scan: those that its forward call and its adjoint both read, then
/// `own`.
template <class Arrays, std::size_t N>
constexpr auto after_what_all_read(const std::array<typed_entry<Arrays>, N>& own) {
  using a = Arrays;
  const typed_entry<a> alike[]{{&a::u, role::read},
                               {&a::delta, role::read},
                               {&a::a, role::read},
                               {&a::b, role::read},
                               {&a::c, role::read},
                               {&a::d, role::read},
                               {&a::z, role::read},
                               {&a::delta_bias, role::read},
                               {&a::intervals, role::read},
                               {&a::initial_state, role::read},
                               {&a::resets, role::read_resets}};
  constexpr std::size_t first = std::size(alike);
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<typed_entry<a>, first + N>{{(I < first ? alike[I] : own[I - first])...}};
  }
  (std::make_index_sequence<first + N>());
}

/// The arrays of a call, in the order of its struct. Arrays that are read come first.
template <class Arrays>
struct typed_call_of;

template <>
struct typed_call_of<scanrec_selective_arrays> {
  using a = scanrec_selective_arrays;
  static constexpr auto arrays = after_what_all_read<a, 3>(
      {{{&a::out, role::write}, {&a::final_state, role::write}, {&a::checkpoints, role::write}}});
};

template <>
struct typed_call_of<scanrec_selective_vjp_arrays> {
  using a = scanrec_selective_vjp_arrays;
  static constexpr auto arrays = after_what_all_read<a, 13>({{{&a::checkpoints, role::read},
                                                              {&a::out_grad, role::read},
                                                              {&a::final_grad, role::read},
                                                              {&a::u_grad, role::gradient},
                                                              {&a::delta_grad, role::gradient},
                                                              {&a::a_grad, role::gradient},
                                                              {&a::b_grad, role::gradient},
                                                              {&a::c_grad, role::gradient},
                                                              {&a::d_grad, role::gradient},
                                                              {&a::z_grad, role::gradient},
                                                              {&a::delta_bias_grad, role::gradient},
                                                              {&a::intervals_grad, role::gradient},
                                                              {&a::initial_grad, role::gradient}}});
};

template <>
struct typed_call_of<scanrec_causal_conv1d_arrays> {
  using a = scanrec_causal_conv1d_arrays;
  static constexpr std::array<typed_entry<a>, 7> arrays{{{&a::x, role::read},
                                                         {&a::weight, role::read},
                                                         {&a::bias, role::read},
                                                         {&a::initial_state, role::read},
                                                         {&a::resets, role::read_resets},
                                                         {&a::out, role::write},
                                                         {&a::final_state, role::write}}};
};

template <>
struct typed_call_of<scanrec_causal_conv1d_vjp_arrays> {
  using a = scanrec_causal_conv1d_vjp_arrays;
  static constexpr std::array<typed_entry<a>, 11> arrays{{{&a::x, role::read},
                                                          {&a::weight, role::read},
                                                          {&a::bias, role::read},
                                                          {&a::initial_state, role::read},
                                                          {&a::resets, role::read_resets},
                                                          {&a::out_grad, role::read},
                                                          {&a::final_grad, role::read},
                                                          {&a::x_grad, role::gradient},
                                                          {&a::weight_grad, role::gradient},
                                                          {&a::bias_grad, role::gradient},
                                                          {&a::initial_grad, role::gradient}}};
};

/// Whether a list has all members of its struct.
template <class Arrays>
constexpr bool has_all_members() {
  std::size_t bytes = 0;
  for (const auto& entry : typed_call_of<Arrays>::arrays) bytes += entry.bytes();
  return bytes == sizeof(Arrays);
}
static_assert(has_all_members<scanrec_selective_arrays>() &&
                  has_all_members<scanrec_selective_vjp_arrays>() &&
                  has_all_members<scanrec_causal_conv1d_arrays>() &&
                  has_all_members<scanrec_causal_conv1d_vjp_arrays>(),
              "scanrec: a list of arrays lacks a member of its struct in scanrec.h");

/// Decodes the arrays of a call frame. decode() calls note(i, dimensions, strides, dtype) for each
/// array that is present. `note` takes sizes of the problem from the array, and may change its
/// strides and type.
template <class Arrays>
class typed_decoder {
 public:
  Arrays arrays{};

 protected:
  static constexpr const auto& list = typed_call_of<Arrays>::arrays;
  static constexpr std::size_t most_axes = 4;
  using dimensions = std::span<const std::int64_t>;
  using strides = std::array<std::int64_t, most_axes>;

  /// Bit i of `operands` says whether the i-th array that is read is present. Bit i of `results`
  /// says the same of the i-th array that is written.
  template <class Note>
  void decode(const xla::call_frame& frame, std::int64_t operands, std::int64_t results,
              Note note) {
    std::size_t read = 0;
    while (!is_written(list[read].use)) ++read;
    buffer_reader inputs(frame.operands, operands), outputs(frame.results, results);
    for (std::size_t i = 0; i < list.size(); ++i)
      if (const auto* const buffer = i < read ? inputs.get(i) : outputs.get(i - read))
        put(*buffer, i, note);
  }
  static void expect_rank(bool holds) {
    if (!holds) throw bad_frame("scanrec: unexpected rank of a buffer");
  }
  template <class Member>
  static bool is(std::size_t i, Member member) {
    if constexpr (std::is_same_v<Member, scanrec_array Arrays::*>)
      return list[i].plain == member;
    else
      return list[i].typed == member;
  }

 private:
  template <class Note>
  void put(const xla::buffer& buffer, std::size_t i, Note note) {
    const dimensions extents = dimensions_of(buffer);
    expect_rank(extents.size() <= most_axes);
    std::int64_t stride = 1;
    for (std::size_t d = extents.size(); d-- > 0;) {
      strides_[i][d] = extents[d] == 1 ? 0 : stride;
      stride *= extents[d] > 0 ? extents[d] : 1;
    }
    int dtype = dtype_of(buffer);
    note(i, extents, strides_[i], dtype);
    if (list[i].typed != nullptr)
      arrays.*list[i].typed = {buffer.data, strides_[i].data(), dtype};
    else
      arrays.*list[i].plain = {buffer.data, strides_[i].data()};
  }

  std::array<strides, list.size()> strides_{};
};

/// Decodes selective scans.
template <class Arrays>
requires requires { &Arrays::delta; }
class decoded_call<Arrays> : public typed_decoder<Arrays> {
  using base = typed_decoder<Arrays>;
  using base::expect_rank, base::is, base::list, base::most_axes;

 public:
  explicit decoded_call(const xla::call_frame& frame) {
    attribute_reader attributes(frame.attributes);
    const auto operands = attributes.scalar<std::int64_t>("operands");
    const auto results = attributes.scalar<std::int64_t>("results");
    problem.groups = 1;
    problem.reverse = attributes.scalar<bool>("reverse");
    problem.softplus = attributes.scalar<bool>("softplus");
    attributes.expect_end();
    this->decode(frame, operands, results, [this](auto i, auto extents, auto& strides, int& dtype) {
      note(i, extents, strides, dtype);
    });
  }

  scanrec_selective_problem problem{};

 private:
  void note(std::size_t i, typename base::dimensions extents, typename base::strides& strides,
            int& dtype) {
    if (is(i, &Arrays::u)) {
      expect_rank(extents.size() == 3);
      problem.batch = extents[0], problem.time = extents[1], problem.channel = extents[2];
    } else if (is(i, &Arrays::a)) {
      expect_rank(extents.size() == 2);
      problem.dtype = dtype;
      problem.states = extents[1];
    } else if (is(i, &Arrays::b) || is(i, &Arrays::c)) {
      const bool of_steps = extents.size() == 4;
      (is(i, &Arrays::b) ? problem.b_of_steps : problem.c_of_steps) = of_steps;
      if (of_steps) problem.groups = extents[2];
    } else if (is(i, &Arrays::resets)) {
      expect_rank(extents.size() == 3);
      problem.more_resets = extents[1] > problem.time;
    } else if (is(i, &Arrays::checkpoints)) {
      // The buffer has the axes batch, checkpoint, state, channel. The struct swaps the last two.
      expect_rank(extents.size() == 4);
      std::swap(strides[2], strides[3]);
    }
    const bool is_complex =
        problem.dtype == SCANREC_COMPLEX64 || problem.dtype == SCANREC_COMPLEX128;
    if (is_complex && list[i].typed != nullptr && extents.size() == most_axes)
      as_real_parts(strides, dtype);
  }
  // Describes an array of complex numbers by the strides and the type of its real parts. The buffer
  // holds complex numbers, or real numbers that are real and imaginary parts in turn.
  static void as_real_parts(typename base::strides& strides, int& dtype) {
    const bool single = dtype == SCANREC_COMPLEX64;
    if (single || dtype == SCANREC_COMPLEX128) {
      dtype = single ? SCANREC_FLOAT32 : SCANREC_FLOAT64;
      for (auto& stride : strides) stride *= 2;
    } else {
      strides.back() *= 2;
    }
  }
};

/// Decodes causal convolutions.
template <class Arrays>
requires requires { &Arrays::weight; }
class decoded_call<Arrays> : public typed_decoder<Arrays> {
  using base = typed_decoder<Arrays>;
  using base::expect_rank, base::is;

 public:
  explicit decoded_call(const xla::call_frame& frame) {
    attribute_reader attributes(frame.attributes);
    const auto operands = attributes.scalar<std::int64_t>("operands");
    const auto results = attributes.scalar<std::int64_t>("results");
    problem.silu = attributes.scalar<bool>("silu");
    attributes.expect_end();
    this->decode(frame, operands, results,
                 [this](auto i, auto extents, auto&, int dtype) { note(i, extents, dtype); });
  }

  scanrec_causal_conv1d_problem problem{};

 private:
  void note(std::size_t i, typename base::dimensions extents, int dtype) {
    const bool is_weight = is(i, &Arrays::weight);
    const bool is_sequence = base::list[i].typed != nullptr;
    expect_rank(extents.size() == (is_sequence                                                ? 3
                                   : is_weight || is(i, &Arrays::resets) || is_weight_grad(i) ? 2
                                                                                              : 1));
    if (is(i, &Arrays::x)) {
      problem.batch = extents[0], problem.time = extents[1], problem.channel = extents[2];
    } else if (is_weight) {
      problem.dtype = dtype;
      problem.width = extents[1], problem.initial_steps = problem.final_steps = extents[1] - 1;
    }
  }
  static bool is_weight_grad(std::size_t i) {
    if constexpr (requires { &Arrays::weight_grad; }) return is(i, &Arrays::weight_grad);
    return false;
  }
};

}  // namespace scanrec::native
