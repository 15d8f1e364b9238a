// SPDX-License-Identifier: BSD-3-Clause
// State spaces on a GPU.
#include "s5_on_device.hpp"
