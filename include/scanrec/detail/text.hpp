// SPDX-License-Identifier: BSD-3-Clause
// A string for messages and descriptions. It does not use std::string: member functions of that
// class would have the same symbols in object files for different instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>

#include <scanrec/detail/config.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// A text concatenated from parts: strings, integers, and types with an `append(text&, part)`.
class text {
 public:
  text(const char* only) { append_all({part(only)}); }  // NOLINT(google-explicit-constructor)
  template <class First, class... Parts>
  explicit text(const First& first, const Parts&... parts) {
    append_all({part(first), part(parts)...});
  }
  ~text() {
    if (heap_) ::operator delete(heap_);
  }
  text(const text&) = delete;
  text& operator=(const text&) = delete;

  [[nodiscard]] const char* c_str() const { return heap_ ? heap_ : stack_; }
  [[nodiscard]] std::size_t size() const { return size_; }

  friend void append(text& t, const char* words) { t.add(words, std::strlen(words)); }
  friend void append(text& t, const text& other) { t.add(other.c_str(), other.size_); }
  friend void append(text& t, std::int64_t number) {
    char digits[20];
    int first = 20;
    auto left = static_cast<std::uint64_t>(number);
    if (number < 0) t.add("-", 1), left = 0 - left;
    do digits[--first] = static_cast<char>('0' + left % 10);
    while ((left /= 10) != 0);
    t.add(digits + first, static_cast<std::size_t>(20 - first));
  }
  friend void append(text& t, int number) { append(t, std::int64_t{number}); }
  friend void append(text& t, std::size_t number) { append(t, static_cast<std::int64_t>(number)); }

 private:
  // A type-erased part, so that the loop over parts is compiled once.
  struct part {
    part(const char* words)  // NOLINT(google-explicit-constructor)
        : value(words),
          append_to([](text& t, const void* of) { append(t, static_cast<const char*>(of)); }) {}
    template <class T>
    part(const T& of)  // NOLINT(google-explicit-constructor)
        : value(&of),
          append_to([](text& t, const void* of_) { append(t, *static_cast<const T*>(of_)); }) {}
    const void* value;
    void (*append_to)(text&, const void*);
  };
  [[gnu::noinline]] void append_all(std::initializer_list<part> parts) {
    stack_[0] = '\0';
    for (const part& one : parts) one.append_to(*this, one.value);
  }
  void add(const char* words, std::size_t bytes) {
    if (size_ + bytes >= room_) {
      const std::size_t room = 2 * (size_ + bytes) + 1;
      char* const grown = static_cast<char*>(::operator new(room));
      std::memcpy(grown, c_str(), size_);
      if (heap_) ::operator delete(heap_);
      heap_ = grown, room_ = room;
    }
    char* const to = heap_ ? heap_ : stack_;
    std::memcpy(to + size_, words, bytes);
    size_ += bytes;
    to[size_] = '\0';
  }

  char stack_[256];
  char* heap_ = nullptr;
  std::size_t size_ = 0, room_ = sizeof stack_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
