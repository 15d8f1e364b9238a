// SPDX-License-Identifier: BSD-3-Clause
// The environment variable SCANREC_TEST_BACKENDS: with the value cuda the batteries leave out the
// backends for CPUs, all but the plain loop. On a GPU the others would take more than half of the
// time.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tested {

/// Whether backends for CPUs other than the plain loop are left out. Throws on an unknown value.
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

/// The backends of a list that the environment asks for: all, or the first, which is the plain
/// loop, and those for GPUs. Throws if none for GPUs is among them though they are asked for.
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
