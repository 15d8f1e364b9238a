// SPDX-License-Identifier: BSD-3-Clause
// The calls of all CPU backends for one element type. A generated source file defines TEST_TYPE and
// includes this header, and tests link the resulting kernels.
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
