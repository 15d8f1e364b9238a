// SPDX-License-Identifier: BSD-3-Clause
// The C interface for CPUs: chooses the instruction set, and says who runs the workers.
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>

#include <scanrec/c/scanrec.h>
#include <scanrec/version.hpp>

#include "entry.hpp"
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

/// Who runs the workers of a call: those of the problem, or the library's pool.
template <class Problem>
executor workers_of(const Problem& p) {
  if (p.executor != nullptr)
    return [&p](int count, const std::function<void(int)>& work) {
      p.executor(
          p.pool, count,
          [](int worker, void* f) { (*static_cast<const std::function<void(int)>*>(f))(worker); },
          const_cast<std::function<void(int)>*>(&work));
    };
  return [most = p.threads](int count, const std::function<void(int)>& work) {
    run_on_pool(most, count, work);
  };
}
/// A number of workers would be taken as it is; without one, small problems have few.
template <class Problem>
int workers_asked_for(const Problem& p) {
  return p.threads == 1 ? 1 : 0;
}

/// Runs the call `Calls` of the table on the arrays that an entry point was given.
template <auto Calls, class Arrays>
int run_on_cpu(const scanrec_problem* problem, const Arrays* arrays) {
  return guarded([&] {
    request r(problem, arrays);
    const scanrec_problem& p = r.problem();
    const executor workers = workers_of(p);
    call c;
    c.threads = workers_asked_for(p);
    c.workers = &workers;
    r.run(c, chosen().table->*Calls, [](void* data, std::int64_t bytes) {
      std::memset(data, 0, static_cast<std::size_t>(bytes));
    });
  });
}

/// The same for selective scans, whose arrays have the axes of the C++ interface.
template <auto Calls, class Arrays>
int run_selective(const char* name, const scanrec_selective_problem* problem,
                  const Arrays* arrays) {
  return guarded([&] {
    const scanrec_selective_problem& p = checked(name, problem, arrays);
    const auto run = selective_call_for(name, chosen().table->*Calls, p.dtype);
    const executor workers = workers_of(p);
    run({.problem = p, .threads = workers_asked_for(p), .workers = &workers}, *arrays);
  });
}

}  // namespace
}  // namespace scanrec::native

using namespace scanrec::native;

int scanrec_linear_scan(const scanrec_problem* problem, const scanrec_scan_arrays* arrays) {
  return run_on_cpu<&kernels::linear_scan>(problem, arrays);
}
int scanrec_linear_scan_vjp(const scanrec_problem* problem, const scanrec_vjp_arrays* arrays) {
  return run_on_cpu<&kernels::linear_scan_vjp>(problem, arrays);
}
int scanrec_linear_scan_jvp(const scanrec_problem* problem, const scanrec_jvp_arrays* arrays) {
  return run_on_cpu<&kernels::linear_scan_jvp>(problem, arrays);
}
int scanrec_qrnn_pool(const scanrec_problem* problem, const scanrec_pool_arrays* arrays) {
  return run_on_cpu<&kernels::qrnn_pool>(problem, arrays);
}
int scanrec_qrnn_pool_vjp(const scanrec_problem* problem, const scanrec_pool_vjp_arrays* arrays) {
  return run_on_cpu<&kernels::qrnn_pool_vjp>(problem, arrays);
}
int scanrec_selective_scan(const scanrec_selective_problem* problem,
                           const scanrec_selective_arrays* arrays) {
  return run_selective<&kernels::selective_scan>("selective_scan", problem, arrays);
}
int scanrec_selective_scan_vjp(const scanrec_selective_problem* problem,
                               const scanrec_selective_vjp_arrays* arrays) {
  return run_selective<&kernels::selective_scan_vjp>("selective_scan_vjp", problem, arrays);
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
