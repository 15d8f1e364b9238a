// SPDX-License-Identifier: BSD-3-Clause
// A block: the part of one batch row that is processed at a time.
#pragma once

#include <cstdint>

#include <scanrec/detail/config.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// A part of one batch row: steps [begin, end) of channels [channel, channel + channels).
struct block {
  std::int64_t begin = 0, end = 0;
  std::int64_t channel = 0, channels = 0;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
