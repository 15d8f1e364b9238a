// SPDX-License-Identifier: BSD-3-Clause
// Deprecated: include <scanrec/memory.hpp>. Removed after the next release.
#pragma once

#include <scanrec/memory.hpp>
