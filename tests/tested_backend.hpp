// SPDX-License-Identifier: BSD-3-Clause
// The backends that tests run on, and their calls. A test that uses them links the objects
// tested_<type> (tests/CMakeLists.txt).
#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

// Whether gated scans are also tested with the comparison backends.
#if !defined(SCANREC_TEST_VARIANTS)
#define SCANREC_TEST_VARIANTS 1
#endif
// Eigen is slow to compile, so a build may leave out the backend that needs it.
#if !defined(SCANREC_TEST_EIGEN)
#if __has_include(<Eigen/Core>)
#define SCANREC_TEST_EIGEN 1
#else
#define SCANREC_TEST_EIGEN 0
#endif
#endif
#if SCANREC_TEST_EIGEN
#include <scanrec/triangular_matmul.hpp>
#include <scanrec/variants.hpp>
#endif
#include <scanrec/scan.hpp>

#include "chosen_backends.hpp"
#include "executed.hpp"
#include "operator_backends.hpp"
#include "tested_interface.hpp"

namespace tested {

/// Whether an array has a zero stride along an axis of several positions.
template <class T>
bool broadcast(const maybe<T>& v) {
  const auto along = [](std::int64_t n, std::int64_t stride) { return n > 1 && stride == 0; };
  return along(v.shape.group, v.strides.group) || along(v.shape.batch, v.strides.batch) ||
         along(v.shape.time, v.strides.time) || along(v.shape.channel, v.strides.channel);
}
template <class T>
bool backwards(const maybe<T>& v) {
  const strides& s = v.strides;
  return s.group < 0 || s.batch < 0 || s.time < 0 || s.channel < 0;
}

template <class T>
void linear_scan(const backend<T>& b, std::type_identity_t<maybe<T>> gate,
                 std::type_identity_t<maybe<T>> input, std::type_identity_t<maybe<T>> state,
                 const std::type_identity_t<scan_options<compute_t<T>>>& options = {}) {
  b.calls->forward(gate, input, state, options);
  record_call(b.name, "linear_scan",
              {{"`direction::reverse`", options.order == direction::reverse},
               {"`initial_state`", !options.initial_state.absent()},
               {"`final_state`", !options.final_state.absent()},
               {"`resets`", !options.resets.absent()},
               {"no array of states", state.absent()},
               {"states in place of inputs", state.data == input.data},
               {"a gate or input that broadcasts", broadcast(gate) || broadcast(input)},
               {"contiguous channels", input.strides.channel == 1},
               {"contiguous time", input.strides.time == 1},
               {"negative strides", backwards(gate) || backwards(input) || backwards(state)},
               {"groups", input.shape.group > 1},
               {"no elements", scanrec::detail::element_count(gate.shape) == 0}});
}
template <class T>
void linear_scan_vjp(const backend<T>& b, std::type_identity_t<maybe<T>> gate,
                     std::type_identity_t<maybe<T>> state, std::type_identity_t<maybe<T>> grad,
                     const std::type_identity_t<scan_gradients<T>>& gradients,
                     const std::type_identity_t<vjp_options<compute_t<T>>>& options = {}) {
  b.calls->vjp(gate, state, grad, gradients, options);
  record_call(b.name, "linear_scan_vjp",
              {{"`direction::reverse`", options.order == direction::reverse},
               {"`initial_state`", !options.initial_state.absent()},
               {"`final_grad`", !options.final_grad.absent()},
               {"`resets`", !options.resets.absent()},
               {"`gate_grad`", !gradients.gate_grad.absent()},
               {"`input_grad`", !gradients.input_grad.absent()},
               {"`initial_grad`", !gradients.initial_grad.absent()},
               {"gradients that are sums",
                broadcast<T>(gradients.gate_grad) || broadcast<T>(gradients.input_grad)},
               {"`update::accumulate`", gradients.update == update::accumulate},
               {"`conjugation::none`", options.convention == conjugation::none},
               {"no array of states", state.absent()},
               {"no `state_grad`", grad.absent()},
               {"`input_grad` in place of `state_grad`",
                !grad.absent() && grad.data == gradients.input_grad.data},
               {"contiguous channels", grad.strides.channel == 1},
               {"contiguous time", grad.strides.time == 1},
               {"negative strides", backwards(gate) || backwards(state) || backwards(grad)},
               {"groups", gate.shape.group > 1},
               {"no elements", scanrec::detail::element_count(gate.shape) == 0}});
}
template <class T>
void linear_scan_jvp(const backend<T>& b, std::type_identity_t<maybe<T>> gate,
                     std::type_identity_t<maybe<T>> state,
                     std::type_identity_t<maybe<T>> gate_tangent,
                     std::type_identity_t<maybe<T>> input_tangent,
                     std::type_identity_t<maybe<T>> state_tangent,
                     const std::type_identity_t<jvp_options<compute_t<T>>>& options = {}) {
  b.calls->jvp(gate, state, gate_tangent, input_tangent, state_tangent, options);
  record_call(b.name, "linear_scan_jvp",
              {{"`direction::reverse`", options.order == direction::reverse},
               {"`initial_state`", !options.initial_state.absent()},
               {"`initial_tangent`", !options.initial_tangent.absent()},
               {"`final_tangent`", !options.final_tangent.absent()},
               {"`resets`", !options.resets.absent()},
               {"no `gate_tangent`", gate_tangent.absent()},
               {"no `input_tangent`", input_tangent.absent()},
               {"no array of tangents", state_tangent.absent()},
               {"tangents in place of `input_tangent`",
                !input_tangent.absent() && input_tangent.data == state_tangent.data},
               {"contiguous channels", gate.strides.channel == 1},
               {"contiguous time", gate.strides.time == 1},
               {"negative strides", backwards(gate) || backwards(state)},
               {"groups", gate.shape.group > 1},
               {"no elements", scanrec::detail::element_count(gate.shape) == 0}});
}

/// Whether the backend that needs Eigen is available and tested. Eigen reads a complex<float> as a
/// double that may be unaligned, which the undefined behaviour sanitizer rejects. GCC has a macro
/// only for the address sanitizer. This project always runs both sanitizers together.
template <class T>
constexpr bool with_eigen = SCANREC_TEST_EIGEN
#if defined(__SANITIZE_ADDRESS__)
                            && !std::is_same_v<T, std::complex<float>>
#endif
    ;

#if defined(SCANREC_TEST_CUDA)
template <class T>
void push_device_backends(std::vector<backend<T>>& list) {
  const auto push = [&](const char* name, device_backend which, [[maybe_unused]] int every = 1,
                        int more = 0) {
    list.push_back({name, which, more});
#if defined(SCANREC_TEST_CUDA_ON_HOST)
    list.back().every = every;
#endif
  };
  constexpr bool exact = std::is_same_v<T, std::uint32_t>;
  push("cuda::lanes", device_backend::lanes, exact ? 1 : 2);
  push("cuda::hillis_steele", device_backend::hillis_steele, exact ? 1 : 3);
  push("cuda::blelloch", device_backend::blelloch, exact ? 1 : 3);
#if !defined(SCANREC_TEST_CUDA_ON_HOST)
  push("cuda::cub", device_backend::cub);
#endif
  // Backends whose blocks synchronise are slow on the emulator. They run only some cases, and fewer
  // for types that round. Under the address sanitizer they run only for uint32.
#if defined(__SANITIZE_ADDRESS__)
  if (!exact) return;
#endif
  push("cuda::lanes through a ring", device_backend::lanes_ring, exact ? 2 : 5);
  push("cuda::look_back", device_backend::look_back, exact ? 3 : 11, span_additions);
  push("cuda::look_back short tiles", device_backend::look_back_short_tiles, exact ? 2 : 5,
       span_additions);
  push("cuda::triangular_matmul", device_backend::triangular_matmul, exact ? 5 : 7, 128);
}
#endif

/// Every backend. The options are such that even short inputs cross tile edges, are split along
/// time, are processed by several threads, and are written by streaming stores. Add new backends
/// here.
template <class T>
std::vector<backend<T>> all_backends() {
  std::vector<backend<T>> list{
      {"sequential", sequential{}},
      {"tiled", tiled{}},
      {"tiled 1 thread", tiled{.threads = 1}},
      {"tiled 3 threads", tiled{.threads = 3}},
      {"tiled tile 16", tiled{.threads = 2, .tile_steps = 16}},
      {"tiled tile 7, streaming", tiled{.threads = 7, .tile_steps = 7, .stream_bytes = 1}},
      {"tiled tile 32, executor",
       tiled{.threads = 3, .tile_steps = 32, .executor = backwards_executor}},
      {"hillis_steele", hillis_steele{.threads = 1}},
      {"hillis_steele 3 threads", hillis_steele{.threads = 3}},
      {"blelloch", blelloch{.threads = 1}},
      {"blelloch 3 threads", blelloch{.threads = 3}},
  };
#if defined(SCANREC_TEST_CUDA)
  push_device_backends(list);
#endif
#if SCANREC_TEST_EIGEN
  if constexpr (with_eigen<T>) {
    list.push_back({"triangular_matmul", triangular_matmul{.threads = 1}, 128});
    list.push_back({"triangular_matmul chunk 7", triangular_matmul{.chunk = 7, .threads = 3}, 7});
    list.push_back(
        {"triangular_matmul chunk 80", triangular_matmul{.chunk = 80, .threads = 2}, 80});
  }
#endif
  return list;
}
/// The backends that the environment selects, the sequential loop first. A test case that requests
/// them must call each.
template <class T>
const std::vector<backend<T>>& backends() {
  static const std::vector<backend<T>> list = chosen_backends(all_backends<T>());
  for (const backend<T>& one : list) expect_backend(one.name);
  return list;
}
/// The sequential loop.
template <class T>
const backend<T>& loop() {
  static const backend<T> one("sequential", sequential{});
  return one;
}
/// Calls f(name, backend) for the backends that run this round of the test case. Slow backends skip
/// rounds, but not the first.
template <class T, class F>
void with_backends(F f) {
  static sampler turns;
  turns.next_round();
  for (const backend<T>& one : backends<T>())
    if (turns.takes(one.every)) f(one.name, one);
}

/// The backends that have threads, with this number of threads. `own` selects a custom executor. An
/// entry must give the same bits for any `threads` and `own`.
template <class T>
std::vector<backend<T>> threaded_backends(int threads, bool own) {
  executor e;
  if (own) e = backwards_executor;
  std::vector<backend<T>> list;
  for (const std::int64_t tile : {0, 7, 16, 48})
    list.push_back(
        {"tiled tile " + std::to_string(tile),
         tiled{
             .threads = threads, .tile_steps = tile, .stream_bytes = own ? 1 : 0, .executor = e}});
  list.push_back({"hillis_steele", hillis_steele{.threads = threads, .executor = e}});
  list.push_back({"blelloch", blelloch{.threads = threads, .executor = e}});
#if SCANREC_TEST_EIGEN
  if constexpr (with_eigen<T>)
    for (const std::int64_t chunk : {7, 128})
      list.push_back({"triangular_matmul chunk " + std::to_string(chunk),
                      triangular_matmul{.chunk = chunk, .threads = threads, .executor = e}});
#endif
  for (const backend<T>& one : list) expect_backend(one.name);
  return list;
}

}  // namespace tested
