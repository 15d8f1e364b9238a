// SPDX-License-Identifier: BSD-3-Clause
// Deprecated: include <scanrec/layers/qrnn.hpp>. Removed after the next release.
#pragma once

#include <scanrec/layers/qrnn.hpp>
