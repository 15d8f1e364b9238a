// SPDX-License-Identifier: BSD-3-Clause
// The mapping of a selective scan to blocks and threads, and the layout of shared memory.
//
// A block has 128 threads and some channels of one sequence. L lanes of a warp share a channel and
// have S states each: state i L + l is the i-th state of lane l. The adjoint may use another order
// (selective_tile.cuh). Step sizes, inputs and outputs are real, while states may be complex.
//
// Chunks of steps are counted from the end of the sequence, so that checkpoints lie between them.
// The earliest chunk may begin before step 0; its extra steps are idle. S and L depend on the
// kernel (forward or adjoint), the type of the states, and all sizes of a problem except the number
// of steps. They do not depend on the GPU, so the order of sums is the same on every GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cpu/selective_state_lanes.hpp>
#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/recurrence/selective.hpp>
#include <scanrec/memory.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

inline constexpr int selective_threads = 128;

/// Four consecutive steps of B or C for one state. If V is float, one access reads all four.
template <class V>
struct alignas(16) four_steps {
  V of[4];

  SCANREC_DEVICE SCANREC_INLINE static four_steps same(V x) { return {{x, x, x, x}}; }
  SCANREC_DEVICE SCANREC_INLINE V at(int j) const { return of[j]; }
};
/// Four consecutive steps of B or C for one complex state.
template <class V>
struct four_complex_steps {
  four_steps<V> re, im;

  SCANREC_DEVICE SCANREC_INLINE static four_complex_steps same(simd::complex_lanes<V> x) {
    return {four_steps<V>::same(x.re), four_steps<V>::same(x.im)};
  }
  SCANREC_DEVICE SCANREC_INLINE simd::complex_lanes<V> at(int j) const {
    return {re.of[j], im.of[j]};
  }
};
/// B or C for a state of type X at four steps.
template <class X>
using mixed_steps =
    std::conditional_t<simd::is_complex_lanes<X>, four_complex_steps<simd::real_lane_t<X>>,
                       four_steps<simd::real_lane_t<X>>>;

template <class V>
struct alignas(2 * sizeof(V)) value_pair {
  V first, second;
};

/// The stored form of a state in shared memory and workspaces, read by one access.
SCANREC_DEVICE SCANREC_INLINE float stored_state(float x) { return x; }
SCANREC_DEVICE SCANREC_INLINE double stored_state(double x) { return x; }
template <class R>
SCANREC_DEVICE SCANREC_INLINE value_pair<R> stored_state(const simd::complex_lanes<R>& x) {
  return {x.re, x.im};
}
SCANREC_DEVICE SCANREC_INLINE float loaded_state(float x) { return x; }
SCANREC_DEVICE SCANREC_INLINE double loaded_state(double x) { return x; }
template <class R>
SCANREC_DEVICE SCANREC_INLINE simd::complex_lanes<R> loaded_state(const value_pair<R>& x) {
  return {x.first, x.second};
}
/// The stored type of states of type V.
template <class V>
using stored_state_t = decltype(stored_state(simd::lane_t<V, 1>()));

/// The shape of a block: states of type V, S states per lane, and L lanes per channel.
template <class V, int S, int L>
struct selective_shape {
  using number = V;
  using value = scanrec::detail::real_part_of<V>;  // of step sizes, inputs and outputs
  using state = simd::lane_t<V, 1>;                // the compute type of a number
  static constexpr int parts = scanrec::detail::parts_of<state>;
  static constexpr int own = S, lanes = L, states = S * L;
  static constexpr int channels = selective_threads / L;
  static constexpr int warps = selective_threads / device::warp_size;
  static constexpr int steps = states * sizeof(V) > 256 ? 16 : 32;  // of a chunk
  /// Elements of a thread in a chunk: of each array with channels, and of each part of B or C.
  static constexpr int elements = std::max(1, steps* channels / selective_threads);
  static constexpr int bc_elements = states * steps / selective_threads;
  static constexpr int run = std::min(elements, 4);  // elements of a run (selective_elements.cuh)
  /// Lengths of a step's row of channels, and of a state's row of steps. The padding puts
  /// neighbouring rows in different banks.
  static constexpr int row = channels + 1, state_row = steps + 4;

  static constexpr std::int64_t rounded(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }
  static constexpr std::int64_t row_bytes = rounded(steps * row * sizeof(value));
  static constexpr std::int64_t bc_bytes = states * state_row * sizeof(V);  // of all parts
  static constexpr std::int64_t channel_bytes = rounded(channels * sizeof(value));
  /// The number of threads that have elements, and the bytes for their offsets in one array.
  static constexpr int with_elements = std::min(selective_threads, steps* channels);
  static constexpr std::int64_t offset_bytes = with_elements * sizeof(std::int64_t);
  static constexpr std::int64_t bc_offset_bytes = 4 * sizeof(std::int64_t);
  static_assert(L >= 4 && L <= device::warp_size && bc_elements % 4 == 0);

