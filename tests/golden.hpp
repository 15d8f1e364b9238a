// SPDX-License-Identifier: BSD-3-Clause
// Golden bits: hashes of results, compared with the files in tests/golden. A row is a line of such
// a file: a name and a list of hashes. A test case with the tag [golden] computes rows. It calls
// only kernels that other test cases of its program use, too. Most rows have one hash for each
// problem, or for each call of a problem. scripts/golden compares or rewrites the files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include <scanrec/detail/config.hpp>

namespace golden {

/// Random multiples of 2^-23 in [-1, 1). They are exact in float, and their computation has no
/// float operations that a compiler could fuse into a multiply-add.
class numbers {
 public:
  explicit numbers(std::uint64_t seed) : state_(2 * seed + 1) {}
  float next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(static_cast<std::int32_t>(state_ >> 40) - (1 << 23)) * 0x1p-23f;
  }
  /// Returns -1, 0 or 1. Sums of products of such numbers are exact in every order.
  float next_unit() { return static_cast<float>(static_cast<int>(3.99f * next()) % 2); }
  /// Sets x to a random number. With `items`, an x of a floating-point type is -1, 0 or 1, and so
  /// is a complex x, with an imaginary part of 0.
  template <class T>
  void fill(T& x, bool items = false) {
    const auto one = [&] { return items ? next_unit() : next(); };
    if constexpr (requires { x.imag(); }) {
      using R = typename T::value_type;
      const R re = one(), im = items ? R(0) : R(one());
      x = T(re, im);
    } else if constexpr (std::is_integral_v<T>) {
      next(), x = static_cast<T>(state_ >> 32);
    } else {
      x = static_cast<T>(one());
    }
  }

 private:
  std::uint64_t state_;
};

/// The hashes of one row of a file (FNV-1a, folded to 32 bits).
class row {
 public:
  /// `name` contains the call, the element type, the options and the backend.
  explicit row(std::string name) : name_(std::move(name)) {}
  template <class T>
  void add(const T& value) {
    add_bytes(&value, sizeof(T));
  }
  template <class Values>
  void add_all(const Values& values) {
    for (const auto& value : values) add(value);
  }
  /// Ends a hash and begins the next.
  void end_hash();
  [[nodiscard]] const std::string& hashes() const { return hashes_; }
  /// Whether the hashes of `other` are the first, or all, hashes of this row.
  [[nodiscard]] bool begins_with(const row& other) const {
    return !other.hashes_.empty() && hashes_.rfind(other.hashes_, 0) == 0;
  }
  /// Fails the test unless the committed file has this row. If the environment variable
  /// SCANREC_TEST_GOLDEN_WRITE names a file, appends the row to it instead.
  void check() const { check_in(SCANREC_FUSED != 0 ? "fused.txt" : "unfused.txt"); }

 private:
  void add_bytes(const void* data, std::size_t bytes);
  void check_in(const char* file) const;

  std::string name_, hashes_;
  std::uint64_t hash_ = 14695981039346656037u;
};

}  // namespace golden
