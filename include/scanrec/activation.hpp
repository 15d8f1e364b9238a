// SPDX-License-Identifier: BSD-3-Clause
// Has moved; this path goes after the next release.
#pragma once

#include <scanrec/cells/activation.hpp>
