// SPDX-License-Identifier: BSD-3-Clause
// Tests of argument_error: its message and its parts.
#include <stdexcept>
#include <string>
#include <type_traits>

#include <scanrec/error.hpp>

#include "catch.hpp"

TEST_CASE("argument_error holds the call, the argument, the expected and the received value",
          "[error]") {
  const scanrec::argument_error error("linear_scan", "state", "an array", "none");
  CHECK(std::string(error.what()) == "linear_scan: argument 'state': expected an array, got none");
  CHECK(error.argument() == "state");
  CHECK(error.expected() == "an array");
  CHECK(error.got() == "none");
  static_assert(std::is_base_of_v<std::invalid_argument, scanrec::argument_error>);
}
