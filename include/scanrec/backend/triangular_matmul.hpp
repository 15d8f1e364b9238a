// SPDX-License-Identifier: BSD-3-Clause
// Triangular matrix products: the states of a chunk of steps are L times its inputs, where
// L[i][j] = gate[j + 1] ... gate[i]; the states between chunks are scanned. Needs Eigen.
//
// L is never applied above its diagonal, not even as zeros: blocks on the diagonal are solved by
// substitution, and only blocks strictly below it are products. So what is not finite stays out of
// its past. How many columns one L serves decides what this costs: all chunks of all batch rows
// where the gate is shared in time (then L is Toeplitz), all channels of a head where it is shared
// along channels, and one column elsewhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <Eigen/Core>

#include <scanrec/backend/materialised.hpp>
#include <scanrec/error.hpp>

namespace scanrec::inline SCANREC_ABI {

/// Scan by triangular matrices, `chunk` steps at a time: chunk * n work. For gates that are shared,
/// and for comparison. Any recurrence of numbers; none of vectors, and no other operator.
///
/// Bits     the same for any number of threads and any executor.
/// Memory   of the units at work factor and offset of every step, both once more in another order,
///          and a triangle per worker. See workspace_bytes(); Eigen's products take small buffers
///          of their own.
/// Range    within the error bound (docs/numerics.md) as long as no product of gates over- or
///          underflows; what is not finite never moves backwards in time, nor to another channel,
///          nor past a reset.
/// Throws   argument_error if chunk is less than 1.
/// Source   Dao and Gu, Transformers are SSMs (2024), section 6, for the chunked form.
struct triangular_matmul {
  std::int64_t chunk = 128;      ///< steps per triangle
  int threads = 0;               ///< workers; 0: all cores, fewer on small problems
  scanrec::executor executor{};  ///< who runs the workers; empty: OpenMP, or std::thread
};

}  // namespace scanrec::inline SCANREC_ABI

namespace scanrec::detail::inline SCANREC_ABI {

/// Steps of a block on the diagonal of a triangle.
inline constexpr std::int64_t triangle_block = 64;
/// Most columns that it is multiplied with at once.
inline constexpr std::int64_t triangle_columns = 32;

/// Where the parts of a triangle lie, in bytes.
struct triangle_places {
  std::int64_t last_row, running, all;
  triangle_places(std::int64_t chunk, std::int64_t value_bytes) {
    const std::int64_t n = round_up(chunk, triangle_block);
    last_row = round_up(n * n * value_bytes, 64);
    running = last_row + round_up(n * value_bytes, 64);
    all = running + round_up((n + 1) * 2 * value_bytes, 64);  // wide: at most twice as large
  }
};

/// Keeps Eigen from starting threads of its own in the calling thread.
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
    const triangle_places at(chunk, sizeof(T));
    below_ = reinterpret_cast<T*>(memory);
    last_row_ = reinterpret_cast<T*>(memory + at.last_row);
    running_ = reinterpret_cast<wide*>(memory + at.running);
  }

  /// For these factors; the first is met by no input, only by the state before the chunk.
  /// Products are formed in the wide type and rounded once.
  void build(const T* factors, std::int64_t steps) {
    factors_ = factors, factor_stride_ = 1, steps_ = steps, first_row_ = 0;
    for (std::int64_t i = 0; i < steps; ++i) {
      wides(running_, i) *= wide(factors[i]);
      running_[i] = wide(1);
      const std::int64_t end = i / triangle_block * triangle_block;
      Eigen::Map<row>(below_ + i * stride_, end) = wides(running_, end).template cast<T>();
    }
  }
  /// For equal factors: the last blocks of rows hold those of all others.
  void build_toeplitz(const T& factor, std::int64_t steps) {
    factors_ = &factor, factor_stride_ = 0, steps_ = steps, first_row_ = last_block();
    const std::int64_t most = last_block() + triangle_block;
    running_[most] = wide(1);  // powers from the highest to the lowest
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

  /// The map of `steps` steps, at its last one: its factor, and the weights of inputs.
  wide build_last_row(const T* factors, std::int64_t factor_stride, std::int64_t steps) {
    steps_ = steps;
    wide product(1);
    for (std::int64_t j = steps - 1; j >= 0; --j) {
      last_row_[j] = T(product);
      product = simd::mul(product, wide(factors[j * factor_stride]));
    }
    return product;
  }
  /// The offsets of those maps of columns of inputs, one after the other.
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
      // Of a Toeplitz matrix all blocks are in the rows of the last.
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

  // The states of a block from nothing before it: a few columns side by side, whose chains of
  // multiply-adds hide each other's latency.
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

  T* below_;       // blocks below the diagonal, row after row
  T* last_row_;    // the weights of inputs in the last state
  wide* running_;  // a row in the making
  std::int64_t stride_;
  const T* factors_ = nullptr;
  std::int64_t factor_stride_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t first_row_ = 0;  // 0, or the block of rows that `below_` holds
};

