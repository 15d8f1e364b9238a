// SPDX-License-Identifier: BSD-3-Clause
// The main function of every test executable under Catch2 2.13; version 3 brings its own.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
