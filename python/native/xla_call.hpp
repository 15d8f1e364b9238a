// SPDX-License-Identifier: BSD-3-Clause
// Decodes the call frames of XLA's foreign function interface, and reports errors to XLA. The
// handlers for CPUs and for GPUs share this header. Python has checked the arguments, so a frame
// that cannot be decoded is a bug of the package.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <vector>

#include <scanrec/c/scanrec.h>

#include "arrays.hpp"
#include "xla_ffi.hpp"

namespace scanrec::native {

/// An error to report to XLA. The message outlives the handler.
struct failure {
  xla::error_code code;
  const char* message;
};

inline failure bad_frame(const char* message) { return {xla::invalid_argument, message}; }

/// The scanrec_dtype of a buffer's elements, or -1 if scanrec has no such type.
inline int dtype_of(const xla::buffer& buffer) {
  switch (buffer.dtype) {
    case xla::f32:
      return SCANREC_FLOAT32;
    case xla::f64:
      return SCANREC_FLOAT64;
    case xla::c64:
      return SCANREC_COMPLEX64;
    case xla::c128:
      return SCANREC_COMPLEX128;
    case xla::bf16:
      return SCANREC_BFLOAT16;
    case xla::f16:
      return SCANREC_FLOAT16;
    default:
      return -1;
  }
}

inline std::span<const std::int64_t> dimensions_of(const xla::buffer& buffer) {
  return {buffer.dimensions, static_cast<std::size_t>(buffer.rank)};
}

/// Reads the attributes of a call. XLA sorts them by name, so they must be read in that order.
class attribute_reader {
 public:
  explicit attribute_reader(const xla::attributes& attributes) : attributes_(attributes) {}

  template <class T>
  T scalar(std::string_view name) {
    const auto& value = *static_cast<const xla::scalar*>(next(name, xla::scalar_attribute));
    constexpr int dtype = std::same_as<T, bool>     ? xla::pred
                          : std::same_as<T, double> ? xla::f64
                                                    : xla::s64;
    if (value.dtype != dtype) throw bad_frame("scanrec: unexpected type of an attribute");
    return *static_cast<const T*>(value.value);
  }

  void expect_end() const {
    if (next_ != attributes_.size) throw bad_frame("scanrec: too many attributes");
  }

  std::span<const std::int64_t> array(std::string_view name) {
    const auto& value = *static_cast<const xla::array*>(next(name, xla::array_attribute));
    if (value.dtype != xla::s64) throw bad_frame("scanrec: unexpected type of an attribute");
    return {static_cast<const std::int64_t*>(value.data), value.size};
  }

 private:
  const void* next(std::string_view name, int type) {
    if (next_ >= attributes_.size) throw bad_frame("scanrec: too few attributes");
    const auto i = next_++;
    const auto& found = *attributes_.names[i];
    if (std::string_view(found.data, found.size) != name || attributes_.types[i] != type)
      throw bad_frame("scanrec: unexpected name or kind of an attribute");
    return attributes_.values[i];
  }

  const xla::attributes& attributes_;
  std::int64_t next_ = 0;
};

/// Reads the operands or the results of a call. Bit i of `present` says whether the frame has the
/// i-th array that the call can read or, for results, write.
class buffer_reader {
 public:
  buffer_reader(const xla::buffers& buffers, std::int64_t present)
      : buffers_(buffers), present_(present) {}

  /// Returns the buffer of array i, or null if it is absent. Calls must have ascending i.
  const xla::buffer* get(std::size_t i) {
    if ((present_ >> i & 1) == 0) return nullptr;
    if (next_ >= buffers_.size) throw bad_frame("scanrec: too few buffers");
    return static_cast<const xla::buffer*>(buffers_.items[next_++]);
  }

 private:
  const xla::buffers& buffers_;
  std::int64_t present_;
  std::int64_t next_ = 0;
};

/// The struct of arrays that a function of the C interfaces takes.
template <class Problem, class Arrays, class... More>
Arrays arrays_taken_by(int (*)(const Problem*, const Arrays*, More...));

/// The problem and the arrays that a call frame describes.
template <class Arrays>
class decoded_call;

/// Decodes linear and gated scans. Buffers have extent 1 along axes on which they broadcast. A
/// buffer with one axis more than the problem is a stack: its axis `stack` indexes several arrays,
/// which are consecutive in call_of<Arrays>::arrays.
template <class Arrays>
requires requires { call_of<Arrays>::arrays; }
class decoded_call<Arrays> {
 public:
  explicit decoded_call(const xla::call_frame& frame) {
    attribute_reader attributes(frame.attributes);
    const auto axis = attributes.scalar<std::int64_t>("axis");
    problem.axis = static_cast<std::int32_t>(axis);
    problem.forget_bias = attributes.scalar<double>("forget_bias");
    problem.logarithms = static_cast<std::int32_t>(attributes.scalar<std::int64_t>("logarithms"));
    const auto operands = attributes.scalar<std::int64_t>("operands");
    const auto results = attributes.scalar<std::int64_t>("results");
    problem.reverse = attributes.scalar<bool>("reverse");
    const auto shape = attributes.array("shape");
    problem.rank = static_cast<std::int32_t>(shape.size());
    problem.shape = shape.data();
    problem.no_conjugate = 1;
    problem.dtype = -1;
    stack_ = attributes.scalar<std::int64_t>("stack");
    attributes.expect_end();

    constexpr const auto& list = call_of<Arrays>::arrays;
    constexpr std::size_t read = count_read<Arrays>();
    buffer_reader inputs(frame.operands, operands), outputs(frame.results, results);
    for (std::size_t i = 0, count = 1; i < list.size(); i += count) {
      const auto* const buffer = i < read ? inputs.get(i) : outputs.get(i - read);
      count = buffer != nullptr ? put(*buffer, i) : 1;
      if (buffer == nullptr) continue;
      if (problem.dtype < 0) problem.dtype = dtype_of(*buffer);
      // The call itself rejects an axis that the shape does not have.
      if (list[i].use == role::read_resets && axis >= 0 && axis < problem.rank)
        problem.more_resets = buffer->dimensions[axis] == shape[axis] + 1 && shape[axis] > 0;
    }
  }