/// Slot 0 holds the first state, slot t + 1 the map of step t, as for doubling shifts. The slots of
/// a sequence are brought side by side, and taken in chunks.
struct triangular_scan : map_scan {
  static constexpr std::int64_t shift = 1;

  enum class shared { nothing, along_channels, in_time };

  triangular_scan(const triangular_matmul& backend, const problem& p) {
    if (backend.chunk < 1)
      throw argument_error("triangular_matmul", "chunk", "1 step or more",
                           std::to_string(backend.chunk));
    chunk = std::clamp<std::int64_t>(p.shape.time, 1, backend.chunk);
    bool time = p.shape.time > 1, channel = p.shape.channel > 1, batch = true;
    for (const array_use& array : p) {
      if (!array.makes_factor || !array.data) continue;
      time = time && array.strides.time == 0 && !array.one_channel_will_do;  // no resets
      channel = channel && array.strides.channel == 0;
      batch = batch && array.strides.batch == 0;
    }
    gate = time ? shared::in_time : channel ? shared::along_channels : shared::nothing;
    across_rows = time && batch;
  }

  static constexpr bool by_blocks = true;
  static constexpr std::int64_t cached_bytes = 1024 * 1024;
  static std::int64_t first_state(std::int64_t, const materialised_shape&) { return 0; }
  static std::int64_t slots(std::int64_t steps, const materialised_shape&) { return steps; }
  std::int64_t kept_bytes(const problem& p, const materialised_shape&) const {
    return p.shape.time * p.compute_bytes * (gate == shared::nothing ? 2 : 1);
  }
  /// Enough for wide products.
  std::int64_t rows(const problem& p) const {
    return across_rows ? ceil_div(triangle_columns, ceil_div(p.shape.time, chunk)) : 1;
  }
  std::int64_t scratch_bytes(const problem& p, const materialised_plan& plan) const {
    const std::int64_t workers = plan.shape.shared ? plan.threads : 1;
    return places(*this, p.shape.time, plan, p.compute_bytes).triangles +
           workers * triangle_places(chunk, p.compute_bytes).all;
  }

  template <class Columns, class R>
  class on;

  std::int64_t chunk = 1;
  shared gate = shared::nothing;
  bool across_rows = false;  // whether one factor serves all batch rows

 private:
  // Where the sequences, their factors and cuts, the maps of chunks, and the triangles lie.
  struct places {
    std::int64_t chunks, length, factors, cuts, offsets, products, chunk_cuts, triangles;
    places(const triangular_scan& s, std::int64_t steps, const materialised_plan& plan,
           std::int64_t value_bytes) {
      chunks = ceil_div(steps, s.chunk);
      length = chunks * s.chunk;
      const std::int64_t sequences = plan.width * plan.rows;
      const std::int64_t factored = s.gate == shared::along_channels ? plan.rows : sequences;
      factors = round_up(sequences * length * value_bytes, 64);
      // Equal factors take one place per channel.
      cuts =
          factors +
          round_up((s.gate == shared::in_time ? plan.width : factored * length) * value_bytes, 64);
      offsets = cuts + (s.gate == shared::in_time ? 0 : round_up(factored * length, 64));
      // In the wide type, at most twice as large.
      products = offsets + round_up(sequences * chunks * 2 * value_bytes, 64);
      chunk_cuts = products + round_up(sequences * chunks * 2 * value_bytes, 64);
      triangles = chunk_cuts + round_up(sequences * chunks, 64);
    }
  };
};

