// SPDX-License-Identifier: BSD-3-Clause
// Triangular matrix products: the states of a chunk of steps are L times its inputs, where L[i][j]
// = gate[j + 1] ... gate[i]. The states between chunks are scanned. Needs Eigen.
//
// The cost depends on the number of columns per L. If the gate is shared in time, L is Toeplitz,
// and the columns of a channel are all chunks of all batch rows of a work item. If the gate is
// shared along channels, the columns are the channels of a work item. Otherwise there is one
// column.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cpu/materialised.hpp>
#include <scanrec/detail/cpu/sequence_columns.hpp>
#include <scanrec/detail/cpu/triangle.hpp>
#include <scanrec/error.hpp>
#include <scanrec/triangular_matmul.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Slot 0 holds the initial state and slot t + 1 the map of step t, as in hillis_steele.hpp. The
/// slots of a sequence are made contiguous and processed in chunks.
struct triangular_scan : map_scan {
  static constexpr std::int64_t shift = 1;

  triangular_scan(const triangular_matmul& backend, const problem& p) {
    if (backend.chunk < 1)
      refuse("triangular_matmul", "chunk", "1 step or more", text(backend.chunk));
    chunk = std::clamp<std::int64_t>(p.shape.time, 1, backend.chunk);
    bool time = p.shape.time > 1, channel = p.shape.channel > 1, batch = true;
    for (const array_use& array : p) {
      if (!array.makes_factor || !array.data) continue;
      time = time && array.strides.time == 0 && !array.one_channel_will_do;  // no resets
      channel = channel && array.strides.channel == 0;
      batch = batch && array.strides.batch == 0;
    }
    gate = time      ? shared_gate::in_time
           : channel ? shared_gate::along_channels
                     : shared_gate::nothing;
    across_rows = time && batch;
  }

  static constexpr bool by_blocks = true;
  static constexpr std::int64_t cached_bytes = 1024 * 1024;
  static std::int64_t first_state(std::int64_t, const materialised_shape&) { return 0; }
  static std::int64_t slots(std::int64_t steps, const materialised_shape&) { return steps; }
  std::int64_t kept_bytes(const problem& p, const materialised_shape&) const {
    return p.shape.time * p.compute_bytes * (gate == shared_gate::nothing ? 2 : 1);
  }
  /// If all channels have the same gate, many lines, which then use one triangle; otherwise one.
  std::int64_t lines_of_a_row(const problem& p) const {
    return gate == shared_gate::along_channels
               ? std::max(triangle_columns,
                          cached_bytes / std::max<std::int64_t>(1, kept_bytes(p, {})))
               : 1;
  }
  /// If all steps and rows share the gate, enough rows for products with many columns, which
  /// outweigh the cost of building a triangle; otherwise one.
  std::int64_t rows(const problem& p, std::int64_t strip) const {
    if (!across_rows) return 1;
    return std::max(ceil_div(triangle_columns, ceil_div(p.shape.time, chunk)),
                    cached_bytes / std::max<std::int64_t>(1, kept_bytes(p, {}) * strip));
  }
  std::int64_t scratch_bytes(const problem& p, const materialised_plan& plan) const {
    const std::int64_t workers = plan.shape.shared ? plan.threads : 1;
    return layout(*this, p.shape.time, plan, p.compute_bytes).triangles +
           workers * triangle_offsets(chunk, p.compute_bytes).all;
  }

  template <class Columns, class R>
  class on;

  std::int64_t chunk = 1;
  shared_gate gate = shared_gate::nothing;
  bool across_rows = false;  // whether the gate is shared in time and by all batch rows

 private:
  // Layout of the sequences, their factors and resets, the maps of chunks, and the triangles.
  struct layout {
    std::int64_t chunks, length, factors, resets, offsets, products, chunk_resets, triangles;
    layout(const triangular_scan& s, std::int64_t steps, const materialised_plan& plan,
           std::int64_t value_bytes) {
      chunks = ceil_div(steps, s.chunk);
      length = chunks * s.chunk;
      const std::int64_t sequences = std::max(plan.width, plan.strip) * plan.rows;
      const std::int64_t factored = s.gate == shared_gate::along_channels ? plan.rows : sequences;
      factors = round_up(sequences * length * value_bytes, 64);
      // A gate that is shared in time needs at most one element per sequence.
      resets = factors + round_up((s.gate == shared_gate::in_time ? sequences : factored * length) *
                                      value_bytes,
                                  64);
      offsets = resets + (s.gate == shared_gate::in_time ? 0 : round_up(factored * length, 64));
      // Maps of chunks are in the wide type, which is at most twice as large.
      products = offsets + round_up(sequences * chunks * 2 * value_bytes, 64);
      chunk_resets = products + round_up(sequences * chunks * 2 * value_bytes, 64);
      triangles = chunk_resets + round_up(sequences * chunks, 64);
    }
  };
};

