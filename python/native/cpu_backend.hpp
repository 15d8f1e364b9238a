// SPDX-License-Identifier: BSD-3-Clause
// The calls of an instruction set run on the backend `tiled`.
#pragma once

#include <scanrec/backends.hpp>

#include "kernels.hpp"

namespace scanrec::native::SCANREC_LEVEL {

/// Whether QRNN pooling has a kernel for every kind, or one that chooses when it runs.
inline constexpr bool kernel_per_kind = false;

/// Whether one kernel of QRNN pooling serves calls that keep states and calls that do not.
inline constexpr bool kernel_keeps_if_given = false;

/// Runs run(backend), or checks the arguments alone; problem_of() does that.
template <class ProblemOf, class Run>
void on_backend(const call& c, ProblemOf problem_of, Run run) {
  if (c.check_only)
    static_cast<void>(problem_of());
  else
    run(tiled{.threads = c.threads, .executor = *c.workers});
}

}  // namespace scanrec::native::SCANREC_LEVEL
