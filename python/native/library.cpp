// SPDX-License-Identifier: BSD-3-Clause
// The C interface: chooses the instruction set, brings arrays to four axes, turns exceptions into
// status codes.
#include <array>
#include <cstdlib>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include <scanrec/c/scanrec.h>
#include <scanrec/version.hpp>

#include "axes.hpp"
#include "kernels.hpp"
#include "thread_pool.hpp"

// The tables of the instruction sets that the library was built for.
#define SCANREC_DECLARE(level) extern "C" const scanrec::native::kernels scanrec_kernels_##level;
#if defined(SCANREC_LEVEL_NATIVE)
SCANREC_DECLARE(native)
#else
SCANREC_DECLARE(v2)
SCANREC_DECLARE(v3)
SCANREC_DECLARE(v4)
#endif

namespace scanrec::native {
namespace {

struct level {
  const char* name;
  const kernels* table;
  bool here;  // whether this CPU has it
};

level choose_level() {
#if defined(SCANREC_LEVEL_NATIVE)
  return {"native", &scanrec_kernels_native, true};
#else
  // What tells the levels apart; Clang does not know them by name.
  const bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  const std::array levels{level{"x86-64-v4", &scanrec_kernels_v4, v4},
                          level{"x86-64-v3", &scanrec_kernels_v3, v3},
                          level{"x86-64-v2", &scanrec_kernels_v2, v2}};
  const char* asked = std::getenv("SCANREC_ISA");
  if (asked != nullptr && *asked != '\0') {
    for (const level& l : levels)
      if (l.name == std::string(asked) && l.here) return l;
    throw std::runtime_error(std::string("SCANREC_ISA: expected x86-64-v2, x86-64-v3 or "
                                         "x86-64-v4 that this CPU has, got ") +
                             asked);
  }
  for (const level& l : levels)
    if (l.here) return l;
  throw std::runtime_error("this CPU lacks what scanrec needs (x86-64-v2)");
#endif
}
const level& chosen() {
  static const level l = choose_level();
  return l;
}

thread_local std::string last_error;

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

// Bytes of an element, and of a state at an edge, by scanrec_dtype.
constexpr std::array<std::int64_t, dtypes> element_bytes{4, 8, 8, 16, 2, 2};
constexpr std::array<std::int64_t, dtypes> edge_bytes{4, 8, 8, 16, 4, 4};

/// One call of the interface: its arrays, and who runs its workers.
class request {
 public:
  request(const char* name, const scanrec_problem* problem, const void* arrays)
      : name_(name), problem_(check(name, problem, arrays)), axes_(name, problem_) {
    if (problem_.executor != nullptr)
      workers_ = [this](int workers, const std::function<void(int)>& work) {
        problem_.executor(
            problem_.pool, workers,
            [](int worker, void* f) { (*static_cast<const std::function<void(int)>*>(f))(worker); },
            const_cast<std::function<void(int)>*>(&work));
      };
    else
      workers_ = [most = problem_.threads != 0 ? problem_.threads : pool_threads()](
                     int workers, const std::function<void(int)>& work) {
        run_on_pool(most, workers, work);
      };
  }

  void add(const scanrec_array& given, array& result, role use) {
    const bool edge = use == role::edge || use == role::edge_gradient;
    axes_.add(given, result, (edge ? edge_bytes : element_bytes)[dtype()], use);
  }
  void add_marks(const scanrec_array& given, array& result) {
    axes_.add(given, result, 1, role::sequence);
  }

  /// Runs the call of `calls` for the element type of the problem.
  template <class Arrays>
  void run(void (*const (&calls)[dtypes])(const call&, const Arrays&), const Arrays& arrays) {
    if (calls[dtype()] == nullptr)
      throw argument_error(name_, "dtype", "a real type", std::to_string(problem_.dtype));
    call c;
    c.reverse = problem_.reverse != 0;
    c.plain = problem_.plain != 0;
    // A number of workers would be taken as it is; without one, small problems have few.
    c.threads = problem_.threads == 1 ? 1 : 0;
    c.workers = &workers_;
    axes_.run(c, [&](const call& one) { calls[dtype()](one, arrays); });
  }

 private:
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
  executor workers_;
};

}  // namespace
}  // namespace scanrec::native

using namespace scanrec::native;

int scanrec_linear_scan(const scanrec_problem* problem, const scanrec_scan_arrays* arrays) {
  return guarded([&] {
    request r("linear_scan", problem, arrays);
    scan_arrays a;
    r.add(arrays->gate, a.gate, role::sequence);
    r.add(arrays->input, a.input, role::sequence);
    r.add(arrays->initial_state, a.initial_state, role::edge);
    r.add_marks(arrays->resets, a.resets);
    r.add(arrays->state, a.state, role::sequence);
    r.add(arrays->final_state, a.final_state, role::edge);
    r.run(chosen().table->linear_scan, a);
  });
}

