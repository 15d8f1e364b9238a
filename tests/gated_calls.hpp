// SPDX-License-Identifier: BSD-3-Clause
// The interface through which tests call gated_scan and its adjoint, for one cell, element type and
// backend. Kernels are compiled in separate source files (see tests/CMakeLists.txt).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <scanrec/cells/min_gru.hpp>
#include <scanrec/cells/qrnn.hpp>
#include <scanrec/cells/rg_lru.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/variants.hpp>

#include "chosen_backends.hpp"
#include "executed.hpp"
#if defined(__CUDACC__)  // here `sequential` is the only CPU backend
#include "device_backend.hpp"
#include "tested_interface.hpp"
#else
#include "tested_backend.hpp"
#endif

namespace tested {

/// A memory policy that is chosen at run time.
template <class T>
struct kept {
  sequence_view<T> states;                  // absent: not stored
  sequence_view<compute_t<T>> checkpoints;  // absent: no checkpoints
};

template <class Cell, class T>
class gated_calls {
 public:
  using V = compute_t<T>;
  using arrays = typename Cell::template arrays<sequence_view<T>>;
  virtual ~gated_calls() = default;
  virtual void forward(const Cell& cell, const arrays& pre, const sequence_view<T>& output,
                       const kept<T>& memory, const gated_options<V>& options) const = 0;
  virtual void vjp(const Cell& cell, const arrays& pre, const kept<T>& memory,
                   const maybe<T>& output_grad, const gated_gradients<Cell, T>& gradients,
                   const gated_vjp_options<V>& options) const = 0;
};

template <class Cell, class T, class Backend>
class gated_calls_of final : public gated_calls<Cell, T> {
 public:
  using typename gated_calls<Cell, T>::V;
  using typename gated_calls<Cell, T>::arrays;
  explicit gated_calls_of(Backend backend) : backend_(std::move(backend)) {}
  void forward(const Cell& cell, const arrays& pre, const sequence_view<T>& output,
               const kept<T>& memory, const gated_options<V>& options) const override {
    if (!memory.states.absent())
      gated_scan(backend_, cell, pre, output, memory::store{memory.states}, options);
    else if (!memory.checkpoints.absent())
      gated_scan(backend_, cell, pre, output, memory::recompute{memory.checkpoints}, options);
    else
      gated_scan(backend_, cell, pre, output, none, options);
  }
  void vjp(const Cell& cell, const arrays& pre, const kept<T>& memory, const maybe<T>& output_grad,
           const gated_gradients<Cell, T>& gradients,
           const gated_vjp_options<V>& options) const override {
    const sequence_view<T> grad = output_grad;
    if (memory.states.absent()) {
      if constexpr (scanrec::detail::recomputes_states<Backend>)
        gated_scan_vjp(backend_, cell, pre, memory::recompute{memory.checkpoints}, grad, gradients,
                       options);
    } else if (grad.absent())
      gated_scan_vjp(backend_, cell, pre, memory::store{memory.states}, none, gradients, options);
    else
      gated_scan_vjp(backend_, cell, pre, memory::store{memory.states}, grad, gradients, options);
  }

 private:
  Backend backend_;
};

/// A backend with a name.
template <class Cell, class T>
struct gated_backend {
  std::string name;
  std::shared_ptr<const gated_calls<Cell, T>> calls;
  bool serial = false;     // gives the bits of `sequential` if time is not split
  int more = 0;            // additions per term beyond those of most backends
  bool recomputes = true;  // its adjoint supports memory::recompute

