// SPDX-License-Identifier: BSD-3-Clause
// Decodes the call frame of XLA's foreign function interface into a selective scan. The sizes of
// the problem are those of the buffers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

#include <scanrec/c/scanrec.h>

#include "xla_call.hpp"

namespace scanrec::native {

/// An array of a selective scan: which member of its struct it is, and what becomes of it.
template <class Arrays>
struct selective_entry {
  constexpr selective_entry(scanrec_array Arrays::*member, role use) : plain(member), use(use) {}
  constexpr selective_entry(scanrec_typed_array Arrays::*member, role use)
      : typed(member), use(use) {}

  [[nodiscard]] constexpr std::size_t bytes() const {
    return typed != nullptr ? sizeof(scanrec_typed_array) : sizeof(scanrec_array);
  }

  scanrec_array Arrays::*plain = nullptr;
  scanrec_typed_array Arrays::*typed = nullptr;
  role use;
};

/// What every call reads first, and then what is its own.
template <class Arrays, std::size_t N>
constexpr auto after_what_all_read(const std::array<selective_entry<Arrays>, N>& own) {
  using a = Arrays;
  const selective_entry<a> alike[]{{&a::u, role::read},
                                   {&a::delta, role::read},
                                   {&a::a, role::read},
                                   {&a::b, role::read},
                                   {&a::c, role::read},
                                   {&a::skip, role::read},
                                   {&a::z, role::read},
                                   {&a::delta_bias, role::read},
                                   {&a::intervals, role::read},
                                   {&a::initial_state, role::read},
                                   {&a::resets, role::read_resets}};
  constexpr std::size_t first = std::size(alike);
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<selective_entry<a>, first + N>{{(I < first ? alike[I] : own[I - first])...}};
  }
  (std::make_index_sequence<first + N>());
}

/// The arrays of a call, in the order of its struct: first those that are read.
template <class Arrays>
struct selective_call_of;

template <>
struct selective_call_of<scanrec_selective_arrays> {
  using a = scanrec_selective_arrays;
  static constexpr auto arrays = after_what_all_read<a, 3>(
      {{{&a::out, role::write}, {&a::final_state, role::write}, {&a::checkpoints, role::write}}});
};

template <>
struct selective_call_of<scanrec_selective_vjp_arrays> {
  using a = scanrec_selective_vjp_arrays;
  static constexpr auto arrays = after_what_all_read<a, 13>({{{&a::checkpoints, role::read},
                                                              {&a::out_grad, role::read},
                                                              {&a::final_grad, role::read},
                                                              {&a::u_grad, role::gradient},
                                                              {&a::delta_grad, role::gradient},
                                                              {&a::a_grad, role::gradient},
                                                              {&a::b_grad, role::gradient},
                                                              {&a::c_grad, role::gradient},
                                                              {&a::skip_grad, role::gradient},
                                                              {&a::z_grad, role::gradient},
                                                              {&a::delta_bias_grad, role::gradient},
                                                              {&a::intervals_grad, role::gradient},
                                                              {&a::initial_grad, role::gradient}}});
};

/// Whether a list has all members of its struct.
template <class Arrays>
constexpr bool has_all_members() {
  std::size_t bytes = 0;
  for (const auto& entry : selective_call_of<Arrays>::arrays) bytes += entry.bytes();
  return bytes == sizeof(Arrays);
}
static_assert(has_all_members<scanrec_selective_arrays>() &&
                  has_all_members<scanrec_selective_vjp_arrays>(),
              "scanrec: a list of arrays lacks a member of its struct in scanrec.h");

/// Of an array of every step in a complex problem, of complex numbers or of their parts, which are
/// side by side either way: has strides and type those of real parts.
inline void as_real_parts(std::array<std::int64_t, 4>& strides, int& dtype) {
  const bool single = dtype == SCANREC_COMPLEX64;
  if (single || dtype == SCANREC_COMPLEX128) {
    dtype = single ? SCANREC_FLOAT32 : SCANREC_FLOAT64;
    for (auto& stride : strides) stride *= 2;
  } else {
    strides.back() *= 2;
  }
}