/// The scan of one unit's sequences: sequence (channel, row) is number channel * rows + row.
template <class Columns, class R>
class triangular_scan::on {
  using T = typename R::value;
  using wide = wide_t<T>;
  using scalar = simd::lane_t<T, 1>;
  using maps = map_planes<T>;

 public:
  on(const triangular_scan& s, const maps& buffer, std::byte* memory, std::int64_t rows,
     std::int64_t steps, const materialised_plan& plan, const R&, const team& all)
      : chunk_(s.chunk),
        gate_(s.gate),
        buffer_(buffer),
        memory_(memory),
        at_(s, steps, plan, sizeof(T)),
        rows_(rows),
        channels_(plan.strip),
        steps_(steps),
        plan_(plan),
        all_(all) {
    std::byte* const own = memory + plan.maps_bytes;
    inputs_ = reinterpret_cast<T*>(own);
    factors_ = reinterpret_cast<T*>(own + at_.factors);
    cuts_ = reinterpret_cast<unsigned char*>(own + at_.cuts);
    offsets_ = reinterpret_cast<wide*>(own + at_.offsets);
    products_ = reinterpret_cast<wide*>(own + at_.products);
    chunk_cuts_ = reinterpret_cast<unsigned char*>(own + at_.chunk_cuts);
    triangles_ = own + at_.triangles;
  }

  maps to_load(std::int64_t, std::int64_t begin, int piece) const {
    maps to = maps::over(memory_ + piece * plan_.buffer_bytes, plan_.plane, buffer_.cuts);
    to.states_only = gate_ == shared::in_time && begin > 1;
    return to.from(-begin * plan_.width);
  }
  void loaded(std::int64_t row, std::int64_t begin, std::int64_t end, int piece) {
    const maps from = to_load(row, begin, piece);
    transpose<true>(from, row, begin, end);
    if (!from.cuts) return;
    for (std::int64_t c = 0; c < (gate_ == shared::along_channels ? 1 : channels_); ++c)
      for (std::int64_t t = begin; t < end; ++t)
        cuts_[sequence(c, row) * at_.length + t] = from.cut(t * plan_.width + c) != 0;
  }
  maps to_finish(std::int64_t row, std::int64_t begin, std::int64_t end, int worker) {
    const maps to = to_load(row, begin, worker);
    transpose<false>(to, row, begin, end);
    return to;
  }
  void run() {
    if (steps_ == 1) return;
    if (gate_ == shared::in_time)
      by_channel();
    else
      by_chunk();
  }

 private:
  // How many items of so many elements are worth a piece of their own.
  static std::int64_t grains(std::int64_t elements) {
    return ceil_div(team::worth_a_piece, elements);
  }
  std::int64_t sequence(std::int64_t channel, std::int64_t row) const {
    return channel * rows_ + row;
  }
  triangle<T> triangle_of(int piece) const {
    return {triangles_ + piece * triangle_places(chunk_, sizeof(T)).all, chunk_};
  }