/// The scan of one work item's sequences.
template <class Columns, class R>
class triangular_scan::on {
  using T = typename R::value;
  using wide = wide_t<T>;
  using maps = map_planes<T>;

 public:
  on(const triangular_scan& s, const maps& buffer, std::byte* memory, std::int64_t rows,
     std::int64_t steps, const materialised_plan& plan, const R&, const team& workers)
      : chunk_(s.chunk), memory_(memory), plan_(plan), workers_(workers) {
    const layout at(s, steps, plan, sizeof(T));
    std::byte* const own = memory + plan.maps_bytes;
    all_ = {s.gate,
            buffer.with_resets,
            rows,
            plan.strip,
            steps,
            at.length,
            reinterpret_cast<T*>(own),
            reinterpret_cast<T*>(own + at.factors),
            reinterpret_cast<unsigned char*>(own + at.resets),
            &plan};
    chunks_ = at.chunks;
    offsets_ = reinterpret_cast<wide*>(own + at.offsets);
    products_ = reinterpret_cast<wide*>(own + at.products);
    chunk_resets_ = reinterpret_cast<unsigned char*>(own + at.chunk_resets);
    triangles_ = own + at.triangles;
  }

  maps to_load(std::int64_t line, std::int64_t begin, int piece) const {
    maps to = maps::over(memory_ + piece * plan_.buffer_bytes, plan_.plane, all_.any_resets);
    to.states_only = all_.states_only(line, begin);
    return to.from(-begin * plan_.width);
  }
  void loaded(std::int64_t line, std::int64_t begin, std::int64_t end, int piece) const {
    all_.take(to_load(line, begin, piece), line, begin, end);
  }
  maps to_finish(std::int64_t line, std::int64_t begin, std::int64_t end, int worker) const {
    const maps to = to_load(line, begin, worker);
    all_.give(to, line, begin, end);
    return to;
  }
  void run() {
    if (all_.steps == 1) return;
    if (all_.gate == shared_gate::in_time)
      by_channel();
    else
      by_chunk();
  }

 private:
  // Fewest parts, with this many elements each, that are worth another thread.
  static std::int64_t grains(std::int64_t elements) {
    return ceil_div(team::worth_a_piece, elements);
  }
  triangle<T> triangle_of(int piece) const {
    return {triangles_ + piece * triangle_offsets(chunk_, sizeof(T)).all, chunk_};
  }

  // One Toeplitz triangle per channel, for all chunks of all rows.
  void by_channel() {
    const std::int64_t columns = all_.rows * chunks_;
    workers_.split(all_.channels, 1, [&](std::int64_t begin, std::int64_t end, int piece) {
      triangle<T> l = triangle_of(piece);
      for (std::int64_t c = begin; c < end; ++c) {
        const T a = all_.factors[c];
        const wide product = l.build_last_row(&a, 0, chunk_);
        T* const inputs = all_.inputs_of(all_.sequence(c, 0));
        wide* const offsets = offsets_ + all_.sequence(c, 0) * chunks_;
        l.reduce(inputs, chunk_, columns, offsets, 1);
        for (std::int64_t row = 0; row < all_.rows; ++row)
          carry(
              inputs + row * all_.length,
              [&](std::int64_t m, wide x) {
                return m == 0 ? offsets[row * chunks_]
                              : simd::fma(product, x, offsets[row * chunks_ + m]);
              },
              [&](std::int64_t) { return a; });
      }
    });
    const std::int64_t panel = triangle<T>::panel, panels = ceil_div(columns, panel);
    workers_.split(all_.channels * panels, grains(panel * chunk_),
                   [&](std::int64_t begin, std::int64_t end, int piece) {
                     triangle<T> l = triangle_of(piece);
                     T a{};
                     for (std::int64_t i = begin; i < end; ++i) {
                       const std::int64_t c = i / panels, first = i % panels * panel;
                       if (i == begin || first == 0)
                         a = all_.factors[c], l.build_toeplitz(a, chunk_);
                       l.apply(all_.inputs_of(all_.sequence(c, 0)) + first * chunk_, chunk_,
                               std::min(panel, columns - first));
                     }
                   });
  }

