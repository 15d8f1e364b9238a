// SPDX-License-Identifier: BSD-3-Clause
// The exception that every wrong argument raises, before anything is written.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace scanrec {

/// A call got an argument it cannot work with. Nothing has been written.
///
/// what() reads "linear_scan: argument 'state': expected <this>, got <that>"; the parts are kept
/// apart for callers that translate them (a Python binding, say).
class argument_error : public std::invalid_argument {
 public:
  argument_error(const std::string& call, std::string argument, std::string expected,
                 std::string got)
      : std::invalid_argument(call + ": argument '" + argument + "': expected " + expected +
                              ", got " + got),
        argument_(std::move(argument)),
        expected_(std::move(expected)),
        got_(std::move(got)) {}

  /// Name of the argument as the documentation spells it, for example "gate_grad".
  [[nodiscard]] const std::string& argument() const noexcept { return argument_; }
  /// What would have been accepted.
  [[nodiscard]] const std::string& expected() const noexcept { return expected_; }
  /// What came.
  [[nodiscard]] const std::string& got() const noexcept { return got_; }

 private:
  std::string argument_, expected_, got_;
};

}  // namespace scanrec
