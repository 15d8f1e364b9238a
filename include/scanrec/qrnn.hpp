// SPDX-License-Identifier: BSD-3-Clause
// Deprecated: include <scanrec/cells/qrnn.hpp>. Removed after the next release.
#pragma once

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/gated_scan.hpp>
