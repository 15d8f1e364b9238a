// SPDX-License-Identifier: BSD-3-Clause
// What the entry points of the C interfaces do, on CPUs and on GPUs: check, gather the arrays,
// bring them to four axes, run the call for their type, and turn exceptions into status codes.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include <scanrec/error.hpp>

#include "axes.hpp"
#include "kernels.hpp"

namespace scanrec::native {

/// What was wrong with the last call of this thread.
inline thread_local std::string last_error;

/// Runs f; what it throws becomes a status and a message.
template <class F>
int guarded(F f) noexcept {
  const auto say = [](int status, const char* message) {
    try {
      last_error = message;
    } catch (...) {
      last_error.clear();
    }
    return status;
  };
  try {
    f();
    return SCANREC_OK;
  } catch (const std::invalid_argument& error) {
    return say(SCANREC_BAD_ARGUMENT, error.what());
  } catch (const std::bad_alloc&) {
    return say(SCANREC_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return say(SCANREC_FAILED, error.what());
  } catch (...) {
    return say(SCANREC_FAILED, "unknown error");
  }
}

/// The arrays of one call, with the axes that they have.
class request {
 public:
  request(const char* name, const scanrec_problem* problem, const void* arrays)
      : name_(name), problem_(check(name, problem, arrays)), axes_(name, problem_) {}

  [[nodiscard]] const scanrec_problem& problem() const { return problem_; }

  /// An array by its name; `in_place_of` names the one whose place it may have, where that is the
  /// contract of the call.
  void add(const char* name, const scanrec_array& given, array& result, role use = role::read,
           const char* in_place_of = nullptr) {
    const bool edge =
        use == role::read_edge || use == role::write_edge || use == role::edge_gradient;
    axes_.add(name, given, result, (edge ? edge_bytes : element_bytes)[dtype()], use, in_place_of);
  }
  void add_marks(const char* name, const scanrec_array& given, array& result) {
    axes_.add(name, given, result, 1, role::read);
  }
  void add_resets(const char* name, const scanrec_array& given, array& result) {
    result.one_step_more = problem_.more_resets != 0;
    axes_.add(name, given, result, 1, result.one_step_more ? role::read_longer : role::read);
  }

  /// Runs the call of `calls` for the element type of the problem. `c` says where it runs,
  /// clear(data, bytes) sets memory there to zero.
  template <class Arrays, class Clear>
  void run(call c, void (*const (&calls)[dtypes])(const call&, const Arrays&), const Arrays& arrays,
           Clear clear) {
    if (calls[dtype()] == nullptr)
      throw argument_error(name_, "dtype", "a type that there are kernels for", names[dtype()]);
    c.reverse = problem_.reverse != 0;
    c.plain = problem_.plain != 0;
    axes_.run(c, clear, [&](const call& one) { calls[dtype()](one, arrays); });
  }

 private:
  // Names, bytes of an element, and of a state at an edge, by scanrec_dtype.
  static constexpr std::array<const char*, dtypes> names{"float32",    "float64",  "complex64",
                                                         "complex128", "bfloat16", "float16"};
  static constexpr std::array<std::int64_t, dtypes> element_bytes{4, 8, 8, 16, 2, 2};
  static constexpr std::array<std::int64_t, dtypes> edge_bytes{4, 8, 8, 16, 4, 4};

  static const scanrec_problem& check(const char* name, const scanrec_problem* problem,
                                      const void* arrays) {
    const auto refuse = [&](const char* what, const char* expected, const std::string& got) {
      throw argument_error(name, what, expected, got);
    };
    if (problem == nullptr) refuse("problem", "a pointer", "null");
    if (arrays == nullptr) refuse("arrays", "a pointer", "null");
    if (problem->dtype < 0 || problem->dtype >= dtypes)
      refuse("dtype", "one of scanrec_dtype", std::to_string(problem->dtype));
    if (problem->threads < 0) refuse("threads", "0 or more", std::to_string(problem->threads));
    return *problem;
  }
  [[nodiscard]] std::size_t dtype() const { return static_cast<std::size_t>(problem_.dtype); }

  const char* name_;
  scanrec_problem problem_;
  axes axes_;
};

// ---- which arrays a call has
// ----------------------------------------------------------------------

inline void add_arrays(request& r, const scanrec_scan_arrays& given, scan_arrays& a) {
  r.add("gate", given.gate, a.gate);
  r.add("input", given.input, a.input);
  r.add("initial_state", given.initial_state, a.initial_state, role::read_edge);
  r.add_resets("resets", given.resets, a.resets);
  r.add("state", given.state, a.state, role::write, "input");
  r.add("final_state", given.final_state, a.final_state, role::write_edge, "initial_state");
}

inline void add_arrays(request& r, const scanrec_vjp_arrays& given, vjp_arrays& a) {
  r.add("gate", given.gate, a.gate);
  r.add("state", given.state, a.state);
  r.add("initial_state", given.initial_state, a.initial_state, role::read_edge);
  r.add_resets("resets", given.resets, a.resets);
  r.add("state_grad", given.state_grad, a.state_grad);
  r.add("final_grad", given.final_grad, a.final_grad, role::read_edge);
  r.add("gate_grad", given.gate_grad, a.gate_grad, role::gradient);
  r.add("input_grad", given.input_grad, a.input_grad, role::gradient, "state_grad");
  r.add("initial_grad", given.initial_grad, a.initial_grad, role::edge_gradient, "final_grad");
}

inline void add_arrays(request& r, const scanrec_jvp_arrays& given, jvp_arrays& a) {
  r.add("gate", given.gate, a.gate);
  r.add("state", given.state, a.state);
  r.add("initial_state", given.initial_state, a.initial_state, role::read_edge);
  r.add_resets("resets", given.resets, a.resets);
  r.add("gate_tangent", given.gate_tangent, a.gate_tangent);
  r.add("input_tangent", given.input_tangent, a.input_tangent);
  r.add("initial_tangent", given.initial_tangent, a.initial_tangent, role::read_edge);
  r.add("state_tangent", given.state_tangent, a.state_tangent, role::write, "input_tangent");
  r.add("final_tangent", given.final_tangent, a.final_tangent, role::write_edge, "initial_tangent");
}

inline void add_arrays(request& r, const scanrec_pool_arrays& given, pool_arrays& a) {
  r.add("candidate", given.candidate, a.candidate);
  r.add("forget_gate", given.forget_gate, a.forget_gate);
  r.add("output_gate", given.output_gate, a.output_gate);
  r.add("input_gate", given.input_gate, a.input_gate);
  r.add("initial_state", given.initial_state, a.initial_state, role::read_edge);
  r.add_resets("resets", given.resets, a.resets);
  r.add_marks("zoneout", given.zoneout, a.zoneout);
  r.add("output", given.output, a.output, role::write);
  r.add("state", given.state, a.state, role::write);
  r.add("final_state", given.final_state, a.final_state, role::write_edge, "initial_state");
}

inline void add_arrays(request& r, const scanrec_pool_vjp_arrays& given, pool_vjp_arrays& a) {
  r.add("candidate", given.candidate, a.candidate);
  r.add("forget_gate", given.forget_gate, a.forget_gate);
  r.add("output_gate", given.output_gate, a.output_gate);
  r.add("input_gate", given.input_gate, a.input_gate);
  r.add("state", given.state, a.state);
  r.add("initial_state", given.initial_state, a.initial_state, role::read_edge);
  r.add_resets("resets", given.resets, a.resets);
  r.add_marks("zoneout", given.zoneout, a.zoneout);
  r.add("output_grad", given.output_grad, a.output_grad);
  r.add("final_grad", given.final_grad, a.final_grad, role::read_edge);
  r.add("candidate_grad", given.candidate_grad, a.candidate_grad, role::gradient, "candidate");
  r.add("forget_gate_grad", given.forget_gate_grad, a.forget_gate_grad, role::gradient,
        "forget_gate");
  r.add("output_gate_grad", given.output_gate_grad, a.output_gate_grad, role::gradient,
        "output_gate");
  r.add("input_gate_grad", given.input_gate_grad, a.input_gate_grad, role::gradient, "input_gate");
  r.add("initial_grad", given.initial_grad, a.initial_grad, role::edge_gradient, "final_grad");
}

}  // namespace scanrec::native
