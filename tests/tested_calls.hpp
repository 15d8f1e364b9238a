// SPDX-License-Identifier: BSD-3-Clause
// The calls of every backend for CPUs for one element type: the whole of a generated unit that
// defines TEST_TYPE. The kernels are here; tests link them.
#include "backend_calls.hpp"
#include "tested_backend.hpp"

namespace tested {

template <class Backend>
using calls_for = std::shared_ptr<const backend_of<TEST_TYPE>>(Backend);
template calls_for<sequential> calls_of<TEST_TYPE>;
template calls_for<tiled> calls_of<TEST_TYPE>;
template calls_for<hillis_steele> calls_of<TEST_TYPE>;
template calls_for<blelloch> calls_of<TEST_TYPE>;
#if SCANREC_TEST_EIGEN
template calls_for<triangular_matmul> calls_of<TEST_TYPE>;
#endif

}  // namespace tested
