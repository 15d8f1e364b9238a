// SPDX-License-Identifier: BSD-3-Clause
// The version of the library. CMake reads it from this file.
#pragma once

#define SCANREC_VERSION_MAJOR 0
#define SCANREC_VERSION_MINOR 1
#define SCANREC_VERSION_PATCH 0

/// One integer that grows with every release: major * 10000 + minor * 100 + patch.
#define SCANREC_VERSION \
  (SCANREC_VERSION_MAJOR * 10000 + SCANREC_VERSION_MINOR * 100 + SCANREC_VERSION_PATCH)
