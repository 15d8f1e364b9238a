// SPDX-License-Identifier: BSD-3-Clause
// The backends that scan_variants.cpp compares. variants<T>() returns them for one element type.
// Each element type has a translation unit of its own, because kernels take long to compile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "measure.hpp"

namespace bench {

using namespace scanrec;

enum class call { forward, vjp, jvp };
inline constexpr const char* call_names[]{"forward", "vjp", "jvp"};

/// Whether each element has its own gate, or one gate serves all batch entries and steps of a
/// channel, or all channels of a step.
enum class gates { own, one_per_channel, one_for_channels };

struct workload {
  std::string name;
  extents shape;
  bool time_last = false;
  gates gate = gates::own;  // layout of the gate, its gradient and its tangent
};

inline traffic traffic_of(call what, gates gate) {
  const bool shared = gate != gates::own;  // shared gates cause negligible traffic
  switch (what) {
    case call::forward:
      return shared ? traffic{1, 1} : traffic{2, 1};
    case call::vjp:
      return shared ? traffic{2, 1} : traffic{3, 2};
    case call::jvp:
      return shared ? traffic{2, 1} : traffic{4, 1};
  }
  return {};
}

/// The arrays of a workload: five buffers, of which each call uses some.
template <class T>
struct arrays {
  explicit arrays(const workload& w)
      : shape(w.shape),
        strides(w.time_last ? time_contiguous(shape) : channels_last(shape)),
        gate_kind(w.gate),
        few(static_cast<std::size_t>(std::max(shape.channel, shape.batch * shape.time)),
            element_of<T>(0.75f)),
        few_grad(few) {
    for (int i = 0; i < 5; ++i) {
      data[i] = static_cast<T*>(buffers.get(i, elements() * sizeof(T)));
      fill(data[i], elements(), i == 0);
    }
  }
  std::int64_t elements() const { return shape.batch * shape.time * shape.channel; }
  sequence_view<T> array(int i) const { return {data[i], shape, strides}; }
  sequence_view<T> gate() { return shared() ? few_times(few) : array(0); }
  sequence_view<T> gate_grad() { return shared() ? few_times(few_grad) : array(3); }
  sequence_view<T> gate_tangent() { return shared() ? few_times(few) : array(2); }

  extents shape;
  scanrec::strides strides;
  gates gate_kind;
  T* data[5];
  std::vector<T> few, few_grad;

 private:
  bool shared() const { return gate_kind != gates::own; }
  sequence_view<T> few_times(std::vector<T>& v) {
    return {v.data(), shape,
            gate_kind == gates::one_per_channel
                ? scanrec::strides{.batch = 0, .time = 0, .channel = 1}
                : scanrec::strides{.batch = shape.time, .time = 1, .channel = 0}};
  }
};

/// The name of a backend, and its calls.
template <class T>
struct variant {
  const char* name;
  std::function<void(call, arrays<T>&)> run;
};
/// All backends, compiled for T in variants.cpp.
template <class T>
std::vector<variant<T>> variants();

}  // namespace bench
