// SPDX-License-Identifier: BSD-3-Clause
// The backends that need nothing but this library. A new one is added here.
#pragma once

#include <scanrec/backend/sequential.hpp>
#if defined(__CUDACC__)
#include <scanrec/backend/host_only.hpp>
#else
#include <scanrec/backend/blelloch.hpp>
#include <scanrec/backend/hillis_steele.hpp>
#include <scanrec/backend/tiled.hpp>
#endif
