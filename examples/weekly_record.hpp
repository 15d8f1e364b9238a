// SPDX-License-Identifier: BSD-3-Clause
// A weekly series read from "date,value" lines.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

using series = std::vector<double>;

/// The dates and values. Gaps (lines without a value) are filled by linear interpolation.
struct weekly_record {
  std::vector<std::string> dates;
  series ppm;
  std::vector<bool> measured;

  explicit weekly_record(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);  // column names
    for (std::size_t t = 0, last = 0; std::getline(file, line); ++t) {
      const std::size_t comma = std::min(line.find(','), line.size());
      dates.push_back(line.substr(0, comma));
      ppm.push_back(std::strtod(line.c_str() + comma + (comma < line.size()), nullptr));
      measured.push_back(ppm[t] > 0);
      for (std::size_t i = last + 1; measured[t] && i < t; ++i)
        ppm[i] = std::lerp(ppm[last], ppm[t], double(i - last) / double(t - last));
      if (measured[t]) last = t;
    }
    if (ppm.size() < 520 || !measured.front() || !measured.back())
      throw std::runtime_error(path + ": expected 520 weeks or more, with values at both ends");
  }
};
