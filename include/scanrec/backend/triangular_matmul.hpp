// SPDX-License-Identifier: BSD-3-Clause
// Deprecated: include <scanrec/triangular_matmul.hpp>. Removed after the next release.
#pragma once

#include <scanrec/triangular_matmul.hpp>
