// SPDX-License-Identifier: BSD-3-Clause
// Deprecated: include <scanrec/views.hpp>. Removed after the next release.
#pragma once

#include <scanrec/views.hpp>
