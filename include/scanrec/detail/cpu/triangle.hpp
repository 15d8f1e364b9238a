// SPDX-License-Identifier: BSD-3-Clause
// The lower triangular matrix L[i][j] = gate[j + 1] ... gate[i] of a chunk of steps. The states are
// L times the inputs. Needs Eigen.
//
// L is never applied above its diagonal, not even as zeros: blocks on the diagonal are applied by
// substitution, and only blocks strictly below it by matrix products. So a value that is not finite
// does not affect earlier states.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <Eigen/Core>

#include <scanrec/detail/config.hpp>
#include <scanrec/detail/cpu/tile_plan.hpp>
#include <scanrec/detail/simd/lanes.hpp>
#include <scanrec/element.hpp>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace scanrec::detail::inline SCANREC_ABI {

/// Steps of a block on the diagonal of a triangle.
inline constexpr std::int64_t triangle_block = 64;
/// Most columns in one product.
inline constexpr std::int64_t triangle_columns = 32;

/// Layout of the parts of a triangle, in bytes.
struct triangle_offsets {
  std::int64_t last_row, running, all;
  triangle_offsets(std::int64_t chunk, std::int64_t value_bytes) {
    const std::int64_t n = round_up(chunk, triangle_block);
    last_row = round_up(n * n * value_bytes, 64);
    running = last_row + round_up(n * value_bytes, 64);
    all = running + round_up((n + 1) * 2 * value_bytes, 64);  // wide is at most twice as large
  }
};

/// While an object of this class exists, Eigen uses no threads other than the one that created it.
class one_thread {
 public:
#if defined(_OPENMP)
  one_thread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~one_thread() { omp_set_num_threads(before_); }
  one_thread(const one_thread&) = delete;
  one_thread& operator=(const one_thread&) = delete;

 private:
  int before_;
#else
  one_thread() {}  // NOLINT(modernize-use-equals-default): an unused variable otherwise
#endif
};

/// The triangle of a chunk, and its products with columns of inputs. T is the compute type.
template <class T>
class triangle {
 public:
  using wide = wide_t<T>;

  static constexpr std::int64_t panel = triangle_columns;

  triangle(std::byte* memory, std::int64_t chunk) : stride_(round_up(chunk, triangle_block)) {
    const triangle_offsets at(chunk, sizeof(T));
    below_ = reinterpret_cast<T*>(memory);
    last_row_ = reinterpret_cast<T*>(memory + at.last_row);
    running_ = reinterpret_cast<wide*>(memory + at.running);
  }

  /// Builds the triangle for these factors. The first factor applies to the state before the chunk
  /// only, not to inputs. Products are computed in the wide type, then rounded to T.
  void build(const T* factors, std::int64_t steps) {
    factors_ = factors, factor_stride_ = 1, steps_ = steps, first_row_ = 0;
    for (std::int64_t i = 0; i < steps; ++i) {
      wides(running_, i) *= wide(factors[i]);
      running_[i] = wide(1);
      const std::int64_t end = i / triangle_block * triangle_block;
      Eigen::Map<row>(below_ + i * stride_, end) = wides(running_, end).template cast<T>();
    }
  }
  /// Builds the triangle for equal factors. Only its last block of rows is stored, because that
  /// contains every block below the diagonal.
  void build_toeplitz(const T& factor, std::int64_t steps) {
    factors_ = &factor, factor_stride_ = 0, steps_ = steps, first_row_ = last_block();
    const std::int64_t most = last_block() + triangle_block;
    running_[most] = wide(1);  // running_[d] is factor^(most - d)
    for (std::int64_t d = most; d > 0; --d) running_[d - 1] = simd::mul(running_[d], wide(factor));
    for (std::int64_t i = 0; i < triangle_block; ++i)
      Eigen::Map<row>(below_ + i * stride_, last_block()) =
          wides(running_ + (triangle_block - i), last_block()).template cast<T>();
  }

  /// Turns columns of inputs, `apart` elements from each other, into columns of states.
  void apply(T* inputs, std::int64_t apart, std::int64_t columns) const {
    const one_thread guard;
    for (std::int64_t c = 0; c < columns; c += panel)
      apply_panel(inputs + c * apart, apart, std::min(panel, columns - c));
  }

