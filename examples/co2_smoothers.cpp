// SPDX-License-Identifier: BSD-3-Clause
// A bank of exponential smoothers with learned complex decays forecasts the Mauna Loa CO2 record.
//
//     smooth[t, k] = lambda[k] * smooth[t-1, k] + (1 - lambda[k]) * ppm[t]
//     forecast[t + horizon] = ppm[t] + bias + sum_k Re(conj(weight[k]) * (smooth[t, k] - ppm[t]))
//
// A real lambda smooths; a complex one, |lambda| < 1, is tuned to a season of 2 pi / arg(lambda).
// Adam moves the decays along linear_scan_vjp's gradient; the readout is at each step the least
// squares one, so that its own gradient is zero.
#include <chrono>
#include <cmath>
#include <complex>
#include <cstdio>
#include <exception>
#include <fstream>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

#include <scanrec/scan.hpp>

using complex = std::complex<double>;
constexpr int horizon = 13, year = 52, adam_steps = 1500;

struct record {
  std::vector<std::string> dates;
  std::vector<double> ppm;     // gaps filled
  std::vector<bool> measured;  // only measured weeks are forecast from and scored
};

record read_record(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) throw std::runtime_error("cannot read " + path);
  record r;
  for (std::size_t last = 0; std::getline(file, line);) {
    const std::size_t comma = line.find(','), t = r.ppm.size();
    if (comma == std::string::npos) throw std::runtime_error("no comma in: " + line);
    r.dates.push_back(line.substr(0, comma));
    r.measured.push_back(line.find_first_of("0123456789", comma) != std::string::npos);
    r.ppm.push_back(r.measured[t] ? std::stod(line.substr(comma + 1)) : 0);
    if (!r.measured[t]) continue;
    for (std::size_t i = last + 1; i < t; ++i)
      r.ppm[i] = std::lerp(r.ppm[last], r.ppm[t], double(i - last) / double(t - last));
    last = t;
  }
  if (r.ppm.size() < 10 * year || !r.measured.front() || !r.measured.back())
    throw std::runtime_error(path + ": needs ten years that start and end with a measurement");
  return r;
}

/// Smoothers lambda = exp(-exp(-log_memory) + i exp(log_frequency)) and their readout.
struct bank {
  std::vector<double> log_memory, log_frequency;  // frequency 0, its log -inf: a real smoother
  std::vector<double> readout;                    // bias, then Re and Im of each weight
  std::vector<complex> lambda, smooth;            // smooth: (time, smoother)

  void add(double memory, double period) {  // in weeks; period 0: a real smoother
    log_memory.push_back(std::log(memory));
    log_frequency.push_back(period > 0 ? std::log(2 * std::numbers::pi / period) : -INFINITY);
  }
  std::size_t size() const { return log_memory.size(); }
  scanrec::extents shape(std::size_t steps) const {
    return {.time = std::int64_t(steps), .channel = std::int64_t(size())};
  }
  /// One value per smoother for all weeks: broadcast when read, the sum over time when written.
  static constexpr scanrec::extents once{.batch = 0, .time = 0, .channel = 1};