  // The layout of shared memory. Both kernels have, per step and channel, (step size, step size *
  // u), y and, if there are any, resets. They also have B and C with their offsets, D and the bias.
  // The forward kernel adds the u and z of each thread's elements, and the offsets of these
  // elements in four arrays.
  static constexpr std::int64_t delta_u = 0, b = delta_u + 2 * row_bytes, c = b + bc_bytes,
                                d = c + bc_bytes, bias = d + channel_bytes,
                                y = bias + channel_bytes, forward_keep = y + row_bytes,
                                forward_offsets =
                                    forward_keep + 2 * elements * selective_threads * sizeof(value),
                                forward_reset_mask =
                                    forward_offsets + bc_offset_bytes + 4 * offset_bytes,
                                forward_bytes = forward_reset_mask;
  static constexpr std::int64_t reset_mask_bytes = steps * row * sizeof(std::uint32_t);

  // The adjoint adds gradients of y, sums over states, four values per element of each thread, and
  // the states before each group of four steps but the last. It also adds each warp's sums over its
  // channels (selective_products.cuh), and the offsets of the elements in seven arrays.
  static constexpr int sum_steps =
      std::clamp<int>(8192 / (warps * states * 2 * static_cast<int>(sizeof(V))) / 4 * 4, 4, steps);
  static constexpr int kept = 4;
  static constexpr std::int64_t y_grad = y + row_bytes, sums = y_grad + row_bytes,
                                keep = sums + 2 * row_bytes,
                                before = keep + kept * elements * selective_threads * sizeof(value),
                                products =
                                    before + (steps / 4 - 1) * S * selective_threads * sizeof(V),
                                vjp_offsets = products + 2 * warps * sum_steps * states * sizeof(V),
                                vjp_reset_mask = vjp_offsets + bc_offset_bytes + 7 * offset_bytes,
                                vjp_bytes = vjp_reset_mask;
  // If the adjoint computes gradients of intervals, it also keeps step sizes without intervals.
  static constexpr std::int64_t vjp_soft = vjp_reset_mask + reset_mask_bytes,
                                soft_bytes = elements * selective_threads * sizeof(value);
};

/// The channels of a block.
struct selective_position {
  std::int64_t row = 0, batch = 0, group = 0, tile = 0;  // row: index over groups and sequences
  std::int64_t channel = 0;                              // the first channel
  int count = 0;
};

/// The blocks of a problem, and the channels of each.
struct selective_tiles {
  std::int64_t groups = 1, group_channels = 0, in_group = 0, rows = 0;
  int channels = 1;

  selective_tiles() = default;
  selective_tiles(std::int64_t batch, std::int64_t all_channels, std::int64_t of_groups, int tile)
      : groups(of_groups),
        group_channels(all_channels / of_groups),
        in_group((group_channels + tile - 1) / tile),
        rows(batch * of_groups),
        channels(tile) {}
  [[nodiscard]] std::int64_t blocks() const { return rows * in_group; }
  SCANREC_HD SCANREC_INLINE selective_position of(std::int64_t block) const {
    selective_position at;
    at.tile = block % in_group, at.row = block / in_group;
    at.batch = at.row / groups, at.group = at.row % groups;
    const std::int64_t first = at.tile * channels, left = group_channels - first;
    at.channel = at.group * group_channels + first;
    at.count = static_cast<int>(left < channels ? left : channels);
    return at;
  }
};

/// The maximum number of states per channel; half as many for complex states.
template <class V>
inline constexpr std::int64_t selective_most_states = 1024 / static_cast<std::int64_t>(sizeof(V));

/// The kernel for which a shape is chosen.
enum class selective_pass { forward, adjoint };

/// States per lane for floats with up to 16 states, by the number of blocks of 32 channels. Four
/// states per lane need the fewest instructions, and one gives the most threads. The limits were
/// measured on an H200 with 16 to 2048 blocks of 2048 steps. With four states per lane, its 132
/// multiprocessors run 396 such blocks of the adjoint at once. With two, they run as many channels
/// as 264 such blocks have.
constexpr int selective_states_per_lane(selective_pass pass, std::int64_t blocks) {
  if (pass == selective_pass::forward) return blocks < 176 ? 1 : 4;
  return blocks <= 64 ? 1 : blocks > 264 && blocks <= 396 ? 4 : 2;
}

/// Calls f with the block shape for the given sizes.
template <class V, selective_pass Pass, class F>
auto with_selective_shape(std::int64_t batch, std::int64_t channels, std::int64_t groups,
                          std::int64_t states, F f) {
  if constexpr (std::is_same_v<V, float>) {
    if (states <= 16) {
      const int own =
          selective_states_per_lane(Pass, selective_tiles(batch, channels, groups, 32).blocks());
      if (own == 4) return f(selective_shape<V, 4, 4>());
      if constexpr (Pass == selective_pass::adjoint)
        if (own == 2) return f(selective_shape<V, 2, 8>());
      return f(selective_shape<V, 1, 16>());
    }
    if (states <= 64) return f(selective_shape<V, 4, 16>());
    return f(selective_shape<V, 8, 32>());
  } else if constexpr (scanrec::detail::is_complex<V>) {
    if (states <= 16) return f(selective_shape<V, 1, 16>());
    return f(selective_shape<V, 32 / static_cast<int>(sizeof(V)), 32>());
  } else {
    if (states <= 16) return f(selective_shape<V, 1, 16>());
    if (states <= 64) return f(selective_shape<V, 4, 16>());
    return f(selective_shape<V, 4, 32>());
  }
}

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
