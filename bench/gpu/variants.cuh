// SPDX-License-Identifier: BSD-3-Clause
// The backends under comparison, and workloads of linear_scan with their arrays. Each element type
// is compiled in its own translation unit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <scanrec/cuda/cub.cuh>
#include <scanrec/cuda/scan.cuh>

#include "measure.cuh"

namespace bench {

using namespace scanrec;
namespace cuda = scanrec::cuda;  // not the namespace of libcu++

template <class Backend>
struct named {
  using backend = Backend;
  const char* name;
  int steps_ahead = 0;  // an option of cuda::lanes

  /// The backend, in the stream of the benchmarks.
  [[nodiscard]] Backend made() const {
    Backend on{.stream = machine::here().stream};
    if constexpr (requires { on.steps_ahead; }) on.steps_ahead = steps_ahead;
    return on;
  }
  /// The backend with a workspace. After each call, comparison backends clear a workspace whose
  /// contents are declared `kept`. This would be timed, so theirs are declared `unknown`.
  [[nodiscard]] Backend working_in(cuda::workspace w) const {
    if (!std::is_same_v<Backend, cuda::automatic> && !std::is_same_v<Backend, cuda::lanes> &&
        !std::is_same_v<Backend, cuda::look_back>)
      w.content = cuda::workspace_content::unknown;
    Backend on = made();
    on.workspace = w;
    return on;
  }
};
/// The backends for GPUs, one per line. All other code takes them from this list.
inline constexpr std::tuple backends{
    named<cuda::automatic>{"automatic"},                    // the default: lanes or look_back
    named<cuda::lanes>{"lanes"},                            // a thread per sequence
    named<cuda::lanes>{"lanes_registers", -1},              // lanes without a ring buffer
    named<cuda::lanes>{"lanes_ring", 96},                   // lanes with a ring buffer
    named<cuda::look_back>{"look_back"},                    // time split over blocks
    named<cuda::hillis_steele>{"hillis_steele"},            // comparison backends from here on
    named<cuda::blelloch>{"blelloch"},                      //
    named<cuda::triangular_matmul<>>{"triangular_matmul"},  //
    named<cuda::cub>{"cub"},                                //
};

enum class call { forward, vjp };
inline constexpr const char* call_names[]{"forward", "vjp"};

struct workload {
  std::string name;
  extents shape;
  bool time_last = false;
  bool one_gate_per_channel = false;  // for all steps and batch entries; its gradient is a sum
};

inline traffic traffic_of(call what, const workload& w) {
  if (w.one_gate_per_channel) return what == call::forward ? traffic{1, 1} : traffic{2, 1};
  return what == call::forward ? traffic{2, 1} : traffic{3, 2};
}

/// The arrays of a workload. Forward calls read arrays 0 and 1, and write 2. Adjoints read gates
/// from 0, states from 1 and state gradients from 2, and write 3 and 4. If each channel has one
/// gate, `few` replaces array 0, and `few_grad` array 3.
template <class T>
struct arrays {
  extents shape;
  scanrec::strides strides;
  bool one_gate_per_channel;
  T* data[5];
  T *few, *few_grad;

  explicit arrays(const workload& w)
      : shape(w.shape),
        strides(w.time_last ? time_contiguous(shape) : channels_last(shape)),
        one_gate_per_channel(w.one_gate_per_channel) {
    const auto get = [](int i, std::int64_t n) {
      return static_cast<T*>(
          machine::here().get(first_array + i, n * static_cast<std::int64_t>(sizeof(T))));
    };
    for (int i = 0; i < 5; ++i) data[i] = get(i, elements());
    few = get(5, shape.channel), few_grad = get(6, shape.channel);
  }
  void fill() const {
    const machine& gpu = machine::here();
    gpu.fill(data[0], elements(), 0.5f, 1.0f, 0);
    for (int i = 1; i < 3; ++i) gpu.fill(data[i], elements(), -1.0f, 1.0f, i);
    gpu.fill(few, shape.channel, 0.5f, 1.0f, 5);
  }
  [[nodiscard]] std::int64_t elements() const { return shape.batch * shape.time * shape.channel; }
  [[nodiscard]] sequence_view<T> array(int i) const { return {data[i], shape, strides}; }
  [[nodiscard]] sequence_view<T> gate() const { return gate_like(0, few); }
  [[nodiscard]] sequence_view<T> gate_grad() const { return gate_like(3, few_grad); }

 private:
  [[nodiscard]] sequence_view<T> gate_like(int i, T* one_each) const {
    if (!one_gate_per_channel) return array(i);
    return {one_each, shape, {.batch = 0, .time = 0, .channel = 1}};
  }
};

/// A backend or a peer by name, and its calls, which are queued in `machine::here().stream`.
template <class T>
struct variant {
  using queue = std::function<void(call, const arrays<T>&, const cuda::workspace&)>;
  std::string name;
  std::function<std::int64_t(call, const arrays<T>&)> workspace_bytes;
  queue run;
  queue before{}, after{};  // not timed: pack inputs, unpack results
};
/// The backends and the plain loop, compiled for T in variants.cu.
template <class T>
std::vector<variant<T>> variants();
/// Scans of other libraries, defined in peers.cu.
std::vector<variant<float>> peers();

}  // namespace bench
