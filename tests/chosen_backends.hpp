// SPDX-License-Identifier: BSD-3-Clause
// The choice of tested backends by the environment variable SCANREC_TEST_BACKENDS. Its value `cuda`
// leaves out all CPU backends except `sequential`, the loop that others are compared with. With a
// GPU, the CPU backends would take more than half of the time.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tested {

/// Whether CPU backends other than `sequential` are left out. Throws on an unknown value.
inline bool cuda_backends_alone() {
  static const bool alone = [] {
    const char* const given = std::getenv("SCANREC_TEST_BACKENDS");
    const std::string value = given ? given : "";
    if (!value.empty() && value != "cuda")
      throw std::runtime_error(
          "environment variable SCANREC_TEST_BACKENDS: expected cuda or nothing, got '" + value +
          "'");
    return !value.empty();
  }();
  return alone;
}

/// Returns all backends of a list, or the first (`sequential`) and the GPU backends if the
/// environment asks for them. In the second case the list must contain a GPU backend; throws
/// otherwise.
template <class Backend>
std::vector<Backend> chosen_backends(std::vector<Backend> all) {
  if (!cuda_backends_alone()) return all;
  std::vector<Backend> chosen;
  for (Backend& one : all)
    if (chosen.empty() || one.name.rfind("cuda::", 0) == 0) chosen.push_back(std::move(one));
  if (chosen.size() < 2)
    throw std::runtime_error(
        "environment variable SCANREC_TEST_BACKENDS: got 'cuda', but this program has no backend "
        "for GPUs");
  return chosen;
}

}  // namespace tested
