// SPDX-License-Identifier: BSD-3-Clause
// The interface of tested backends: linear_scan, its vjp and its jvp for one element type. With it,
// a test is compiled once and runs on every backend.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <scanrec/element.hpp>
#include <scanrec/options.hpp>
#include <scanrec/variants.hpp>
#include <scanrec/views.hpp>

namespace tested {

using namespace scanrec;  // tests only

/// A view; `none` converts to an absent view.
template <class T>
struct maybe : sequence_view<T> {
  maybe(none_t) {}                                    // NOLINT(google-explicit-constructor)
  maybe(sequence_view<T> v) : sequence_view<T>(v) {}  // NOLINT(google-explicit-constructor)
};

template <class T>
class backend_of {
 public:
  using V = compute_t<T>;
  virtual ~backend_of() = default;
  virtual void forward(maybe<T> gate, maybe<T> input, maybe<T> state,
                       const scan_options<V>& options) const = 0;
  virtual void vjp(maybe<T> gate, maybe<T> state, maybe<T> grad, const scan_gradients<T>& gradients,
                   const vjp_options<V>& options) const = 0;
  virtual void jvp(maybe<T> gate, maybe<T> state, maybe<T> gate_tangent, maybe<T> input_tangent,
                   maybe<T> state_tangent, const jvp_options<V>& options) const = 0;
};

/// The calls of a backend on arrays of T. They are compiled once per element type for all tests,
/// from tested_calls.hpp.
template <class T, class Backend>
std::shared_ptr<const backend_of<T>> calls_of(Backend backend);

/// The GPU backends. Tests and kernels may be compiled by different compilers, so backends have
/// names here instead of types.
enum class device_backend {
  lanes,
  lanes_ring,
  look_back,
  look_back_short_tiles,
  hillis_steele,
  blelloch,
  triangular_matmul,
  cub,
};
/// Additions per term in cuda::look_back beyond those of most backends. It composes the maps of the
/// tiles of a span as well as those of the segments of a tile.
inline constexpr int span_additions = 3;
/// The calls of a GPU backend, compiled from device_calls.hpp.
template <class T>
std::shared_ptr<const backend_of<T>> device_calls_of(device_backend which);

/// A named backend.
template <class T>
struct backend {
  std::string name;
  std::shared_ptr<const backend_of<T>> calls;
  int more = 0;   // additions per term beyond those of most backends
  int every = 1;  // a slow backend runs one in this many cases

  template <class B>
  backend(std::string as, B made, int more_additions = 0)
      : name(std::move(as)), more(more_additions) {
    if constexpr (std::is_same_v<B, device_backend>)
      calls = device_calls_of<T>(made);
    else
      calls = calls_of<T>(std::move(made));
  }
};

}  // namespace tested
