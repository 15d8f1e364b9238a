// SPDX-License-Identifier: BSD-3-Clause
// Times causal convolutions with four taps, and their adjoint, against a copy baseline that reads
// and writes the same arrays.
#include <cstdint>
#include <string>
#include <vector>

#include <scanrec/causal_conv1d.hpp>

#include "measure.hpp"

namespace {

using namespace bench;
using namespace scanrec;

enum class call { forward, vjp };
constexpr const char* call_names[]{"forward", "vjp"};
constexpr std::int64_t taps = 4;

/// T: element type of the sequences.
template <class T>
void measure_call(runner& by, const extents& shape, call what, conv1d_activation f, bool along_time,
                  int threads) {
  const std::int64_t n = shape.batch * shape.time * shape.channel, bytes = sizeof(T);
  const auto role = [&](int i) { return static_cast<T*>(buffers.get(i, n * bytes)); };
  T *x = role(0), *grad = role(1), *out = role(2);
  fill(x, n, false), fill(grad, n, false);
  std::vector<float> weight(static_cast<std::size_t>(shape.channel * taps)), weight_grad = weight;
  std::vector<float> bias(static_cast<std::size_t>(shape.channel)), bias_grad = bias;
  fill(weight.data(), shape.channel * taps, false), fill(bias.data(), shape.channel, false);

  const scanrec::strides lie = along_time ? time_contiguous(shape) : channels_last(shape);
  const auto sequence = [&](T* p) { return sequence_view<T>(p, shape, lie); };
  const auto of_taps = [&](std::vector<float>& w) {
    return state_view<float>(w.data(), {.channel = shape.channel, .group = taps},
                             {.channel = taps, .group = 1});
  };
  const auto of_channels = [&](std::vector<float>& b) {
    return state_view<float>(b.data(), {.channel = shape.channel});
  };
  const auto as_floats = [](T* p) { return reinterpret_cast<float*>(p); };
  const tiled on{.threads = threads};
  const auto run = [&] {
    const causal_conv1d_arrays<float> arrays{
        .x = sequence(x), .weight = of_taps(weight), .bias = of_channels(bias), .activation = f};
    if (what == call::forward)
      causal_conv1d(on, arrays, sequence(out));
    else
      causal_conv1d_vjp(
          on, arrays, sequence(grad),
          {.x = sequence(out), .weight = of_taps(weight_grad), .bias = of_channels(bias_grad)});
  };
  if (what == call::forward)
    measure(by, run, {1, 1}, {as_floats(x)}, {as_floats(out)}, n, bytes, shape.time, threads);
  else
    measure(by, run, {2, 1}, {as_floats(x), as_floats(grad)}, {as_floats(out)}, n, bytes,
            shape.time, threads);
}

template <class T>
row make_row(const std::string& workload, const extents& shape, call what,
             conv1d_activation f = conv1d_activation::silu, bool along_time = false,
             int threads = 0) {
  return {workload + "/" + call_names[static_cast<int>(what)], 9,
          [=](runner& by) { measure_call<T>(by, shape, what, f, along_time, threads); }};
}

}  // namespace

std::vector<row> bench::rows(bool quick) {
  using enum conv1d_activation;
  const extents small{.batch = 1, .time = 256, .channel = 64};
  const extents shape = quick ? small : extents{.batch = 8, .time = 8192, .channel = 256};
  const extents layer = quick ? small : extents{.batch = 1, .time = 1024, .channel = 1536};
  std::vector<row> all;
  for (const call what : {call::forward, call::vjp}) {
    all.push_back(make_row<float>("in_cache", small, what, silu, false, 1));
    all.push_back(make_row<float>("mamba_layer", layer, what, silu, false, 1));
    all.push_back(make_row<float>("channels_last", shape, what));
    all.push_back(make_row<float>("without_silu", shape, what, none));
    all.push_back(make_row<float>("time_contiguous", shape, what, silu, true));
    all.push_back(make_row<bfloat16>("bfloat16", shape, what));
  }
  return all;
}
