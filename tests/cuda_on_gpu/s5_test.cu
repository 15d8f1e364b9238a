// SPDX-License-Identifier: BSD-3-Clause
// Tests of state spaces on a GPU.
#include "s5_on_device.hpp"
