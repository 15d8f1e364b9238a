// SPDX-License-Identifier: BSD-3-Clause
// The main function of a benchmark.
#include "google.hpp"

int main(int argc, char** argv) { return bench::run_benchmarks(argc, argv); }
