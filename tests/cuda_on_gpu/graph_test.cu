// SPDX-License-Identifier: BSD-3-Clause
// Tests of calls captured in CUDA graphs: the number of kernels, and the bits of every replay.
#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <scanrec/cuda/s5.cuh>
#include <scanrec/cuda/scan.cuh>

#include "catch.hpp"
#include "device_vector.hpp"

namespace {

using namespace scanrec;
using scanrec::cuda::detail::check;
using scanrec::cuda::detail::check_blas;
using tested::shared_vector;

/// A graph of the work that f queues in a stream.
class graph {
 public:
  template <class F>
  graph(cudaStream_t stream, F f) : stream_(stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    f();
    check(cudaStreamEndCapture(stream, &graph_), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable_, graph_, 0), "cudaGraphInstantiate");
  }
  graph(const graph&) = delete;
  graph& operator=(const graph&) = delete;
  ~graph() { cudaGraphExecDestroy(executable_), cudaGraphDestroy(graph_); }
  [[nodiscard]] std::size_t nodes() const {
    std::size_t count = 0;
    check(cudaGraphGetNodes(graph_, nullptr, &count), "cudaGraphGetNodes");
    return count;
  }
  void replay() const {
    check(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

struct arrays {
  extents shape;
  shared_vector<float> gate, input, state, grad, gate_grad, input_grad, decay_grad;

  explicit arrays(const extents& s) : shape(s) {
    std::uint32_t seed = 5;
    const auto n = static_cast<std::size_t>(s.batch * s.time * s.channel);
    for (auto* array : {&gate, &input, &state, &grad, &gate_grad, &input_grad}) {
      array->resize(n);
      for (float& x : *array)
        x = static_cast<float>((seed = seed * 1664525u + 1013904223u) >> 8) / 16777216.0f;
    }
    decay_grad.resize(static_cast<std::size_t>(s.channel));
  }
  sequence_view<float> view(shared_vector<float>& v) const { return {v.data(), shape}; }
  template <class Backend>
  void call(const Backend& on) {
    linear_scan(on, view(gate), view(input), view(state));
    linear_scan_vjp(on, view(gate), view(state), view(grad),
                    {.gate_grad = view(gate_grad), .input_grad = view(input_grad)});
    linear_scan_vjp(
        on, view(gate), view(state), view(grad),
        {.gate_grad = sequence_view<float>(decay_grad.data(), shape, strides{0, 0, 1, 0})});
  }
  void forget() {
    for (auto* array : {&state, &gate_grad, &input_grad, &decay_grad})
      std::memset(array->data(), 0xff, array->size() * sizeof(float));
  }
  bool operator==(const arrays& o) const {
    const auto same = [](const auto& x, const auto& y) {
      return std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
    };
    return same(state, o.state) && same(gate_grad, o.gate_grad) && same(input_grad, o.input_grad) &&
           same(decay_grad, o.decay_grad);
  }
};

TEST_CASE("replays of a graph have the bits of a call", "[gpu][graph]") {
  const tested::device_stream s;
  shared_vector<double> room(1 << 20, 0.0);
  const auto check_backend = [&](auto on, const extents& shape) {
    for (const auto content : {cuda::workspace_content::unknown, cuda::workspace_content::kept}) {
      on.stream = s.get();
      on.workspace = {room.data(), static_cast<std::int64_t>(room.size() * sizeof(double)),
                      cuda::workspace_content::unknown};
      arrays wanted(shape), got(shape);
      wanted.call(on);
      s.finish();
      on.workspace.content = content;
      std::memset(room.data(), 0, room.size() * sizeof(double));
      const graph captured(s.get(), [&] { got.call(on); });
      for (int round = 0; round < 3; ++round) {
        got.forget();
        captured.replay();
        CHECK((got == wanted));
      }
    }
  };
  const extents few{.batch = 2, .time = 5000, .channel = 3},
      many{.batch = 2, .time = 300, .channel = 8192};
  check_backend(cuda::lanes{.stream = nullptr}, few);
  check_backend(cuda::look_back{.stream = nullptr}, few);
  check_backend(cuda::automatic{.stream = nullptr}, few);
  check_backend(cuda::automatic{.stream = nullptr}, many);
}

TEST_CASE("a small scan is one kernel", "[gpu][graph]") {
  const tested::device_stream s;
  shared_vector<double> room(1 << 18, 0.0);
  arrays a({.batch = 1, .time = 1024, .channel = 64});
  const cuda::automatic on{
      .stream = s.get(),
      .workspace = {room.data(), static_cast<std::int64_t>(room.size() * sizeof(double)),
                    cuda::workspace_content::kept}};
  const graph captured(s.get(),
                       [&] { linear_scan(on, a.view(a.gate), a.view(a.input), a.view(a.state)); });
  CHECK(captured.nodes() == 1);
}

TEST_CASE("a captured state space includes its matrix products", "[gpu][graph][s5]") {
  // 16 states, 8 inputs and 8 outputs. All states have the same parameters.
  constexpr std::int64_t P = 16, H = 8, T = 200;
  using complex = std::complex<float>;
  shared_vector<complex> lambda(P, complex(-0.5f, 1.0f)), b(P * H, complex(0.1f, 0.2f)),
      c(H * P, complex(0.3f, -0.1f)), states(T * P);
  shared_vector<float> log_step(P, -1.0f), u(T * H), y(T * H), want;
  for (std::size_t i = 0; i < u.size(); ++i) u[i] = static_cast<float>(i % 7);
  const cuda::s5_system<float> system{.lambda = lambda.data(),
                                      .input = b.data(),
                                      .output = c.data(),
                                      .log_step = log_step.data(),
                                      .states = P,
                                      .inputs = H,
                                      .outputs = H};
  const extents shape{.batch = 1, .time = T, .channel = H}, wide{1, T, P};
  const sequence_view<const float> in(u.data(), shape);
  const sequence_view<float> out(y.data(), shape);
  const sequence_view<complex> x(states.data(), wide);
  const tested::device_stream s;
  check_blas(cublasSetStream(s.blas(), s.get()), "cublasSetStream");
  cuda::automatic on{.stream = s.get()};
  const std::int64_t bytes = cuda::s5_workspace_bytes(on, system, in, x, out);
  shared_vector<double> room(static_cast<std::size_t>((bytes + 7) / 8));
  // During capture the caller must also provide the workspace of cuBLAS.
  shared_vector<double> of_blas(1 << 20);
  check_blas(cublasSetWorkspace(s.blas(), of_blas.data(), of_blas.size() * sizeof(double)),
             "cublasSetWorkspace");
  on.workspace = {room.data(), bytes};
  const auto call = [&] { cuda::s5(on, s.blas(), system, in, x, out); };
  call();
  s.finish();
  want = y;
  const graph captured(s.get(), call);
  for (int round = 0; round < 2; ++round) {
    std::fill(y.begin(), y.end(), -1.0f);
    captured.replay();
    CHECK(std::equal(y.begin(), y.end(), want.begin()));
  }
}

}  // namespace