  scanrec_problem problem{};
  Arrays arrays{};

 private:
  /// Assigns a buffer to the i-th array of the call, or a stack to the i-th and the following
  /// arrays. Returns the number of arrays assigned.
  std::size_t put(const xla::buffer& buffer, std::size_t i) {
    const auto dimensions = dimensions_of(buffer);
    const auto rank = static_cast<std::size_t>(problem.rank);
    const bool stacked = stack_ >= 0 && dimensions.size() == rank + 1;
    if (dimensions.size() != rank && !stacked)
      throw bad_frame("scanrec: unexpected rank of a buffer");
    const auto stack = static_cast<std::size_t>(stack_);
    if (stacked && stack > rank) throw bad_frame("scanrec: unexpected axis of a stack");
    const std::size_t count = stacked ? static_cast<std::size_t>(dimensions[stack]) : 1;
    constexpr auto all = call_of<Arrays>::arrays.size();
    if (count < 1 || count > all - i) throw bad_frame("scanrec: unexpected size of a stack");

    auto& strides = strides_.emplace_back(new std::int64_t[rank]);
    std::int64_t stride = 1, elements_between = 0;
    std::size_t axis = rank;
    for (std::size_t d = dimensions.size(); d-- > 0;) {
      if (stacked && d == stack)
        elements_between = stride;
      else
        strides[--axis] = dimensions[d] == 1 ? 0 : stride;
      stride *= dimensions[d];
    }
    const std::int64_t bytes_between = stacked ? elements_between * element_bytes(buffer) : 0;
    for (std::size_t k = 0; k < count; ++k)
      arrays.*call_of<Arrays>::arrays[i + k].member = {
          static_cast<char*>(buffer.data) + static_cast<std::int64_t>(k) * bytes_between,
          strides.get()};
    return count;
  }

  /// Bytes of an element of a stack.
  static std::int64_t element_bytes(const xla::buffer& buffer) {
    switch (buffer.dtype) {
      case xla::bf16:
      case xla::f16:
        return 2;
      case xla::f32:
        return 4;
      case xla::f64:
      case xla::c64:
        return 8;
      case xla::c128:
        return 16;
      default:
        throw bad_frame("scanrec: unexpected type of a stack");
    }
  }

  std::int64_t stack_ = -1;
  std::vector<std::unique_ptr<std::int64_t[]>> strides_;
};

/// Throws if a call did not return SCANREC_OK. last_error() has the message.
inline void check(int status, const char* (*last_error)()) {
  switch (status) {
    case SCANREC_OK:
      return;
    case SCANREC_BAD_ARGUMENT:
      throw failure{xla::invalid_argument, last_error()};
    case SCANREC_OUT_OF_MEMORY:
      throw failure{xla::resource_exhausted, last_error()};
    default:
      throw failure{xla::internal, last_error()};
  }
}

/// Returns a struct of the interface with its `struct_size`, which the runtime checks.
template <class Args>
Args sized(Args args) {
  args.head.struct_size = sizeof(Args);
  return args;
}

/// Destroys an error of the runtime. Returns whether there was one.
inline bool discard(const xla::api& api, xla::error* error) {
  if (error == nullptr) return false;
  auto args = sized(xla::error_destroy_args{{}, error});
  api.error_destroy(&args);
  return true;
}

/// The body of a handler: calls run(frame), and returns an error to XLA if run throws. XLA also
/// calls handlers to ask for their version of the interface. The answer is the version of the
/// runtime, but at most the newest in xla_ffi.hpp. The oldest runtimes do not pass their version.
/// For them the answer is the oldest in xla_ffi.hpp.
inline xla::error* handle(const xla::call_frame& frame, void (*run)(const xla::call_frame&)) {
  if (const auto* const asked = frame.head.extensions;
      asked != nullptr && asked->type == xla::asks_for_metadata) {
    auto& answer = *reinterpret_cast<const xla::metadata_extension*>(asked)->data;
    const int minor =
        frame.api == nullptr ? xla::oldest_minor_version : frame.api->api_version.minor;
    answer.api_version =
        sized(xla::version{{}, xla::major_version, std::min(minor, xla::newest_minor_version)});
    answer.traits = 0;
    return nullptr;
  }
  failure what{};
  try {
    if (frame.stage != xla::execute) throw bad_frame("scanrec: unexpected stage of a call");
    run(frame);
    return nullptr;
  } catch (const failure& thrown) {
    what = thrown;
  } catch (const std::bad_alloc&) {
    what = {xla::resource_exhausted, "scanrec: out of memory"};
  }
  auto args = sized(xla::error_create_args{{}, what.message, what.code});
  return frame.api->error_create(&args);
}

}  // namespace scanrec::native

/// Defines the handler `name`, which calls run<function>.
#define SCANREC_HANDLER(name, function)                                                \
  extern "C" __attribute__((visibility("default"))) scanrec::native::xla::error* name( \
      scanrec::native::xla::call_frame* frame) {                                       \
    return scanrec::native::handle(*frame, run<function>);                             \
  }