  // A triangle per chunk, for one channel or for all.
  void by_chunk() {
    const bool all_channels = all_.gate == shared_gate::along_channels;
    const std::int64_t columns = all_channels ? all_.channels : 1;
    const std::int64_t apart = all_.rows * all_.length;
    const std::int64_t owners = all_channels ? all_.rows : all_.channels * all_.rows;
    // Calls f(triangle, owner, chunk) for all chunks. The owner is the sequence with the factors.
    const auto for_chunks = [&](auto f) {
      workers_.split(owners * chunks_, grains(columns * chunk_),
                     [&](std::int64_t begin, std::int64_t end, int piece) {
                       triangle<T> l = triangle_of(piece);
                       for (std::int64_t i = begin; i < end; ++i) f(l, i / chunks_, i % chunks_);
                     });
    };
    for_chunks([&](triangle<T>& l, std::int64_t owner, std::int64_t m) {
      // The map of the chunk contains only the steps from the last reset on.
      std::int64_t first = m * chunk_;
      const std::int64_t end = std::min(first + chunk_, all_.steps);
      unsigned char& reset = chunk_resets_[owner * chunks_ + m];
      reset = 0;
      for (std::int64_t t = first; t < end; ++t)
        if (all_.reset_at(owner, t)) first = t, reset = 1;
      products_[owner * chunks_ + m] =
          l.build_last_row(all_.factors_of(owner) + first, 1, end - first);
      l.reduce(all_.inputs_of(owner) + first, apart, columns, offsets_ + owner * chunks_ + m,
               all_.rows * chunks_);
    });
    workers_.split(
        all_.channels * all_.rows, grains(all_.length), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t q = begin; q < end; ++q) {
            const std::int64_t owner = all_channels ? q % all_.rows : q;
            carry(
                all_.inputs_of(q),
                [&](std::int64_t m, wide x) {
                  const std::int64_t i = owner * chunks_ + m;
                  const wide& offset = offsets_[q * chunks_ + m];
                  return m == 0 || chunk_resets_[i] ? offset : simd::fma(products_[i], x, offset);
                },
                [&](std::int64_t t) {
                  return all_.reset_at(owner, t) ? nullptr : all_.factors_of(owner) + t;
                });
          }
        });
    for_chunks([&](triangle<T>& l, std::int64_t owner, std::int64_t m) {
      // A new triangle starts at each reset of the sequence.
      const std::int64_t end = std::min((m + 1) * chunk_, all_.steps);
      for (std::int64_t first = m * chunk_, next = first; first < end; first = next) {
        for (++next; next < end && !all_.reset_at(owner, next);) ++next;
        l.build(all_.factors_of(owner) + first, next - first);
        l.apply(all_.inputs_of(owner) + first, apart, columns);
      }
    });
  }
  // For every chunk but the first, adds the product of the state before it and its first gate to
  // its first input. `after(m, x)` is the state after chunk m if x is the state before it.
  // `factor_at(t)` is the gate of step t, or a pointer to it that is null at a reset.
  template <class After, class FactorAt>
  void carry(T* inputs, After after, FactorAt factor_at) {
    wide x{};
    for (std::int64_t m = 0; m + 1 < chunks_; ++m) {
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

  std::int64_t chunk_, chunks_;
  std::byte* memory_;
  const materialised_plan& plan_;
  const team& workers_;
  sequence_columns<Columns, T> all_;
  wide* offsets_;
  wide* products_;
  unsigned char* chunk_resets_;
  std::byte* triangles_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// Runs a recurrence whose arrays are in scan order (problem.hpp).
template <class R>
requires(!R::one_by_one) void run_recurrence(const triangular_matmul& backend, const R& recurrence,
                                             const problem& p) {
  detail::run_materialised(detail::triangular_scan(backend, p), backend, recurrence, p);
}

template <class R>
requires(R::one_by_one) void run_recurrence(const triangular_matmul&, const R&, const problem&) {
  static_assert(!R::one_by_one,
                "scanrec: triangular_matmul supports scalar states and affine maps, no vectors or "
                "other operators");
}

/// The plan of the backend for a problem: lanes, work items, threads, workspace.
inline materialised_scan_plan describe(const triangular_matmul& backend, const problem& p) {
  return detail::describe_materialised(detail::triangular_scan(backend, p), p, backend.threads);
}

/// Bytes that the backend allocates for a problem. Workspaces of at most 8 KiB are on the stack.
inline std::int64_t workspace_bytes(const triangular_matmul& backend, const problem& p) {
  return detail::plan_materialised(detail::triangular_scan(backend, p), p, backend.threads)
      .workspace_bytes;
}

}  // namespace scanrec::inline SCANREC_ABI
