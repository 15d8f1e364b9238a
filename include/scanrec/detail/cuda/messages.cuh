// SPDX-License-Identifier: BSD-3-Clause
// Messages between tiles, in the workspace of a call.
//
// A message is an array of words. A word has 16 bytes: a value and a tag. The tag is the number of
// the call; the workspace counts its calls. Each word is stored and loaded by one access, so a word
// with the tag of the current call has its complete value. Words of earlier calls have other tags,
// so messages need not be cleared between calls. All other memory that a call has used is zero
// afterwards, except the header and the words of sum_turns (tile_sums.cuh).
#pragma once

#include <cstdint>
#include <cstring>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/workspace.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

static_assert(sizeof(workspace_header) == sizeof(device::word));

/// The number of words of a message of type T.
template <class T>
inline constexpr int words_of = (sizeof(T) + 7) / 8;

/// The words of a message after one load. Some may not have arrived yet.
template <class T>
struct loaded_message {
  device::word words[words_of<T>] = {};

  /// Whether all words had arrived.
  SCANREC_DEVICE bool complete(std::uint64_t tag) const {
    bool there = true;
    for (int i = 0; i < words_of<T>; ++i) there = there && words[i].tag == tag;
    return there;
  }
  /// Stores the message in `value` if all words had arrived. Returns whether they had.
  SCANREC_DEVICE bool read(T& value, std::uint64_t tag) const {
    if (!complete(tag)) return false;
    std::uint64_t bits[words_of<T>];
    for (int i = 0; i < words_of<T>; ++i) bits[i] = words[i].value;
    memcpy(&value, bits, sizeof(T));
    return true;
  }
};

/// A message of type T at `first`. Its words are `stride` apart.
template <class T>
struct message {
  device::word* first = nullptr;
  std::int64_t stride = 1;

  SCANREC_DEVICE void send(const T& value, std::uint64_t tag) const {
    std::uint64_t bits[words_of<T>] = {};
    memcpy(bits, &value, sizeof(T));
    for (int i = 0; i < words_of<T>; ++i) device::store_word(first + i * stride, {bits[i], tag});
  }
  /// Starts the loads. The first use of the result waits for them.
  [[nodiscard]] SCANREC_DEVICE loaded_message<T> load() const {
    loaded_message<T> loaded;
    for (int i = 0; i < words_of<T>; ++i) loaded.words[i] = device::load_word(first + i * stride);
    return loaded;
  }
  SCANREC_DEVICE T wait(std::uint64_t tag) const {
    T value{};
    while (!load().read(value, tag)) device::pause();
    return value;
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
