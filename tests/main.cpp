// SPDX-License-Identifier: BSD-3-Clause
// The main function of every test program, for Catch2 2.13 and 3.
#define CATCH_CONFIG_RUNNER
#include "catch.hpp"
#include "executed.hpp"

int main(int argc, char** argv) {
  const int status = Catch::Session().run(argc, argv);
  const bool complete = tested::report_executed();
  return status != 0 ? status : complete ? 0 : 1;
}