/// Of selective scans.
template <class Arrays>
requires requires { selective_call_of<Arrays>::arrays; }
class decoded_call<Arrays> {
 public:
  explicit decoded_call(const xla::call_frame& frame) {
    attribute_reader attributes(frame.attributes);
    const auto operands = attributes.scalar<std::int64_t>("operands");
    const auto results = attributes.scalar<std::int64_t>("results");
    problem.groups = 1;
    problem.reverse = attributes.scalar<bool>("reverse");
    problem.softplus = attributes.scalar<bool>("softplus");
    attributes.expect_end();

    std::size_t read = 0;
    while (!is_written(list[read].use)) ++read;
    buffer_reader inputs(frame.operands, operands), outputs(frame.results, results);
    for (std::size_t i = 0; i < list.size(); ++i)
      if (const auto* const buffer = i < read ? inputs.get(i) : outputs.get(i - read))
        put(*buffer, i);
  }

  scanrec_selective_problem problem{};
  Arrays arrays{};

 private:
  static constexpr const auto& list = selective_call_of<Arrays>::arrays;
  static constexpr std::size_t most_axes = 4;

  /// Makes a buffer the i-th array of the call, and reads off it what it says about the problem.
  void put(const xla::buffer& buffer, std::size_t i) {
    const auto dimensions = dimensions_of(buffer);
    const auto expect_rank = [&](bool holds) {
      if (!holds) throw bad_frame("scanrec: rank");
    };
    expect_rank(dimensions.size() <= most_axes);
    auto& strides = strides_[i];
    std::int64_t stride = 1;
    for (std::size_t d = dimensions.size(); d-- > 0;) {
      strides[d] = dimensions[d] == 1 ? 0 : stride;
      stride *= dimensions[d] > 0 ? dimensions[d] : 1;
    }
    const auto is = [&](auto member) {
      if constexpr (std::is_same_v<decltype(member), scanrec_array Arrays::*>)
        return list[i].plain == member;
      else
        return list[i].typed == member;
    };
    if (is(&Arrays::u)) {
      expect_rank(dimensions.size() == 3);
      problem.batch = dimensions[0], problem.time = dimensions[1], problem.channel = dimensions[2];
    } else if (is(&Arrays::a)) {
      expect_rank(dimensions.size() == 2);
      problem.dtype = dtype_of(buffer);
      problem.states = dimensions[1];
    } else if (is(&Arrays::b) || is(&Arrays::c)) {
      const bool of_steps = dimensions.size() == 4;
      (is(&Arrays::b) ? problem.b_of_steps : problem.c_of_steps) = of_steps;
      if (of_steps) problem.groups = dimensions[2];
    } else if (is(&Arrays::resets)) {
      expect_rank(dimensions.size() == 3);
      problem.more_resets = dimensions[1] > problem.time;
    } else if (is(&Arrays::checkpoints)) {
      // Channels are contiguous in checkpoints, not states.
      expect_rank(dimensions.size() == 4);
      std::swap(strides[2], strides[3]);
    }
    int dtype = dtype_of(buffer);
    const bool is_complex =
        problem.dtype == SCANREC_COMPLEX64 || problem.dtype == SCANREC_COMPLEX128;
    if (is_complex && list[i].typed != nullptr && dimensions.size() == most_axes)
      as_real_parts(strides, dtype);
    if (list[i].typed != nullptr)
      arrays.*list[i].typed = {buffer.data, strides.data(), dtype};
    else
      arrays.*list[i].plain = {buffer.data, strides.data()};
  }

  std::array<std::array<std::int64_t, most_axes>, list.size()> strides_{};
};

}  // namespace scanrec::native
