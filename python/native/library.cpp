// SPDX-License-Identifier: BSD-3-Clause
// The C interface for CPUs. It chooses the instruction set and the threads that run the workers.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>

#include <scanrec/c/scanrec.h>
#include <scanrec/version.hpp>

#include "entry.hpp"
#include "thread_pool.hpp"

// The instruction sets that the library was built for, the best one first.
#include "levels.hpp"

#define SCANREC_DECLARE(level) extern "C" const scanrec::native::kernels scanrec_kernels_##level;
SCANREC_FOR_EACH_LEVEL(SCANREC_DECLARE)

namespace scanrec::native {
namespace {

/// The instruction sets of this CPU.
struct instruction_sets {
  bool native = true;
#if defined(__x86_64__)
  // The features that distinguish the levels x86-64-v2, v3 and v4. Clang 14 does not know these
  // levels by name.
  bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
            __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl");
#endif
};

struct level {
  std::string name;
  const kernels* table;
  bool here;  // whether this CPU has it
};

std::string name_of(const std::string& level) {
  return level == "native" ? level : "x86-64-" + level;
}

level choose_level() {
  const instruction_sets has;
#define SCANREC_ROW(level) {name_of(#level), &scanrec_kernels_##level, has.level},
  const level levels[]{SCANREC_FOR_EACH_LEVEL(SCANREC_ROW)};
  std::string names;
  for (const level& l : levels) names += (names.empty() ? "" : ", ") + l.name;

  const char* const asked = std::getenv("SCANREC_ISA");
  const bool any = asked == nullptr || *asked == '\0';
  for (const level& l : levels)
    if (l.here && (any || l.name == asked)) return l;
  if (!any)
    throw std::runtime_error("SCANREC_ISA: expected an instruction set that this CPU has, out of " +
                             names + ", got " + asked);
  throw std::runtime_error("this CPU has no instruction set that scanrec was built for (" + names +
                           "): build scanrec on this machine, or for more CPUs with "
                           "CMAKE_ARGS=\"-DSCANREC_LEVELS=v2;v3;v4\"");
}
const level& chosen() {
  static const level l = choose_level();
  return l;
}

/// The executor of a call: the problem's own, or the library's thread pool.
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
/// The number of workers to plan for: 1 if the caller asks for one thread. Otherwise it is 0: the
/// plan then chooses the number by the size of the problem.
template <class Problem>
int workers_asked_for(const Problem& p) {
  return p.threads == 1 ? 1 : 0;
}

/// Checks the arguments of an entry point and runs its call. `Calls` is the member of the table
/// that holds the functions of this call, one per element type.
template <auto Calls, class Arrays>
int run_on_cpu(const scanrec_problem* problem, const Arrays* arrays) {
  return guarded([&] {
    request r(problem, arrays);
    const scanrec_problem& p = r.problem();
    const executor workers = workers_of(p);
    call c;
    c.threads = workers_asked_for(p);
    c.workers = &workers;
    r.template run<Calls>(c, *chosen().table, [](void* data, std::int64_t bytes) {
      std::memset(data, 0, static_cast<std::size_t>(bytes));
    });
  });
}

/// Like run_on_cpu, for selective scans and causal convolutions. Their arrays already have the axes
/// of the C++ interface.
template <auto Calls, class Call, class Problem, class Arrays>
int run_typed(const char* name, const Problem* problem, const Arrays* arrays) {
  return guarded([&] {
    const Problem& p = checked(name, problem, arrays);
    const auto run = call_for(name, chosen().table->*Calls, p.dtype);
    const executor workers = workers_of(p);
    Call c;
    c.problem = p, c.threads = workers_asked_for(p), c.workers = &workers;
    run(c, *arrays);
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
int scanrec_gated_scan(const scanrec_problem* problem, const scanrec_gated_arrays* arrays) {
  return run_on_cpu<&kernels::gated_scan>(problem, arrays);
}
int scanrec_gated_scan_vjp(const scanrec_problem* problem, const scanrec_gated_vjp_arrays* arrays) {
  return run_on_cpu<&kernels::gated_scan_vjp>(problem, arrays);
}
int scanrec_selective_scan(const scanrec_selective_problem* problem,
                           const scanrec_selective_arrays* arrays) {
  return run_typed<&kernels::selective_scan, selective_call>("selective_scan", problem, arrays);
}
int scanrec_selective_scan_vjp(const scanrec_selective_problem* problem,
                               const scanrec_selective_vjp_arrays* arrays) {
  return run_typed<&kernels::selective_scan_vjp, selective_call>("selective_scan_vjp", problem,
                                                                 arrays);
}
int scanrec_causal_conv1d(const scanrec_causal_conv1d_problem* problem,
                          const scanrec_causal_conv1d_arrays* arrays) {
  return run_typed<&kernels::causal_conv1d, conv1d_call>("causal_conv1d", problem, arrays);
}
int scanrec_causal_conv1d_vjp(const scanrec_causal_conv1d_problem* problem,
                              const scanrec_causal_conv1d_vjp_arrays* arrays) {
  return run_typed<&kernels::causal_conv1d_vjp, conv1d_call>("causal_conv1d_vjp", problem, arrays);
}

const char* scanrec_last_error(void) { return last_error.whole.c_str(); }
const char* scanrec_last_error_argument(void) { return last_error.argument.c_str(); }
const char* scanrec_last_error_reason(void) { return last_error.reason.c_str(); }

int scanrec_c_version(void) { return SCANREC_C_VERSION; }

#define SCANREC_TEXT_(x) #x
#define SCANREC_TEXT(x) SCANREC_TEXT_(x)
const char* scanrec_version(void) {
  return SCANREC_TEXT(SCANREC_VERSION_MAJOR) "." SCANREC_TEXT(
      SCANREC_VERSION_MINOR) "." SCANREC_TEXT(SCANREC_VERSION_PATCH);
}

const char* scanrec_instruction_set(void) {
  const char* name = nullptr;
  guarded([&] { name = chosen().name.c_str(); });
  return name;
}

int scanrec_threads(void) { return pool_threads(); }
