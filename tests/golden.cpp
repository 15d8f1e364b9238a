// SPDX-License-Identifier: BSD-3-Clause
// The implementation of golden.hpp: hashing, and access to the files.
#include "golden.hpp"

#include <cstdlib>
#include <fstream>
#include <map>

#include "catch.hpp"

namespace golden {
namespace {

/// Returns the committed rows: {name: hashes}.
const std::map<std::string, std::string>& committed(const std::string& file) {
  static const std::map<std::string, std::string> rows = [&] {
    std::map<std::string, std::string> all;
    std::ifstream lines(SCANREC_TEST_GOLDEN_FOLDER + std::string("/") + file);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t colon = line.rfind(':');
      if (colon != std::string::npos && line[0] != '#')
        all[line.substr(0, colon)] = line.substr(colon + 1);
    }
    return all;
  }();
  return rows;
}

}  // namespace

void row::end_hash() {
  constexpr const char* digits = "0123456789abcdef";
  const auto folded = static_cast<std::uint32_t>(hash_ ^ (hash_ >> 32));
  hashes_ += ' ';
  for (int shift = 28; shift >= 0; shift -= 4) hashes_ += digits[(folded >> shift) % 16];
  hash_ = 14695981039346656037u;
}

void row::add_bytes(const void* data, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i)
    hash_ = (hash_ ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211u;
}

void row::check_in(const char* file) const {
  if (const char* const to = std::getenv("SCANREC_TEST_GOLDEN_WRITE")) {
    std::ofstream(to, std::ios::app) << name_ << ':' << hashes_ << '\n';
    return;
  }
  const auto& rows = committed(file);
  const auto found = rows.find(name_);
  INFO(name_ << ", " << file);
  CHECK((found == rows.end() ? "no such row: scripts/golden --write" : found->second) == hashes_);
}

}  // namespace golden
