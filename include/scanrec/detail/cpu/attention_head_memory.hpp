// SPDX-License-Identifier: BSD-3-Clause
// The memory of the adjoint of a head of linear attention.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/attention_rows.hpp>
#include <scanrec/detail/cpu/linear_attention_adjoint_plan.hpp>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/detail/problem/linear_attention.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The states before the segments of a head and, for one window, the states before chunks and the
/// residuals r. Also G and du: of all chunks of the window if heads are divided, otherwise of one.
/// All are in packs.
///
/// A chunk follows a reset, begins a segment, or follows a chunk of 32 steps. So chunks that follow
/// no reset begin at steps t with different t / 32, and this is the index of S and G. At resets
/// these are 0, and not stored.
template <class V, int W>
class attention_head_memory {
  static constexpr int steps = attention_limits::steps;

 public:
  attention_head_memory(const linear_attention_vjp_problem<V>& p,
                        const linear_attention_vjp_plan& plan, arena& memory)
      : time_(p.time),
        segment_(plan.segments.steps),
        window_(plan.segments.window_steps()),
        keep_(plan.divides_heads()) {
    const std::int64_t columns = p.beta.present() ? std::int64_t{plan.packs} * W : 0;
    state_size_ = std::int64_t{plan.packs} * p.dk * W;
    starts_ = memory.take<V>(clipped_product(plan.segments.count, state_size_));
    states_ = memory.take<V>(clipped_product(window_ / steps, state_size_));
    grads_ = memory.take<V>(clipped_product(keep_ ? window_ / steps + 1 : 1, state_size_));
    residuals_ = memory.take<V>(clipped_product(window_, columns));
    value_grads_ = memory.take<V>(clipped_product(row_steps(), columns));
    first_chunks_ = memory.take<std::uint8_t>(clipped_product(window_ / steps, plan.packs));
  }
  /// S before a chunk that begins at step t.
  [[nodiscard]] V* state(std::int64_t t) const {
    if (t % segment_ == 0) return starts_ + t / segment_ * state_size_;
    return states_ + t % window_ / steps * state_size_;
  }
  /// G of a chunk that ends before step t: the gradient of the state after it.
  [[nodiscard]] V* grad_after(std::int64_t t) const {
    if (!keep_) return grads_;
    const bool last = t == time_ || t % window_ == 0;
    return grads_ + (last ? window_ : t % window_) / steps * state_size_;
  }
  /// G' of a chunk that begins at step t: the gradient of the state before it.
  [[nodiscard]] V* grad_before(std::int64_t t) const {
    return keep_ ? grads_ + t % window_ / steps * state_size_ : grads_;
  }
  [[nodiscard]] attention_pack_rows<V, W> residuals(std::int64_t t) const {
    return {residuals_ + t % window_ * W, window_ * W};
  }
  /// The rows du of a chunk that begins at step t.
  [[nodiscard]] attention_pack_rows<V, W> value_grads(std::int64_t t) const {
    return {value_grads_ + (keep_ ? t % window_ * W : 0), row_steps() * W};
  }
  /// Forgets where chunks begin. Each block of columns has its own list, identified by its first
  /// pack.
  void forget_chunks(int pack) const {
    std::fill_n(list(pack), window_ / steps, static_cast<std::uint8_t>(steps));
  }
  /// Adds a chunk to a list. They are added in ascending order.
  void add_chunk(int pack, std::int64_t t) const {
    std::uint8_t& first = list(pack)[t % window_ / steps];
    first = std::min(first, static_cast<std::uint8_t>(t % steps));
  }
  /// The first chunk that begins in [t, t + 32), or t + 32. t is a multiple of 32.
  [[nodiscard]] std::int64_t first_chunk(int pack, std::int64_t t) const {
    return t + list(pack)[t % window_ / steps];
  }

 private:
  [[nodiscard]] std::int64_t row_steps() const { return keep_ ? window_ : steps; }
  [[nodiscard]] std::uint8_t* list(int pack) const {
    return first_chunks_ + pack * (window_ / steps);
  }

  std::int64_t time_, segment_, window_, state_size_ = 0;
  bool keep_;
  V *starts_, *states_, *grads_, *residuals_, *value_grads_;
  std::uint8_t* first_chunks_;  // (pack, 32 steps)
};

}  // namespace scanrec::detail::inline SCANREC_ABI