  using V = compute_t<T>;
  using arrays = typename gated_calls<Cell, T>::arrays;
  void forward(const Cell& cell, const arrays& pre, const sequence_view<T>& output,
               const kept<T>& memory, const gated_options<V>& options) const {
    calls->forward(cell, pre, output, memory, options);
    record_call(name, "gated_scan",
                {{"`direction::reverse`", options.order == direction::reverse},
                 {"`initial_state`", !options.initial_state.absent()},
                 {"`final_state`", !options.final_state.absent()},
                 {"`resets`", !options.resets.absent()},
                 {"`zoneout`", !options.zoneout.absent()},
                 {"`memory::store`", !memory.states.absent()},
                 {"`memory::recompute`", !memory.checkpoints.absent()},
                 {"contiguous channels", output.strides.channel == 1},
                 {"contiguous time", output.strides.time == 1},
                 {"negative strides", output.strides.time < 0 || output.strides.channel < 0},
                 {"groups", output.shape.group > 1},
                 {"no elements", scanrec::detail::element_count(output.shape) == 0}});
  }
  void vjp(const Cell& cell, const arrays& pre, const kept<T>& memory, const maybe<T>& output_grad,
           const gated_gradients<Cell, T>& gradients, const gated_vjp_options<V>& options) const {
    calls->vjp(cell, pre, memory, output_grad, gradients, options);
    record_call(
        name, "gated_scan_vjp",
        {{"`direction::reverse`", options.order == direction::reverse},
         {"`initial_state`", !options.initial_state.absent()},
         {"`final_grad`", !options.final_grad.absent()},
         {"`initial_grad`", !gradients.initial_grad.absent()},
         {"`resets`", !options.resets.absent()},
         {"`zoneout`", !options.zoneout.absent()},
         {"`memory::store`", !memory.states.absent()},
         {"`memory::recompute`", memory.states.absent()},
         {"no `output_grad`", output_grad.absent()},
         {"`update::accumulate`", gradients.update == update::accumulate},
         {"contiguous channels", output_grad.strides.channel == 1},
         {"contiguous time", output_grad.strides.time == 1},
         {"negative strides", output_grad.strides.time < 0 || output_grad.strides.channel < 0},
         {"groups", output_grad.shape.group > 1}});
  }
};

/// Returns the backends that this build tests, `sequential` first. With their options, even short
/// inputs cross tile edges, have their time split over threads, and use streaming stores.
template <class Cell, class T>
std::vector<gated_backend<Cell, T>> gated_backends();

#if defined(TEST_NO_KERNELS)
template <>
std::vector<gated_backend<TEST_CELL, TEST_TYPE>> gated_backends<TEST_CELL, TEST_TYPE>();
#else
template <>
std::vector<gated_backend<TEST_CELL, TEST_TYPE>> gated_backends<TEST_CELL, TEST_TYPE>() {
  const auto made = []<class B>(const char* name, B backend, bool serial = false, int more = 0) {
    return gated_backend<TEST_CELL, TEST_TYPE>{
        name, std::make_shared<gated_calls_of<TEST_CELL, TEST_TYPE, B>>(std::move(backend)), serial,
        more, scanrec::detail::recomputes_states<B>};
  };
  std::vector<gated_backend<TEST_CELL, TEST_TYPE>> list{made("sequential", sequential{}, true)};
#if !defined(__CUDACC__)
  list.push_back(made("tiled", tiled{.threads = 2}));
  list.push_back(made("tiled tile 128", tiled{.threads = 3, .tile_steps = 128, .stream_bytes = 1}));
  list.push_back(made("tiled tile 37", tiled{.threads = 2, .tile_steps = 37}));
#endif
#if defined(SCANREC_TEST_CUDA_ON_HOST) || defined(__CUDACC__)
  namespace gpu = scanrec::cuda;
  list.push_back(
      made("cuda::lanes", on_device<gpu::lanes>{{.stream = nullptr, .steps_ahead = -1}}, true));
#if !defined(__SANITIZE_ADDRESS__)  // both are slow, and short tiles cover look_back
  list.push_back(made("cuda::lanes through a ring",
                      on_device<gpu::lanes>{{.stream = nullptr, .steps_ahead = 15}}, true));
  list.push_back(made("cuda::look_back", on_device<gpu::look_back>{}, false, span_additions));
#endif
  list.push_back(made("cuda::look_back short tiles",
                      on_device<gpu::look_back>{{.stream = nullptr, .segment_steps = 1}}, false,
                      span_additions));
#if TEST_ALL_BACKENDS && !defined(__SANITIZE_ADDRESS__)
  list.push_back(made("cuda::automatic", on_device<gpu::automatic>{}, false, span_additions));
#endif
#if TEST_ALL_BACKENDS > 1 && SCANREC_TEST_VARIANTS
  list.push_back(made("cuda::hillis_steele", on_device<gpu::hillis_steele>{}));
  list.push_back(made("cuda::blelloch", on_device<gpu::blelloch>{}));
  list.push_back(
      made("cuda::triangular_matmul", on_device<gpu::triangular_matmul<>>{}, false, 128));
#endif
#endif
#if TEST_ALL_BACKENDS && SCANREC_TEST_VARIANTS && !defined(__CUDACC__)
  list.push_back(made("hillis_steele", hillis_steele{.threads = 2}));
  list.push_back(made("blelloch", blelloch{.threads = 3}));
#if SCANREC_TEST_EIGEN
  list.push_back(
      made("triangular_matmul", triangular_matmul{.chunk = 40, .threads = 2}, false, 40));
#endif
#endif
  return list;
}
#endif

}  // namespace tested
