// SPDX-License-Identifier: BSD-3-Clause
// An operator whose products and sums a compiler may fuse into multiply-adds.
#pragma once

#include <scanrec/detail/config.hpp>

namespace tested {

/// A number of samples and their mean.
struct mean_of {
  double count, mean;
};
struct merge_means {
  SCANREC_HD mean_of operator()(const mean_of& x, const mean_of& y) const {
    return {x.count + y.count, (x.count * x.mean + y.count * y.mean) / (x.count + y.count)};
  }
};

}  // namespace tested
