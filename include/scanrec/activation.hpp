// SPDX-License-Identifier: BSD-3-Clause
// Deprecated: include <scanrec/cells/activation.hpp>. Removed after the next release.
#pragma once

#include <scanrec/cells/activation.hpp>
