// SPDX-License-Identifier: BSD-3-Clause
// A yearly series without gaps, read from "year,value" lines.
#pragma once

#include <cmath>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

struct yearly_record {
  int first = 0, end = 0;  // years [first, end)
  std::vector<double> values;
  double mean = 0, deviation = 1;

  /// Reads a record, which must have at least the years [from, to).
  yearly_record(const std::string& path, int from, int to) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);  // column names
    for (int year = 0; std::getline(file, line); end = year + 1) {
      double value = 0;
      if (std::sscanf(line.c_str(), "%d,%lf", &year, &value) != 2)
        throw std::runtime_error(path + ": expected a line year,value, got \"" + line + "\"");
      if (values.empty()) first = year;
      if (!values.empty() && year != end) throw std::runtime_error(path + ": years are missing");
      values.push_back(value);
    }
    if (values.empty() || first > from || end < to)
      throw std::runtime_error(path + ": does not have the years from " + std::to_string(from) +
                               " to " + std::to_string(to - 1));
  }
  double at(int year) const { return values.at(static_cast<std::size_t>(year - first)); }

  /// Shifts and scales all values so that those of the years [from, to) have mean 0 and standard
  /// deviation 1.
  void normalise(int from, int to) {
    mean = deviation = 0;
    for (int year = from; year < to; ++year) mean += at(year) / (to - from);
    for (int year = from; year < to; ++year)
      deviation += (at(year) - mean) * (at(year) - mean) / (to - from);
    deviation = std::sqrt(deviation);
    for (double& x : values) x = (x - mean) / deviation;
  }
  double original(double normalised) const { return mean + deviation * normalised; }
};