  void run(const std::vector<double>& ppm) {
    lambda.clear();
    for (std::size_t k = 0; k < size(); ++k)
      lambda.push_back(std::exp(complex(-std::exp(-log_memory[k]), std::exp(log_frequency[k]))));
    std::vector<complex> input, first(size(), ppm[0]);
    for (const double x : ppm)
      for (const complex l : lambda) input.push_back((1.0 - l) * x);
    smooth.resize(input.size());
    scanrec::linear_scan(scanrec::sequence_view<const complex>(lambda, shape(ppm.size()), once),
                         scanrec::sequence_view<const complex>(input, shape(ppm.size())),
                         scanrec::sequence_view<complex>(smooth, shape(ppm.size())),
                         {.initial_state = {first, shape(1)}});
  }
  double feature(std::size_t t, double ppm, std::size_t i) const {
    if (i == 0) return 1;
    const complex s = smooth[t * size() + (i - 1) / 2] - ppm;
    return i % 2 ? s.real() : s.imag();
  }
  double forecast(std::size_t t, double ppm) const {
    double sum = ppm;
    for (std::size_t i = 0; i < readout.size(); ++i) sum += readout[i] * feature(t, ppm, i);
    return sum;
  }
  /// Solves the normal equations by Cholesky, in place; a ridge keeps idle features at weight 0.
  void fit_readout(const std::vector<double>& ppm, const std::vector<std::size_t>& weeks) {
    const std::size_t n = 1 + 2 * size();
    std::vector<double> a(n * n), f(n);
    readout.assign(n, 0);
    for (const std::size_t t : weeks)
      for (std::size_t i = 0; i < n; ++i) {
        f[i] = feature(t, ppm[t], i);
        readout[i] += f[i] * (ppm[t + horizon] - ppm[t]);
        for (std::size_t j = 0; j <= i; ++j) a[i * n + j] += f[i] * f[j];
      }
    for (std::size_t i = 0; i < n; ++i) {
      a[i * n + i] += 1e-6 * double(weeks.size());
      for (std::size_t j = 0; j <= i; ++j) {
        double& l = a[i * n + j];
        for (std::size_t k = 0; k < j; ++k) l -= a[i * n + k] * a[j * n + k];
        l = i == j ? std::sqrt(l) : l / a[j * n + j];
      }
      for (std::size_t j = 0; j < i; ++j) readout[i] -= a[i * n + j] * readout[j];
      readout[i] /= a[i * n + i];
    }
    for (std::size_t i = n; i-- > 0; readout[i] /= a[i * n + i])
      for (std::size_t j = i + 1; j < n; ++j) readout[i] -= a[j * n + i] * readout[j];
  }
  double rmse(const std::vector<double>& ppm, const std::vector<std::size_t>& weeks) const {
    double sum = 0;
    for (const std::size_t t : weeks) sum += std::pow(forecast(t, ppm[t]) - ppm[t + horizon], 2);
    return std::sqrt(sum / double(weeks.size()));
  }
  /// Gradient of the mean squared error with respect to log_memory, then log_frequency.
  std::vector<double> gradient(const std::vector<double>& ppm,
                               const std::vector<std::size_t>& weeks) const {
    std::vector<complex> smooth_grad(smooth.size()), input_grad(smooth.size());
    std::vector<complex> lambda_grad(size()), first(size(), ppm[0]);
    for (const std::size_t t : weeks) {
      const double error = forecast(t, ppm[t]) - ppm[t + horizon];
      for (std::size_t k = 0; k < size(); ++k)
        smooth_grad[t * size() + k] = 2 * error / double(weeks.size()) *
                                      complex(readout[1 + 2 * k], readout[2 + 2 * k]);
    }
    const scanrec::extents s = shape(ppm.size());
    using view = scanrec::sequence_view<complex>;
    using const_view = scanrec::sequence_view<const complex>;
    scanrec::linear_scan_vjp(
        const_view(lambda, s, once), const_view(smooth, s), const_view(smooth_grad, s),
        {.gate_grad = view(lambda_grad, s, once), .input_grad = view(input_grad, s)},
        {.initial_state = {first, shape(1)}});
    std::vector<double> result(2 * size());
    for (std::size_t k = 0; k < size(); ++k) {
      for (std::size_t t = 0; t < ppm.size(); ++t)  // through the input, (1 - lambda) * ppm
        lambda_grad[k] -= input_grad[t * size() + k] * ppm[t];
      const complex z = std::conj(lambda_grad[k]) * lambda[k];  // d lambda = lambda * d(ln lambda)
      result[k] = z.real() * std::exp(-log_memory[k]);
      result[size() + k] = -z.imag() * std::exp(log_frequency[k]);
    }
    return result;
  }
};
