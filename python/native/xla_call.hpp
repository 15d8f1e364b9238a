// SPDX-License-Identifier: BSD-3-Clause
// From the buffers of a handler of XLA's foreign function interface to the arrays of a call: what
// handlers for CPUs and for GPUs share. Buffers have axes of extent 1 wherever they broadcast.
// Checks are made before, in Python; errors here are bugs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <xla/ffi/api/ffi.h>

#include <scanrec/c/scanrec.h>

#include "arrays.hpp"

namespace scanrec::native {

namespace ffi = xla::ffi;

/// scanrec_dtype of an element type, or -1.
inline int dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32:
      return SCANREC_FLOAT32;
    case ffi::DataType::F64:
      return SCANREC_FLOAT64;
    case ffi::DataType::C64:
      return SCANREC_COMPLEX64;
    case ffi::DataType::C128:
      return SCANREC_COMPLEX128;
    case ffi::DataType::BF16:
      return SCANREC_BFLOAT16;
    case ffi::DataType::F16:
      return SCANREC_FLOAT16;
    default:
      return -1;
  }
}

using span = ffi::Span<const std::int64_t>;

/// Turns dense buffers into arrays of a call. A buffer with one more axis than the problem, the
/// axis `stack`, is a stack of arrays that follow one another in the call.
class arrays_of_buffers {
 public:
  arrays_of_buffers(std::size_t rank, std::int64_t stack) : rank_(rank), stack_(stack) {}

  /// Puts what is in a buffer at to(0), to(1), ...; how many arrays, or 0 for one of another rank.
  template <class Buffer, class To>
  std::size_t put(const Buffer& buffer, To to) {
    const auto dimensions = buffer.dimensions();
    auto* const data = static_cast<char*>(buffer.untyped_data());
    const bool stacked = stack_ >= 0 && dimensions.size() == rank_ + 1;
    if (dimensions.size() != rank_ && !stacked) return 0;

    auto& strides = strides_.emplace_back(new std::int64_t[rank_]);
    std::int64_t stride = 1, between = 0;
    std::size_t axis = rank_;
    for (std::size_t d = dimensions.size(); d-- > 0;) {
      if (stacked && d == static_cast<std::size_t>(stack_))
        between = stride * static_cast<std::int64_t>(ffi::ByteWidth(buffer.element_type()));
      else
        strides[--axis] = dimensions[d] == 1 ? 0 : stride;
      stride *= dimensions[d];
    }
    const std::int64_t count = stacked ? dimensions[static_cast<std::size_t>(stack_)] : 1;
    for (std::int64_t i = 0; i < count; ++i)
      to(static_cast<std::size_t>(i)) = {data + i * between, strides.get()};
    return static_cast<std::size_t>(count);
  }

 private:
  std::size_t rank_;
  std::int64_t stack_;
  std::vector<std::unique_ptr<std::int64_t[]>> strides_;
};

/// The attributes of every call.
struct attributes {
  std::int64_t axis;
  bool reverse;
  span shape;
  std::int64_t stack;
  std::int64_t logarithms;
  double forget_bias;
  std::int64_t operands, results;  // bit i says whether the i-th is there
};

/// What a function of the C interfaces takes.
template <class Arrays, class... More>
Arrays arrays_taken_by(int (*)(const scanrec_problem*, const Arrays*, More...));

/// What a call returned, as XLA says it. error() has the words.
inline ffi::Error error_of(int status, const char* (*error)()) {
  switch (status) {
    case SCANREC_OK:
      return ffi::Error::Success();
    case SCANREC_BAD_ARGUMENT:
      return ffi::Error::InvalidArgument(error());
    case SCANREC_OUT_OF_MEMORY:
      return ffi::Error(ffi::ErrorCode::kResourceExhausted, error());
    default:
      return ffi::Error::Internal(error());
  }
}

/// Calls run(problem, arrays), which returns a status. error() has the words.
template <class Arrays, class Run>
ffi::Error call_on_buffers(const attributes& given, ffi::RemainingArgs args,
                           ffi::RemainingRets rets, Run run, const char* (*error)()) {
  constexpr const auto& list = call_of<Arrays>::arrays;
  constexpr std::size_t operands = count_read<Arrays>();
  const auto wrong_rank = ffi::Error::InvalidArgument("scanrec: rank");
  arrays_of_buffers made(given.shape.size(), given.stack);
  Arrays arrays{};
  const auto from = [&](std::size_t i) {
    return [&arrays, i](std::size_t k) -> scanrec_array& { return arrays.*list[i + k].member; };
  };
  int dtype = -1;
  // An axis that is none is refused by the call.
  const auto axis = static_cast<std::size_t>(given.axis);
  const std::int64_t steps = axis < given.shape.size() ? given.shape[axis] : 0;
  bool more_resets = false;
  std::size_t next = 0;
  for (std::size_t i = 0, count = 1; i < operands; i += count) {
    count = 1;
    if ((given.operands >> i & 1) == 0) continue;
    const auto buffer = args.get<ffi::AnyBuffer>(next++);
    if (buffer.has_error()) return buffer.error();
    if (dtype < 0) dtype = dtype_of(buffer->element_type());
    if ((count = made.put(*buffer, from(i))) == 0) return wrong_rank;
    if (list[i].use == role::read_resets && steps > 0)
      more_resets = buffer->dimensions()[axis] == steps + 1;
  }
  next = 0;
  for (std::size_t i = operands, count = 1; i < list.size(); i += count) {
    count = 1;
    if ((given.results >> (i - operands) & 1) == 0) continue;
    auto buffer = rets.get<ffi::AnyBuffer>(next++);
    if (buffer.has_error()) return buffer.error();
    if ((count = made.put(**buffer, from(i))) == 0) return wrong_rank;
  }

  scanrec_problem problem{};
  problem.dtype = dtype;
  problem.rank = static_cast<std::int32_t>(given.shape.size());
  problem.shape = given.shape.begin();
  problem.axis = static_cast<std::int32_t>(given.axis);
  problem.reverse = given.reverse;
  problem.plain = 1;
  problem.more_resets = more_resets;
  problem.logarithms = static_cast<std::int32_t>(given.logarithms);
  problem.forget_bias = given.forget_bias;
  return error_of(run(problem, arrays), error);
}

/// What every handler takes after its contexts.
template <class Binding>
auto with_attributes_and_buffers(Binding binding) {
  return std::move(binding)
      .template Attr<std::int64_t>("axis")
      .template Attr<bool>("reverse")
      .template Attr<span>("shape")
      .template Attr<std::int64_t>("stack")
      .template Attr<std::int64_t>("logarithms")
      .template Attr<double>("forget_bias")
      .template Attr<std::int64_t>("operands")
      .template Attr<std::int64_t>("results")
      .RemainingArgs()
      .RemainingRets();
}

}  // namespace scanrec::native

/// Defines the handler `name`, which is `run` of a function of the C interface. `binding` makes
/// what it takes.
#define SCANREC_HANDLER_OF(name, binding, run, function)                 \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* name( \
      XLA_FFI_CallFrame* frame) {                                        \
    static const auto* handler = binding().To(run<function>).release();  \
    return handler->Call(frame);                                         \
  }
#define SCANREC_HANDLER(name, function) SCANREC_HANDLER_OF(name, binding, run, function)
