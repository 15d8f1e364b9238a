// SPDX-License-Identifier: BSD-3-Clause
// A helper that returns the argument that a call rejects.
#pragma once

#include <string>

#include <scanrec/error.hpp>

namespace tested {

/// The name of the argument for which a call throws argument_error; "" if it does not throw.
template <class F>
std::string refused(F f) {
  try {
    f();
  } catch (const scanrec::argument_error& e) {
    return e.argument();
  }
  return "";
}

}  // namespace tested
