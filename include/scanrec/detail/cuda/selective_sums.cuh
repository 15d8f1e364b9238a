// SPDX-License-Identifier: BSD-3-Clause
// Kernels that add up the partial gradients that the blocks of a selective adjoint have written, in
// a fixed order and in double.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/selective_problem.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// Gradients of intervals, or of B or C that vary with the step. One thread per number adds up the
/// partial sums of a row's blocks. A row is one group of one sequence; for intervals, all groups.
template <class V>
struct add_selective_tiles {
  static constexpr int threads = 128, blocks_together = 8;
  static constexpr bool synchronises = false;

  const V* partial;  // (row, tile, time, state); a tile is the channels of a block
  std::int64_t groups, tiles, time, states, numbers;
  device_rows<V> to;
  bool update;

  SCANREC_DEVICE void operator()() const {
    const std::int64_t i = device::block_index() * threads + device::thread_index();
    if (i >= numbers) return;
    const std::int64_t in_tile = i % (time * states), row = i / (time * states);
    double sum = 0;
    SCANREC_UNROLL_BY_4
    for (std::int64_t tile = 0; tile < tiles; ++tile)
      sum += static_cast<double>(partial[(row * tiles + tile) * time * states + in_tile]);
    const std::int64_t position =
        to.offset(row / groups, in_tile / states, in_tile % states, row % groups);
    const V total[1] = {static_cast<V>(sum)};
    to.store(total, update, [&](int) SCANREC_LAMBDA { return position; });
  }
};

/// Gradients of arrays that all sequences share. One thread per number adds up the partial sums of
/// the sequences.
template <class V>
struct add_selective_sequences {
  static constexpr int threads = 128, blocks_together = 8;
  static constexpr bool synchronises = false;
  struct sum {
    const double* partial = nullptr;  // (batch, channel, state, part)
    value_array<V> to{};              // real parts; each imaginary part follows its real part
    std::int64_t states = 1, parts = 1;
  };
  static constexpr int most = 5;

  sum sums[most];
  std::int64_t batch, channels;
  bool update;

  /// The number of values of all gradients together.
  [[nodiscard]] std::int64_t count() const {
    std::int64_t all = 0;
    for (const sum& s : sums) all += s.partial ? channels * s.states * s.parts : 0;
    return all;
  }
  SCANREC_DEVICE void operator()() const {
    std::int64_t i = device::block_index() * threads + device::thread_index();
    SCANREC_UNROLL
    for (int k = 0; k < most; ++k) {
      const sum& s = sums[k];
      if (s.partial == nullptr) continue;
      const std::int64_t of_channel = s.states * s.parts, numbers = channels * of_channel;
      if (i >= 0 && i < numbers) {
        double total = 0;
        for (std::int64_t b = 0; b < batch; ++b) total += s.partial[b * numbers + i];
        V* const to = s.to.at(0, i / of_channel, i % of_channel / s.parts) + i % s.parts;
        *to = (update ? *to : V(0)) + static_cast<V>(total);
      }
      i -= numbers;
    }
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
