// SPDX-License-Identifier: BSD-3-Clause
// Deprecated: include <scanrec/operators.hpp>. Removed after the next release.
#pragma once

#include <scanrec/operators.hpp>
