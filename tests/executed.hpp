// SPDX-License-Identifier: BSD-3-Clause
// A record of the backends and options of all calls of every test case. A test program fails if a
// test case expects a backend and does not call it.
//
// main() writes the record to the file named by the environment variable SCANREC_TEST_EXECUTED.
// tests/coverage.py makes docs/coverage.md from it.
#pragma once

#include <initializer_list>
#include <string>

#include "reference.hpp"

namespace tested {

/// An option and whether a call used it.
struct used_option {
  const char* name;
  bool used;
};

/// Records that the current test case must call the backend with this name.
void expect_backend(const std::string& name);
/// Records that the current test case called a backend with these options.
void record_call(const std::string& backend, const char* call,
                 std::initializer_list<used_option> options);
/// Records that the current test case called a backend, without counting calls and options.
void record_call(const std::string& backend);

/// Writes the record if the environment asks for it. Returns false, with a message on stderr, if a
/// test case did not call a backend that it expected.
bool report_executed();

/// The name of the running test case.
std::string current_test();

/// Chooses the rounds in which slow backends run: the first round of every test case, and random
/// later rounds. The seed is a hash of the test case's name.
class sampler {
 public:
  /// Begins a round, which is one combination of parameters of a test case.
  void next_round() {
    const std::string now = current_test();
    if (rounds_ > 0 && now == test_) {
      ++rounds_;
      return;
    }
    test_ = now, rounds_ = 1;
    bits_.state = 0xcbf29ce484222325;  // FNV-1a
    for (const char c : now)
      bits_.state = (bits_.state ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  /// Whether a backend that runs in one of `every` rounds runs in this one.
  bool takes(int every) {
    const bool chosen = bits_() % static_cast<std::uint32_t>(every) == 0;
    return rounds_ == 1 || chosen;
  }

 private:
  std::string test_;
  int rounds_ = 0;
  reference::generator bits_{0};
};

}  // namespace tested