  // Slots of a channel side by side, and back: in squares of slots and channels.
  template <bool There>
  [[gnu::noinline]] void transpose(maps m, std::int64_t row, std::int64_t begin, std::int64_t end) {
    constexpr int lanes = simd::lanes_v<T>;
    using lane = simd::lane_t<T, lanes>;
    const std::int64_t squares = plan_.width == 1 ? 0 : (end - begin) / lanes;
    const std::int64_t whole = begin + squares * lanes;
    const auto sequence_at = [&](T* first, std::int64_t c) {
      return first + sequence(c, row) * at_.length;
    };
    for (std::int64_t t = begin; t < whole; t += lanes)
      for (std::int64_t c = 0; c < channels_; c += lanes) {
        const std::int64_t used = std::min<std::int64_t>(lanes, channels_ - c);
        lane square[lanes];
        const auto for_slots = [&](auto f) SCANREC_LAMBDA {
          for (int i = 0; i < lanes; ++i) f(square[i], (t + i) * plan_.width + c);
        };
        if constexpr (There) {
          for_slots([&](lane& x, std::int64_t i) SCANREC_LAMBDA { x = m.template load<lane>(i); });
          simd::transpose(square);
          for (std::int64_t k = 0; k < used; ++k)
            simd::store_unit(sequence_at(inputs_, c + k) + t, square[k]);
          if (gate_ != shared::nothing) continue;
          for_slots([&](lane& x, std::int64_t i)
                        SCANREC_LAMBDA { x = m.template load<affine<lane>>(i).a; });
          simd::transpose(square);
          for (std::int64_t k = 0; k < used; ++k)
            simd::store_unit(sequence_at(factors_, c + k) + t, square[k]);
        } else {
          for (std::int64_t k = 0; k < lanes; ++k)
            square[k] = simd::load_unit<lane>(
                static_cast<const T*>(sequence_at(inputs_, c + std::min(k, used - 1)) + t));
          simd::transpose(square);
          for_slots([&](const lane& x, std::int64_t i) SCANREC_LAMBDA { m.store(i, x); });
        }
      }
    // What is left, and single channels.
    for (std::int64_t c = 0; c < channels_; ++c) {
      T* const x = sequence_at(inputs_, c);
      for (std::int64_t t = whole; t < end; ++t) {
        const std::int64_t i = t * plan_.width + c;
        if constexpr (There)
          x[t] = simd::to_element<T>(m.template load<scalar>(i));
        else
          m.store(i, simd::from_element(x[t]));
      }
      if constexpr (There) {
        const auto factor = [&](std::int64_t t) SCANREC_LAMBDA {
          return simd::to_element<T>(m.template load<affine<scalar>>(t * plan_.width + c).a);
        };
        if (gate_ == shared::in_time) {
          if (begin == 1) factors_[c] = factor(begin);
        } else if (gate_ == shared::nothing || c == 0) {
          T* const a = sequence_at(factors_, c);
          for (std::int64_t t = gate_ == shared::nothing ? whole : begin; t < end; ++t)
            a[t] = factor(t);
        }
        // The last chunk is filled up with nothing.
        if (end >= steps_) std::fill(x + steps_, x + at_.length, T(0));
      }
    }
  }

  // One Toeplitz triangle per channel, for all chunks of all rows.
  void by_channel() {
    const std::int64_t columns = rows_ * at_.chunks;
    all_.split(channels_, 1, [&](std::int64_t begin, std::int64_t end, int piece) {
      triangle<T> l = triangle_of(piece);
      for (std::int64_t c = begin; c < end; ++c) {
        const T a = factors_[c];
        const wide product = l.build_last_row(&a, 0, chunk_);
        T* const inputs = inputs_ + sequence(c, 0) * at_.length;
        wide* const offsets = offsets_ + sequence(c, 0) * at_.chunks;
        l.reduce(inputs, chunk_, columns, offsets, 1);
        for (std::int64_t row = 0; row < rows_; ++row)
          carry(
              inputs + row * at_.length,
              [&](std::int64_t m, wide x) {
                return m == 0 ? offsets[row * at_.chunks]
                              : simd::fma(product, x, offsets[row * at_.chunks + m]);
              },
              [&](std::int64_t) { return a; });
      }
    });
    const std::int64_t panel = triangle<T>::panel, panels = ceil_div(columns, panel);
    all_.split(channels_ * panels, grains(panel * chunk_),
               [&](std::int64_t begin, std::int64_t end, int piece) {
                 triangle<T> l = triangle_of(piece);
                 T a{};
                 for (std::int64_t i = begin; i < end; ++i) {
                   const std::int64_t c = i / panels, first = i % panels * panel;
                   if (i == begin || first == 0) a = factors_[c], l.build_toeplitz(a, chunk_);
                   l.apply(inputs_ + sequence(c, 0) * at_.length + first * chunk_, chunk_,
                           std::min(panel, columns - first));
                 }
               });
  }

