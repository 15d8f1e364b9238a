// SPDX-License-Identifier: BSD-3-Clause
// A yearly series without gaps, read from "year,value" lines.
#pragma once

#include <cmath>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

struct yearly_record {
  int first = 0, end = 0;  // years [first, end)
  std::vector<double> values;
  double mean = 0, deviation = 1;

  explicit yearly_record(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);  // the names of the columns
    for (int year = 0; std::getline(file, line); end = year + 1) {
      year = std::stoi(line);
      if (values.empty()) first = year;
      if (!values.empty() && year != end) throw std::runtime_error(path + ": years are missing");
      values.push_back(std::stod(line.substr(line.find(',') + 1)));
    }
    if (values.empty()) throw std::runtime_error(path + ": no year,value lines");
  }
  double at(int year) const { return values.at(static_cast<std::size_t>(year - first)); }

  /// Makes values deviations from the mean of the years [from, to), in standard deviations.
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
