// SPDX-License-Identifier: BSD-3-Clause
// Deprecated: include <scanrec/layers/s5.hpp>. Removed after the next release.
#pragma once

#include <scanrec/layers/s5.hpp>