  // A triangle per chunk, for one channel or for all.
  void by_chunk() {
    const bool all_channels = gate_ == shared::along_channels;
    const std::int64_t columns = all_channels ? channels_ : 1;
    const std::int64_t apart = rows_ * at_.length;
    const std::int64_t owners = all_channels ? rows_ : channels_ * rows_;
    // Calls f(triangle, owner of the factors, chunk) for all chunks.
    const auto for_chunks = [&](auto f) {
      all_.split(owners * at_.chunks, grains(columns * chunk_),
                 [&](std::int64_t begin, std::int64_t end, int piece) {
                   triangle<T> l = triangle_of(piece);
                   for (std::int64_t i = begin; i < end; ++i) f(l, i / at_.chunks, i % at_.chunks);
                 });
    };
    for_chunks([&](triangle<T>& l, std::int64_t owner, std::int64_t m) {
      // What follows the last cut.
      std::int64_t first = m * chunk_;
      const std::int64_t end = std::min(first + chunk_, steps_);
      unsigned char& cut = chunk_cuts_[owner * at_.chunks + m];
      cut = 0;
      for (std::int64_t t = first; t < end; ++t)
        if (cut_at(owner, t)) first = t, cut = 1;
      products_[owner * at_.chunks + m] =
          l.build_last_row(factors_ + owner * at_.length + first, 1, end - first);
      l.reduce(inputs_ + owner * at_.length + first, apart, columns,
               offsets_ + owner * at_.chunks + m, rows_ * at_.chunks);
    });
    all_.split(channels_ * rows_, grains(at_.length), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t q = begin; q < end; ++q) {
        const std::int64_t owner = all_channels ? q % rows_ : q;
        carry(
            inputs_ + q * at_.length,
            [&](std::int64_t m, wide x) {
              const std::int64_t i = owner * at_.chunks + m;
              const wide& offset = offsets_[q * at_.chunks + m];
              return m == 0 || chunk_cuts_[i] ? offset : simd::fma(products_[i], x, offset);
            },
            [&](std::int64_t t) {
              return cut_at(owner, t) ? nullptr : factors_ + owner * at_.length + t;
            });
      }
    });
    for_chunks([&](triangle<T>& l, std::int64_t owner, std::int64_t m) {
      // The triangle is cut where the sequence is.
      const std::int64_t end = std::min((m + 1) * chunk_, steps_);
      for (std::int64_t first = m * chunk_, next = first; first < end; first = next) {
        for (++next; next < end && !cut_at(owner, next);) ++next;
        l.build(factors_ + owner * at_.length + first, next - first);
        l.apply(inputs_ + owner * at_.length + first, apart, columns);
      }
    });
  }
  bool cut_at(std::int64_t owner, std::int64_t t) const {
    return buffer_.cuts && cuts_[owner * at_.length + t] != 0;
  }

  // Adds the state between chunks to the first input of every chunk but the first. `after(m, x)`
  // is the state after chunk m.
  template <class After, class FactorAt>
  void carry(T* inputs, After after, FactorAt factor_at) {
    wide x{};
    for (std::int64_t m = 0; m + 1 < at_.chunks; ++m) {
      x = after(m, x);
      T& first = inputs[(m + 1) * chunk_];
      const auto factor = factor_at((m + 1) * chunk_);
      if constexpr (std::is_pointer_v<decltype(factor)>) {
        if (factor) first = simd::fma(*factor, T(x), first);
      } else {
        first = simd::fma(factor, T(x), first);
      }
    }
  }

  std::int64_t chunk_;
  shared gate_;
  maps buffer_;  // of the first worker
  std::byte* memory_;
  places at_;
  std::int64_t rows_, channels_, steps_;
  const materialised_plan& plan_;
  const team& all_;
  T* inputs_;
  T* factors_;
  unsigned char* cuts_;
  wide* offsets_;
  wide* products_;
  unsigned char* chunk_cuts_;
  std::byte* triangles_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// Runs a recurrence, given in scan order.
template <class R>
requires(!R::one_by_one) void run_recurrence(const triangular_matmul& backend, const R& recurrence,
                                             const problem& p) {
  detail::run_materialised(detail::triangular_scan(backend, p), backend, recurrence, p);
}

template <class R>
requires(R::one_by_one) void run_recurrence(const triangular_matmul&, const R&, const problem&) {
  static_assert(!R::one_by_one,
                "scanrec: triangular_matmul runs recurrences of numbers, not of vectors or with "
                "another operator");
}

/// Bytes the backend allocates for a problem; up to 8 KiB come from the stack.
inline std::int64_t workspace_bytes(const triangular_matmul& backend, const problem& p) {
  return detail::plan_materialised(detail::triangular_scan(backend, p), p, backend.threads)
      .workspace_bytes;
}

}  // namespace scanrec::inline SCANREC_ABI
