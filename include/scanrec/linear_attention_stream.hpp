// SPDX-License-Identifier: BSD-3-Clause
// linear_attention_stream, the state of linear attention between the calls of a stream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include <scanrec/detail/simd/lanes.hpp>
#include <scanrec/error.hpp>
#include <scanrec/extents.hpp>
#include <scanrec/linear_attention_arrays.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {
template <class V, int W>
class linear_attention_run;
template <class V, int W>
class linear_attention_chunk;
template <class V>
class linear_attention_call;

/// Memory for the gates per key of a chunk and the keys that they decay
/// (detail/cpu/attention_key_gates.hpp). A stream keeps it between calls. `channels` is dk rounded
/// up to packs.
template <class V>
struct attention_gate_rows {
  static constexpr int steps = attention_limits::steps, block = attention_limits::block;
  double* total = nullptr;  // (channel): e of the last step, or its logarithm
  V* within = nullptr;      // (channel): F of the last step
  V* borders = nullptr;     // (block, channel): e[b-1]
  V* stored = nullptr;      // gates as in their array, in packs
  V* gates = nullptr;       // a, transposed
  // Transposed: E[i][j] k[j] in the block of the last step i, and E[b-1][j] k[j] before it.
  V* keys = nullptr;

  /// Bytes of these arrays. A multiple of 64 if `channels` is one of 16 (double: 8).
  static std::int64_t bytes(std::int64_t channels) {
    return channels * ((3 * steps + steps / block + 1) * static_cast<std::int64_t>(sizeof(V)) +
                       static_cast<std::int64_t>(sizeof(double)));
  }
  static attention_gate_rows at(std::byte* memory, std::int64_t channels) {
    if (memory == nullptr) return {};
    auto* const total = reinterpret_cast<double*>(memory);
    V* const within = reinterpret_cast<V*>(total + channels);
    V* const borders = within + channels;
    V* const stored = borders + steps / block * channels;
    V* const gates = stored + steps * channels;
    return {total, within, borders, stored, gates, gates + steps * channels};
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// The state of linear attention between calls, for streams that are cut at any step: pass it as
/// linear_attention_options::stream. Outputs have the bits of a single call.
///
/// linear_attention computes chunks of 32 steps. A stream has the state at the start of the current
/// chunk, and the keys, values and gates of its steps. So a call of one step reads the state once,
/// and only every 32nd step writes it, unless final_state is asked for. Steps of the current chunk
/// can be dropped.
///
/// Memory  per sequence and head dk dv' + 32 (dk' + dv') numbers of type V, where ' means rounded
///         up to 16 (double: 8), and at most 384 bytes. Gates per key: 101 dk' numbers of type V
///         and dk' of type double more. The first call allocates these. If that fails with
///         std::bad_alloc, the stream has not begun.
/// Throws  after a call that throws anything but argument_error, clear the stream: some heads may
///         have advanced.
/// Threads Calls that use one stream must not run at the same time.
template <class V>
class linear_attention_stream {
 public:
  static constexpr int chunk = detail::attention_limits::steps;

  /// For states of shape (batch, dk, dv, heads), with rows on the `time` axis. All states are 0, or
  /// the initial_state of the first call.
  explicit linear_attention_stream(const extents& states) : shape_(states) {
    using limits = detail::attention_limits;
    const auto within = [](std::int64_t n, std::int64_t most) { return n >= 1 && n <= most; };
    if (states.batch < 0 || !within(states.time, limits::most_width) ||
        !within(states.channel, limits::most_width) || !within(states.group, limits::most_heads))
      detail::refuse("linear_attention_stream", "states",
                     "a batch of 0 or more, dk and dv of 1 to 4096, and 1 to 2^20 heads",
                     detail::text(states));
    memory_ = allocate(head_bytes());
    clear();
  }
  linear_attention_stream(const linear_attention_stream& other)
      : shape_(other.shape_),
        begun_(other.begun_),
        logarithms_(other.logarithms_),
        lanes_(other.lanes_) {
    memory_ = allocate(head_bytes());
    std::copy_n(other.memory_.get(), bytes(head_bytes()), memory_.get());
    if (other.gate_memory_ == nullptr) return;
    gate_memory_ = allocate(gate_bytes());
    std::copy_n(other.gate_memory_.get(), bytes(gate_bytes()), gate_memory_.get());
  }
  linear_attention_stream(linear_attention_stream&& other) noexcept { swap(other); }
  linear_attention_stream& operator=(linear_attention_stream other) noexcept {
    swap(other);
    return *this;
  }
  ~linear_attention_stream() = default;

  [[nodiscard]] const extents& shape() const { return shape_; }
  /// Whether a call has used this stream since it was made or cleared.
  [[nodiscard]] bool begun() const { return begun_; }
  /// Whether the calls since it was made or cleared had gates per key.
  [[nodiscard]] bool has_key_gates() const { return gate_memory_ != nullptr; }
  /// Sets all states to 0.
  void clear() {
    begun_ = false, lanes_ = 0, gate_memory_.reset();
    for (std::int64_t i = 0; i < shape_.batch * shape_.group; ++i) *header(i) = {};
  }
  /// Number of steps of the current chunk of a sequence, 0 to 31.
  [[nodiscard]] int steps(std::int64_t batch) const {
    check_batch(batch);
    return header(batch * shape_.group)->steps;
  }
  /// Drops the last `count` steps of a sequence. They must belong to the current chunk, which
  /// begins every 32nd step and at a reset. To be able to undo more, copy the stream first.
  void drop(std::int64_t batch, int count) {
    const int have = steps(batch);
    if (count < 0 || count > have)
      detail::refuse("linear_attention_stream::drop", "count",
                     detail::text("0 to ", have, " steps, those of the current chunk"),
                     detail::text(count));
    for (std::int64_t h = 0; h < shape_.group; ++h) {
      const std::int64_t i = batch * shape_.group + h;
      header(i)->steps = have - count;
    }
  }

 private:
  template <class, int>
  friend class detail::linear_attention_run;
  template <class, int>
  friend class detail::linear_attention_chunk;
  template <class>
  friend class detail::linear_attention_call;

  // The memory of one head.
  struct head {
    int& steps;
    int& gate_steps;  // for which `key_gates` has values
    bool& zero_state;
    double* gates;  // of the steps
    V *state, *keys, *values;
    std::byte* key_gates;
  };
  [[nodiscard]] head at(std::int64_t batch, std::int64_t of_head) {
    const std::int64_t i = batch * shape_.group + of_head;
    std::byte* const p = memory_.get() + i * head_bytes();
    auto* const first = reinterpret_cast<head_header*>(p);
    V* const state = reinterpret_cast<V*>(p + sizeof(head_header));
    V* const keys = state + shape_.time * columns();
    std::byte* const gates =
        gate_memory_ == nullptr ? nullptr : gate_memory_.get() + i * gate_bytes();
    return {first->steps,
            first->gate_steps,
            first->zero_state,
            first->gates,
            state,
            keys,
            keys + rows() * chunk,
            gates};
  }
  // Begins a call. Returns whether it is the first one. Refuses a backend whose packs have another
  // size than those of earlier calls.
  bool begin(int lanes, bool key_gates, bool logarithms) {
    if (!begun_ && key_gates) gate_memory_ = allocate(gate_bytes());
    if (begun_ && lanes != lanes_)
      detail::refuse("linear_attention", "stream", "the backend of its earlier calls",
                     "another backend");
    lanes_ = lanes, logarithms_ = logarithms;
    return !std::exchange(begun_, true);
  }

  static constexpr std::align_val_t alignment{64};
  struct alignas(64) head_header {
    double gates[chunk] = {};
    int steps = 0, gate_steps = 0;
    bool zero_state = true;
  };
  struct deleter {
    void operator()(std::byte* p) const { ::operator delete(p, alignment); }
  };
  using memory = std::unique_ptr<std::byte, deleter>;
  static std::int64_t up(std::int64_t n) {
    constexpr std::int64_t lanes = simd::lanes_v<V>;
    return (n + lanes - 1) / lanes * lanes;
  }
  [[nodiscard]] std::int64_t rows() const { return up(shape_.time); }
  [[nodiscard]] std::int64_t columns() const { return up(shape_.channel); }
  [[nodiscard]] std::int64_t head_bytes() const {
    const std::int64_t numbers =
        detail::clipped_product(shape_.time, columns()) + chunk * (rows() + columns());
    return detail::clipped_product(numbers, sizeof(V), detail::most_bytes) / 64 * 64 + 64 +
           static_cast<std::int64_t>(sizeof(head_header));
  }
  [[nodiscard]] std::int64_t gate_bytes() const {
    return detail::attention_gate_rows<V>::bytes(rows());
  }
  [[nodiscard]] std::int64_t bytes(std::int64_t of_head) const {
    return detail::clipped_product(of_head, detail::clipped_product(shape_.batch, shape_.group),
                                   detail::most_bytes);
  }
  [[nodiscard]] head_header* header(std::int64_t i) const {
    return reinterpret_cast<head_header*>(memory_.get() + i * head_bytes());
  }
  void check_batch(std::int64_t batch) const {
    if (batch < 0 || batch >= shape_.batch)
      detail::refuse("linear_attention_stream", "batch", detail::text("0 to ", shape_.batch - 1),
                     detail::text(batch));
  }
  [[nodiscard]] memory allocate(std::int64_t of_head) const {
    if (bytes(of_head) >= detail::most_bytes) throw std::bad_alloc();
    const auto size = static_cast<std::size_t>(bytes(of_head));
    return memory(static_cast<std::byte*>(::operator new(size, alignment)));
  }
  void swap(linear_attention_stream& other) noexcept {
    std::swap(shape_, other.shape_), std::swap(memory_, other.memory_);
    std::swap(gate_memory_, other.gate_memory_);
    std::swap(begun_, other.begun_), std::swap(logarithms_, other.logarithms_);
    std::swap(lanes_, other.lanes_);
  }

  extents shape_{0, 0, 0, 0};
  memory memory_, gate_memory_;
  bool begun_ = false;
  bool logarithms_ = false;  // the form of the gates
  int lanes_ = 0;            // of the packs of the backend
};

}  // namespace scanrec::inline SCANREC_ABI
