// SPDX-License-Identifier: BSD-3-Clause
// Tests of state spaces on the emulator.
#include "s5_on_device.hpp"
