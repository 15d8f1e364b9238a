// SPDX-License-Identifier: BSD-3-Clause
// Includes Catch2, version 2.13 or 3.
#pragma once
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
