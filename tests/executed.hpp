// SPDX-License-Identifier: BSD-3-Clause
// A record of the backends and options of every call that a test case made. A program fails if a
// test case asked for a backend and did not call it.
//
// With the environment variable SCANREC_TEST_EXECUTED, main() writes the record into that file,
// from which tests/coverage.py makes docs/coverage.md.
#pragma once

#include <initializer_list>
#include <string>

#include "reference.hpp"

namespace tested {

/// An option of a call, and whether the call used it.
struct used_option {
  const char* name;
  bool used;
};

/// Says that the current test case is to call a backend of this name.
void expect_backend(const std::string& name);
/// Records that the current test case called a backend, and with which options.
void record_call(const std::string& backend, const char* call,
                 std::initializer_list<used_option> options);
/// The same where the options are of no interest.
void record_call(const std::string& backend);

/// Writes the record, if the environment asks for it. False, and a message on stderr, if a test
/// case has not called a backend that it was to call.
bool report_executed();

/// The name of the test case that runs.
std::string current_test();

/// Chooses calls for slow backends: all in the first round of a test case, later rounds at random,
/// by a seed made of the name of the test case.
class sampler {
 public:
  /// Begins a round: the next combination of a test case.
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
  /// Whether a backend that takes one round of so many takes this one.
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
