// SPDX-License-Identifier: BSD-3-Clause
// The variants that scan_variants.cpp compares, each behind one function per element type, so that
// their kernels are compiled in units of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "measure.hpp"

namespace bench {

using namespace scanrec;

enum class call { forward, vjp, jvp };
inline constexpr const char* call_names[]{"forward", "vjp", "jvp"};

struct workload {
  std::string name;
  extents shape;
  bool time_last = false;
  bool lambda = false;  // one gate for all steps, and its gradient
};

struct traffic {
  int reads, writes;
};
inline traffic traffic_of(call what, bool lambda) {
  switch (what) {
    case call::forward:
      return lambda ? traffic{1, 1} : traffic{2, 1};
    case call::vjp:
      return lambda ? traffic{2, 1} : traffic{3, 2};
    case call::jvp:
      return lambda ? traffic{2, 1} : traffic{4, 1};
  }
  return {};
}

/// The arrays of a workload: five buffers, of which calls take what they need.
template <class T>
struct arrays {
  explicit arrays(const workload& w)
      : shape(w.shape),
        strides(w.time_last ? time_contiguous(shape) : channels_last(shape)),
        lambda(w.lambda),
        few(static_cast<std::size_t>(shape.channel), element_of<T>(0.75f)),
        few_grad(few) {
    for (int i = 0; i < 5; ++i) {
      data[i] = static_cast<T*>(memory.get(i, elements() * sizeof(T)));
      fill(data[i], elements(), i == 0);
    }
  }
  std::int64_t elements() const { return shape.batch * shape.time * shape.channel; }
  sequence_view<T> array(int i) const { return {data[i], shape, strides}; }
  sequence_view<T> gate() { return lambda ? once(few) : array(0); }
  sequence_view<T> gate_grad() { return lambda ? once(few_grad) : array(3); }
  sequence_view<T> once(std::vector<T>& v) {
    return {v.data(), shape, extents{.batch = 0, .time = 0, .channel = 1}};
  }

  extents shape, strides;
  bool lambda;
  T* data[5];
  std::vector<T> few, few_grad;
};

/// A backend by name, and its calls.
template <class T>
struct variant {
  const char* name;
  std::function<void(call, arrays<T>&)> run;
};
/// All of them; variants.cpp, compiled for T.
template <class T>
std::vector<variant<T>> variants();

}  // namespace bench