int scanrec_linear_scan_vjp(const scanrec_problem* problem, const scanrec_vjp_arrays* arrays) {
  return guarded([&] {
    request r("linear_scan_vjp", problem, arrays);
    vjp_arrays a;
    r.add(arrays->gate, a.gate, role::sequence);
    r.add(arrays->state, a.state, role::sequence);
    r.add(arrays->initial_state, a.initial_state, role::edge);
    r.add_marks(arrays->resets, a.resets);
    r.add(arrays->state_grad, a.state_grad, role::sequence);
    r.add(arrays->final_grad, a.final_grad, role::edge);
    r.add(arrays->gate_grad, a.gate_grad, role::gradient);
    r.add(arrays->input_grad, a.input_grad, role::gradient);
    r.add(arrays->initial_grad, a.initial_grad, role::edge_gradient);
    r.run(chosen().table->linear_scan_vjp, a);
  });
}

int scanrec_linear_scan_jvp(const scanrec_problem* problem, const scanrec_jvp_arrays* arrays) {
  return guarded([&] {
    request r("linear_scan_jvp", problem, arrays);
    jvp_arrays a;
    r.add(arrays->gate, a.gate, role::sequence);
    r.add(arrays->state, a.state, role::sequence);
    r.add(arrays->initial_state, a.initial_state, role::edge);
    r.add_marks(arrays->resets, a.resets);
    r.add(arrays->gate_tangent, a.gate_tangent, role::sequence);
    r.add(arrays->input_tangent, a.input_tangent, role::sequence);
    r.add(arrays->initial_tangent, a.initial_tangent, role::edge);
    r.add(arrays->state_tangent, a.state_tangent, role::sequence);
    r.add(arrays->final_tangent, a.final_tangent, role::edge);
    r.run(chosen().table->linear_scan_jvp, a);
  });
}

int scanrec_qrnn_pool(const scanrec_problem* problem, const scanrec_pool_arrays* arrays) {
  return guarded([&] {
    request r("qrnn_pool", problem, arrays);
    pool_arrays a;
    r.add(arrays->candidate, a.candidate, role::sequence);
    r.add(arrays->forget_gate, a.forget_gate, role::sequence);
    r.add(arrays->output_gate, a.output_gate, role::sequence);
    r.add(arrays->input_gate, a.input_gate, role::sequence);
    r.add(arrays->initial_state, a.initial_state, role::edge);
    r.add_marks(arrays->resets, a.resets);
    r.add_marks(arrays->zoneout, a.zoneout);
    r.add(arrays->output, a.output, role::sequence);
    r.add(arrays->state, a.state, role::sequence);
    r.add(arrays->final_state, a.final_state, role::edge);
    r.run(chosen().table->qrnn_pool, a);
  });
}

int scanrec_qrnn_pool_vjp(const scanrec_problem* problem, const scanrec_pool_vjp_arrays* arrays) {
  return guarded([&] {
    request r("qrnn_pool_vjp", problem, arrays);
    pool_vjp_arrays a;
    r.add(arrays->candidate, a.candidate, role::sequence);
    r.add(arrays->forget_gate, a.forget_gate, role::sequence);
    r.add(arrays->output_gate, a.output_gate, role::sequence);
    r.add(arrays->input_gate, a.input_gate, role::sequence);
    r.add(arrays->state, a.state, role::sequence);
    r.add(arrays->initial_state, a.initial_state, role::edge);
    r.add_marks(arrays->resets, a.resets);
    r.add_marks(arrays->zoneout, a.zoneout);
    r.add(arrays->output_grad, a.output_grad, role::sequence);
    r.add(arrays->final_grad, a.final_grad, role::edge);
    r.add(arrays->candidate_grad, a.candidate_grad, role::gradient);
    r.add(arrays->forget_gate_grad, a.forget_gate_grad, role::gradient);
    r.add(arrays->output_gate_grad, a.output_gate_grad, role::gradient);
    r.add(arrays->input_gate_grad, a.input_gate_grad, role::gradient);
    r.add(arrays->initial_grad, a.initial_grad, role::edge_gradient);
    r.run(chosen().table->qrnn_pool_vjp, a);
  });
}

const char* scanrec_last_error(void) { return last_error.c_str(); }

int scanrec_c_version(void) { return SCANREC_C_VERSION; }

#define SCANREC_TEXT_(x) #x
#define SCANREC_TEXT(x) SCANREC_TEXT_(x)
const char* scanrec_version(void) {
  return SCANREC_TEXT(SCANREC_VERSION_MAJOR) "." SCANREC_TEXT(
      SCANREC_VERSION_MINOR) "." SCANREC_TEXT(SCANREC_VERSION_PATCH);
}

const char* scanrec_instruction_set(void) {
  const char* name = nullptr;
  guarded([&] { name = chosen().name; });
  return name;
}

int scanrec_threads(void) { return pool_threads(); }
