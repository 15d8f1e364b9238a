// SPDX-License-Identifier: BSD-3-Clause
// run_on_backend, which passes the recurrence of a call to a backend.
#pragma once

#include <scanrec/detail/config.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Calls run_recurrence of a backend.
template <class Backend>
class run_on_backend {
 public:
  SCANREC_INLINE explicit run_on_backend(const Backend& backend) : backend_(backend) {}
  template <class R>
  void operator()(const R& r, const problem& p) const {
    static_assert(
        requires { run_recurrence(backend_, r, p); },
        "scanrec: this backend has no run_recurrence(backend, recurrence, problem)");
    run_recurrence(backend_, r, p);
  }

 private:
  const Backend& backend_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
