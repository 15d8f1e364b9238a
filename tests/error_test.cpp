// SPDX-License-Identifier: BSD-3-Clause
// argument_error: its message and its parts.
#include <stdexcept>
#include <string>
#include <type_traits>

#include <scanrec/error.hpp>

#include "catch.hpp"

TEST_CASE("argument_error has the call, the argument, and what was expected and came", "[error]") {
  const scanrec::argument_error error("linear_scan", "state", "an array", "none");
  CHECK(std::string(error.what()) == "linear_scan: argument 'state': expected an array, got none");
  CHECK(error.argument() == "state");
  CHECK(error.expected() == "an array");
  CHECK(error.got() == "none");
  static_assert(std::is_base_of_v<std::invalid_argument, scanrec::argument_error>);
}
