// SPDX-License-Identifier: BSD-3-Clause
// State spaces on the emulator.
#include "s5_on_device.hpp"