  /// Computes the map of `steps` steps. Stores the weights of the inputs in the last state, and
  /// returns the factor of the state before the steps.
  wide build_last_row(const T* factors, std::int64_t factor_stride, std::int64_t steps) {
    steps_ = steps;
    wide product(1);
    for (std::int64_t j = steps - 1; j >= 0; --j) {
      last_row_[j] = T(product);
      product = simd::mul(product, wide(factors[j * factor_stride]));
    }
    return product;
  }
  /// Computes the offset of the map of build_last_row for each column of inputs: the last state
  /// from an initial state of 0.
  void reduce(const T* inputs, std::int64_t apart, std::int64_t columns, wide* offsets,
              std::int64_t offset_stride) const {
    const Eigen::Map<const row_vector> weights(last_row_, steps_);
    T offset[panel];
    for (std::int64_t c = 0; c < columns; c += panel) {
      const std::int64_t n = std::min(panel, columns - c);
      const T* const first = inputs + c * apart;
      if (n == 1)
        offset[0] = weights * Eigen::Map<const column>(first, steps_);
      else
        Eigen::Map<row_vector>(offset, n).noalias() =
            weights * Eigen::Map<const matrix, 0, stride>(first, steps_, n, stride(apart));
      for (std::int64_t i = 0; i < n; ++i) offsets[(c + i) * offset_stride] = wide(offset[i]);
    }
  }

 private:
  static constexpr int any = Eigen::Dynamic;
  using matrix = Eigen::Matrix<T, any, any>;
  using rows = Eigen::Matrix<T, any, any, Eigen::RowMajor>;
  using column = Eigen::Matrix<T, any, 1>;
  using row_vector = Eigen::Matrix<T, 1, any>;
  using row = Eigen::Array<T, 1, any>;
  using stride = Eigen::OuterStride<>;

  void apply_panel(T* inputs, std::int64_t apart, std::int64_t columns) const {
    for (std::int64_t s = last_block(); s >= 0; s -= triangle_block) {
      const std::int64_t n = std::min(triangle_block, steps_ - s);
      substitute(inputs + s, apart, columns, s, n);
      if (s == 0) return;
      // If L is Toeplitz, these blocks are the last s columns of the stored block of rows.
      const T* const first = below_ + (first_row_ == 0 ? s * stride_ : first_row_ - s);
      const Eigen::Map<const rows, 0, stride> factor(first, n, s, stride(stride_));
      if (columns == 1) {
        Eigen::Map<column>(inputs + s, n).noalias() += factor * Eigen::Map<const column>(inputs, s);
      } else {
        const Eigen::Map<const matrix, 0, stride> above(inputs, s, columns, stride(apart));
        Eigen::Map<matrix, 0, stride>(inputs + s, n, columns, stride(apart)).noalias() +=
            factor * above;
      }
    }
  }

  static auto wides(wide* first, std::int64_t n) {
    return Eigen::Map<Eigen::Array<wide, 1, any>>(first, n);
  }

  std::int64_t last_block() const { return (steps_ - 1) / triangle_block * triangle_block; }

  // Computes the states of a block from an initial state of 0. Processes a few columns side by
  // side, because their chains of multiply-adds hide each other's latency.
  void substitute(T* inputs, std::int64_t apart, std::int64_t columns, std::int64_t first,
                  std::int64_t n) const {
    constexpr std::int64_t together = 8;
    std::int64_t c = 0;
    for (; c + together <= columns; c += together) {
      T x[together];
      for (int k = 0; k < together; ++k) x[k] = inputs[(c + k) * apart];
      for (std::int64_t i = 1; i < n; ++i) {
        const T a = factors_[(first + i) * factor_stride_];
        for (int k = 0; k < together; ++k) {
          T& u = inputs[(c + k) * apart + i];
          u = x[k] = simd::fma(a, x[k], u);
        }
      }
    }
    for (; c < columns; ++c)
      for (std::int64_t i = 1; i < n; ++i) {
        T& u = inputs[c * apart + i];
        u = simd::fma(factors_[(first + i) * factor_stride_], inputs[c * apart + i - 1], u);
      }
  }

  T* below_;       // blocks below the diagonal, row by row
  T* last_row_;    // the weights of inputs in the last state
  wide* running_;  // the current row of L, or powers of the factor
  std::int64_t stride_;
  const T* factors_ = nullptr;
  std::int64_t factor_stride_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t first_row_ = 0;  // first row of the blocks in `below_`; 0 if it holds all
};

}  // namespace scanrec::detail::inline SCANREC_ABI
