// SPDX-License-Identifier: BSD-3-Clause
// Checks of the arguments of layers: batch, sizes of gradients, and arrays that share memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include <scanrec/error.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// An argument of a layer, or a part of one, and its range of memory.
struct named_memory {
  const char* name;
  const void* object;
  const std::byte *begin, *end;
};
/// Describes the memory of an Eigen matrix, a std::vector or a std::span.
template <class Array>
named_memory memory_of(const char* name, const Array& a) {
  const auto* const first = reinterpret_cast<const std::byte*>(a.data());
  std::int64_t count = static_cast<std::int64_t>(a.size());
  if constexpr (requires { a.outerStride(); })
    if (count > 0) count = (a.outerSize() - 1) * a.outerStride() + a.innerSize();
  return {name, &a, first, first + count * static_cast<std::int64_t>(sizeof(*a.data()))};
}

/// Throws argument_error if an argument is the same object as one of the others or overlaps it.
inline void check_apart(const char* call, const named_memory& argument,
                        std::initializer_list<named_memory> others) {
  for (const named_memory& other : others)
    if (argument.object == other.object ||
        (argument.begin < other.end && other.begin < argument.end))
      throw argument_error(call, argument.name, std::string("memory apart from ") + other.name,
                           "memory shared with it");
}

/// Calls f(std::span) for every array of weights or gradients. f must not change the numbers.
template <class Parameters, class F>
void for_arrays(const Parameters& parameters, F f) {
  const_cast<Parameters&>(parameters).for_each(f);
}
/// Throws argument_error if an argument overlaps an array of weights or gradients.
template <class Parameters>
void check_apart(const char* call, const named_memory& argument, const char* name,
                 const Parameters& parameters) {
  for_arrays(parameters,
             [&](auto numbers) { check_apart(call, argument, {memory_of(name, numbers)}); });
}

/// Throws argument_error if the batch is less than 1.
inline void check_batch(const std::string& call, std::int64_t batch) {
  if (batch < 1) throw argument_error(call, "batch", "1 or more", std::to_string(batch));
}
/// Throws argument_error if the gradients are the weights themselves, or have other sizes.
template <class Parameters>
void check_gradients(const char* call, const Parameters& gradients, const Parameters& weights) {
  if (&gradients == &weights)
    throw argument_error(call, "gradients", "parameters other than the layer's weights",
                         "the weights");
  const auto sizes_of = [](const Parameters& parameters) {
    std::vector<std::size_t> sizes;
    for_arrays(parameters, [&](auto numbers) { sizes.push_back(numbers.size()); });
    return sizes;
  };
  if (sizes_of(gradients) != sizes_of(weights))
    throw argument_error(call, "gradients", "parameters with the layer's sizes, such as zeros()",
                         "arrays of other sizes");
}

}  // namespace scanrec::detail::inline SCANREC_ABI
