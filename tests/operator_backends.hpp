// SPDX-License-Identifier: BSD-3-Clause
// Backends that accept any operator and vector states, with several tile lengths (some so short
// that short inputs have many tiles), thread counts and executors. Add new backends here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <scanrec/scan.hpp>
#include <scanrec/variants.hpp>

#if defined(SCANREC_TEST_CUDA_ON_HOST)
#include "device_backend.hpp"
#endif
#include "executed.hpp"

namespace tested {

/// Runs the workers one after the other, the last one first.
inline void backwards_executor(int workers, const std::function<void(int)>& work) {
  for (int w = workers - 1; w >= 0; --w) work(w);
}

/// Whether a test also runs the comparison backends.
enum class variants { no, yes };

/// A backend that a test case must use. operator() returns it and records the use, so a backend
/// counts only when a scan asks for it.
template <class Backend>
struct recorded_backend {
  const std::string& name;
  const Backend& backend;
  const Backend& operator()() const {
    record_call(name);
    return backend;
  }
};

/// Calls call(name, recorded_backend) for every backend. The program fails if a test case does not
/// use all of them.
template <variants Compare = variants::yes, class F>
void with_operator_backends(F call) {
  constexpr bool compare = Compare == variants::yes;
  const auto f = [&]<class Backend>(const std::string& name, const Backend& backend) {
    expect_backend(name);
    call(name, recorded_backend<Backend>{name, backend});
  };
  f("sequential", scanrec::sequential{});
#if defined(SCANREC_TEST_CUDA_ON_HOST)
  for (const int ahead : {-1, 6})
    f("cuda::lanes with steps ahead " + std::to_string(ahead),
      on_device<scanrec::cuda::lanes>{{.stream = nullptr, .steps_ahead = ahead}});
#if !defined(__SANITIZE_ADDRESS__)  // too slow there
  for (const int steps : {0, 1})
    f("cuda::look_back segments of " + std::to_string(steps),
      on_device<scanrec::cuda::look_back>{{.stream = nullptr, .segment_steps = steps}});
#endif
  if constexpr (compare) {
    f("cuda::hillis_steele", on_device<scanrec::cuda::hillis_steele>{});
    f("cuda::blelloch", on_device<scanrec::cuda::blelloch>{});
  }
#endif
  for (const int threads : {1, 2, 3, 7}) {
    const std::string count = " threads " + std::to_string(threads);
    for (const bool own : {false, true}) {
      scanrec::executor e;
      if (own) e = backwards_executor;
      for (const std::int64_t tile : {0, 1, 7, 16, 300})
        f("tiled tile " + std::to_string(tile) + count,
          scanrec::tiled{.threads = threads, .tile_steps = tile, .executor = e});
      if constexpr (compare) {
        f("hillis_steele" + count, scanrec::hillis_steele{.threads = threads, .executor = e});
        f("blelloch" + count, scanrec::blelloch{.threads = threads, .executor = e});
      }
    }
  }
}

}  // namespace tested
