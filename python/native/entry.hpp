// SPDX-License-Identifier: BSD-3-Clause
// The code that entry points of the C interfaces share. It checks arguments, runs the call for
// their type, and turns exceptions into status codes. For linear and gated scans it maps the arrays
// to four axes.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <scanrec/error.hpp>

#include "arrays.hpp"
#include "axes.hpp"
#include "kernels.hpp"

namespace scanrec::native {

/// The error of this thread's last failed call: the whole message and, if an argument was invalid,
/// its name and the reason.
struct error_text {
  std::string whole, argument, reason;
};
inline thread_local error_text last_error;

/// Runs f. Returns a status, and stores the message of an exception in last_error.
template <class F>
int guarded(F f) noexcept {
  const auto say = [](int status, const char* message, const argument_error* error = nullptr) {
    try {
      last_error = {message, {}, {}};
      if (error != nullptr) {
        last_error.argument = error->argument();
        last_error.reason = "expected " + error->expected() + ", got " + error->got();
      }
    } catch (...) {
      last_error = {};
    }
    return status;
  };
  try {
    f();
    return SCANREC_OK;
  } catch (const argument_error& error) {
    return say(SCANREC_BAD_ARGUMENT, error.what(), &error);
  } catch (const std::bad_alloc&) {
    return say(SCANREC_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return say(SCANREC_FAILED, error.what());
  } catch (...) {
    return say(SCANREC_FAILED, "unknown error");
  }
}

/// Returns the problem. Throws argument_error for a null pointer, or an invalid dtype or `threads`.
template <class Problem>
const Problem& checked(const char* name, const Problem* problem, const void* arrays) {
  const auto refuse = [&](const char* what, const char* expected, const std::string& got) {
    throw argument_error(name, what, expected, got);
  };
  if (problem == nullptr) refuse("problem", "a pointer", "null");
  if (arrays == nullptr) refuse("arrays", "a pointer", "null");
  if (problem->dtype < 0 || problem->dtype >= dtypes)
    refuse("dtype", "a value of scanrec_dtype", std::to_string(problem->dtype));
  if (problem->threads < 0) refuse("threads", "0 or more", std::to_string(problem->threads));
  return *problem;
}

/// Names of element types, indexed by scanrec_dtype.
inline constexpr std::array<const char*, dtypes> dtype_names{"float32",    "float64",  "complex64",
                                                             "complex128", "bfloat16", "float16"};

/// Returns the function of a selective scan for the state type `dtype`, or of a causal convolution
/// for the compute type `dtype`. An array that may be stored in another type has its own dtype.
template <class Call, class Arrays>
auto call_for(const char* name, void (*const (&calls)[dtypes])(const Call&, const Arrays&),
              std::int32_t dtype) {
  if (calls[dtype] == nullptr)
    throw argument_error(name, "dtype", "a type of 32 bits or more with kernels in this build",
                         dtype_names[static_cast<std::size_t>(dtype)]);
  return calls[dtype];
}

/// A call of a linear or gated scan, or of its derivative: its problem, its arrays, and their axes.
template <class Arrays>
class request {
 public:
  request(const scanrec_problem* problem, const Arrays* arrays)
      : problem_(checked(name, problem, arrays)),
        dtype_(static_cast<std::size_t>(problem_.dtype)),
        arrays_(*arrays),
        axes_(name, problem_) {
    check_options();
    for (const auto& e : call_of<Arrays>::arrays)
      axes_.add(e.name, arrays_.*e.member, bytes_of(e.use), e.use,
                problem_.logarithms != 0 ? e.in_place_of_with_logarithms : e.in_place_of);
  }

  [[nodiscard]] const scanrec_problem& problem() const { return problem_; }

  /// Runs the call for the element type of the problem. `Calls` is the member of a table that holds
  /// the functions of this call. `c` contains the threads or the stream that run it.
  /// clear(data, bytes) sets memory of the arrays to zero.
  template <auto Calls, class Clear>
  void run(call c, const kernels& table, Clear clear) {
    const auto& calls = calls_of<Calls>(table);
    if (calls[dtype_] == nullptr)
      throw argument_error(name, "dtype", "a type with kernels in this build", dtype_names[dtype_]);
    c.reverse = problem_.reverse != 0;
    c.no_conjugate = problem_.no_conjugate != 0;
    c.more_resets = problem_.more_resets != 0;
    c.logarithms = problem_.logarithms;
    c.forget_bias = problem_.forget_bias;
    axes_.run(c, clear, [&](const call& one) { calls[dtype_](one, arrays_); });
  }

 private:
  /// The functions `Calls` of a table, or those for logarithms if the problem has them.
  template <auto Calls>
  [[nodiscard]] const auto& calls_of(const kernels& table) const {
    if constexpr (std::is_same_v<Arrays, scanrec_scan_arrays>) {
      if (problem_.logarithms != 0) return table.log_scan;
    } else if constexpr (std::is_same_v<Arrays, scanrec_vjp_arrays>) {
      if (problem_.logarithms != 0) return table.log_scan_vjp;
    }
    return table.*Calls;
  }

  static constexpr const char* name = call_of<Arrays>::name;
  static constexpr bool is_gated = requires { &Arrays::candidate; };
  static constexpr bool has_logarithms = requires { &Arrays::input; };
  // Bytes of an element, and of an initial or final state, indexed by scanrec_dtype.
  static constexpr std::array<std::int64_t, dtypes> element_bytes{4, 8, 8, 16, 2, 2};
  static constexpr std::array<std::int64_t, dtypes> edge_bytes{4, 8, 8, 16, 4, 4};

  void check_options() const {
    const auto refuse = [](const char* what, const char* expected, const std::string& got) {
      throw argument_error(name, what, expected, got);
    };
    const std::int32_t logarithms = problem_.logarithms;
    if (logarithms < 0 || logarithms > (has_logarithms ? SCANREC_LOG_GATE | SCANREC_LOG_INPUT : 0))
      refuse("logarithms", has_logarithms ? "bits of scanrec_logarithms" : "0 for this call",
             std::to_string(logarithms));
    if (!is_gated && problem_.forget_bias != 0)
      refuse("forget_bias", "0 for this call", std::to_string(problem_.forget_bias));
  }

  [[nodiscard]] std::int64_t bytes_of(role use) const {
    if (use == role::read_mask || use == role::read_resets) return 1;
    return (is_boundary(use) || is_checkpoints(use) ? edge_bytes : element_bytes)[dtype_];
  }

  scanrec_problem problem_;
  std::size_t dtype_;
  Arrays arrays_;  // axes_.run() replaces their strides and pointers
  axes axes_;
};

}  // namespace scanrec::native
