// SPDX-License-Identifier: BSD-3-Clause
// A bank of exponential smoothers with learned complex decays forecasts the Mauna Loa CO2 record.
//
//   smooth[t, k] = lambda[k] * smooth[t-1, k] + (1 - lambda[k]) * ppm[t]
//   ppm[t+ahead] ~ ppm[t] + sum_k Re(conj(weight[k]) * (smooth[t, k] - ppm[t]))
//
// A real lambda smooths, a complex one tunes in to a season of 2 pi / arg(lambda) weeks. Adam moves
// the lambdas along linear_scan_vjp's gradient; the weights are the least squares ones throughout,
// where their own gradient is zero. No forecast uses a later week, nothing is fitted to held-out
// weeks, and the number of smoothers and of steps was chosen within the training weeks.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

#include <scanrec/scan.hpp>

using complex = std::complex<double>;
using series = std::vector<double>;
using indices = std::vector<std::size_t>;
constexpr std::size_t ahead = 13, year = 52;  // weeks
constexpr int adam_steps = 400;
constexpr double turn = 2 * std::numbers::pi;

struct record {
  std::vector<std::string> dates;
  series ppm;                  // gaps filled by linear interpolation
  std::vector<bool> measured;  // forecasts are fitted and scored between measured weeks only
};

record read_record(const std::string& path) {
  record r;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  for (std::size_t t = 0, last = 0; std::getline(file, line); ++t) {
    const std::size_t comma = std::min(line.find(','), line.size());
    r.dates.push_back(line.substr(0, comma));
    r.ppm.push_back(std::strtod(line.c_str() + comma + (comma < line.size()), nullptr));
    r.measured.push_back(r.ppm[t] > 0);
    for (std::size_t i = last + 1; r.measured[t] && i < t; ++i)
      r.ppm[i] = std::lerp(r.ppm[last], r.ppm[t], double(i - last) / double(t - last));
    if (r.measured[t]) last = t;
  }
  if (r.ppm.size() < 10 * year || !r.measured.front() || !r.measured.back())
    throw std::runtime_error(path + ": no ten years of date,ppm with measured ends");
  return r;
}

/// Smoothers lambda = exp(-1 / memory + i turn / period), in weeks; a real one has period infinity.
struct bank {
  const series& ppm;
  series memory, period, weights{}, moments{};  // weights: Re and Im; moments: Adam's
  std::vector<complex> lambda{}, first{}, input{}, smooth{};
  scanrec::extents shape{.time = std::int64_t(ppm.size()), .channel = std::int64_t(memory.size())};
  static constexpr scanrec::extents once{.batch = 0, .time = 0, .channel = 1};  // same for every t

  /// Runs the smoothers and fits the weights to the forecasts made in the given weeks.
  void run(const indices& weeks) {
    lambda.clear(), input.clear();
    for (std::size_t k = 0; k < memory.size(); ++k)
      lambda.push_back(std::exp(complex(-1 / memory[k], turn / period[k])));
    for (const double x : ppm)
      for (const complex l : lambda) input.push_back((1.0 - l) * x);
    first.assign(memory.size(), ppm[0]);
    smooth.resize(input.size());
    scanrec::linear_scan(scanrec::sequence_view(lambda.data(), shape, once),
                         scanrec::sequence_view(input.data(), shape),
                         scanrec::sequence_view(smooth.data(), shape),
                         {.initial_state = {first.data(), shape}});
    fit_weights(weeks);
  }
  double feature(std::size_t t, std::size_t i) const {
    const complex s = smooth[t * memory.size() + i / 2] - ppm[t];
    return i % 2 == 0 ? s.real() : s.imag();
  }
  double forecast(std::size_t t) const {
    double sum = ppm[t];
    for (std::size_t i = 0; i < weights.size(); ++i) sum += weights[i] * feature(t, i);
    return sum;
  }
  /// Solves the normal equations; a ridge gives Im of a real smoother, always 0, the weight 0.
  void fit_weights(const indices& weeks) {
    const std::size_t n = 2 * memory.size();
    std::vector<series> a(n, series(n + 1));  // the last column is the right-hand side
    for (std::size_t i = 0; i < n; ++i) a[i][i] = 1e-6 * double(weeks.size());
    for (const std::size_t t : weeks)
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) a[i][j] += feature(t, i) * feature(t, j);
        a[i][n] += feature(t, i) * (ppm[t + ahead] - ppm[t]);
      }
    for (std::size_t p = 0; p < n; ++p)  // positive definite: no pivoting needed
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = n + 1; i != p && j-- > p;) a[i][j] -= a[i][p] / a[p][p] * a[p][j];
    weights.resize(n);
    for (std::size_t i = 0; i < n; ++i) weights[i] = a[i][n] / a[i][i];
  }
  /// After run: an Adam step along the mean squared error's gradient in ln(memory), ln(period).
  void learn(const indices& weeks, int step) {
    const std::size_t n = memory.size();
    std::vector<complex> smooth_grad(smooth.size()), input_grad(smooth.size()), lambda_grad(n);
    for (const std::size_t t : weeks)
      for (std::size_t k = 0; k < n; ++k)
        smooth_grad[t * n + k] = complex(weights[2 * k], weights[2 * k + 1]) *
                                 (2 * (forecast(t) - ppm[t + ahead]) / double(weeks.size()));
    scanrec::linear_scan_vjp(scanrec::sequence_view(lambda.data(), shape, once),
                             scanrec::sequence_view(smooth.data(), shape),
                             scanrec::sequence_view(smooth_grad.data(), shape),
                             {.gate_grad = {lambda_grad.data(), shape, once},  // sums over t
                              .input_grad = {input_grad.data(), shape}},
                             {.initial_state = {first.data(), shape}});
    moments.resize(4 * n);
    const auto descend = [&](double& x, double g, std::size_t i) {
      moments[i] = std::lerp(g, moments[i], 0.9);
      moments[i + 1] = std::lerp(g * g, moments[i + 1], 0.999);
      const double unbias = std::sqrt(1 - std::pow(0.999, step)) / (1 - std::pow(0.9, step));
      x *= std::exp(-0.03 * unbias * moments[i] / (std::sqrt(moments[i + 1]) + 1e-12));
    };
    for (std::size_t k = 0; k < n; ++k) {
      for (std::size_t t = 0; t < ppm.size(); ++t) lambda_grad[k] -= input_grad[t * n + k] * ppm[t];
      const complex z = std::conj(lambda_grad[k]) * lambda[k];  // d lambda = lambda d(ln lambda)
      descend(memory[k], z.real() / memory[k], 4 * k);
      descend(period[k], z.imag() * turn / period[k], 4 * k + 2);
    }
  }
};

int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("usage: co2_smoothers data/co2_weekly.csv out_dir");
  const record r = read_record(argv[1]);
  const series& ppm = r.ppm;
  const std::string out = argv[2];
  std::ofstream summary(out + "/summary.csv"), table(out + "/forecast.csv");
  if (!summary || !table) throw std::runtime_error("cannot write in " + out);

  const std::size_t split = ppm.size() * 8 / 10;
  indices train, held_out;  // weeks to forecast from, by the week they forecast
  for (std::size_t t = 2 * year; t + ahead < ppm.size(); ++t)
    if (r.measured[t] && r.measured[t + ahead]) (t + ahead < split ? train : held_out).push_back(t);
  std::printf("%zu weeks, %td missing ones filled by linear interpolation; held out from %s on\n",
              ppm.size(), std::count(r.measured.begin(), r.measured.end(), false),
              r.dates[split].c_str());

  const auto rmse = [&](const indices& weeks, auto forecast) {
    double sum = 0;
    for (const std::size_t t : weeks) sum += std::pow(forecast(t) - ppm[t + ahead], 2);
    return std::sqrt(sum / double(weeks.size()));
  };
  const auto report = [&](const char* method, auto forecast) {
    const double fitted = rmse(train, forecast), scored = rmse(held_out, forecast);
    std::printf("  %-40s %8.3f %8.3f\n", method, fitted, scored);
    summary << method << ',' << ahead << ',' << fitted << ',' << scored << '\n';
  };
  const auto by = [](const bank& b) { return [&b](std::size_t t) { return b.forecast(t); }; };
  summary << "method,weeks_ahead,train_rmse_ppm,held_out_rmse_ppm\n";
  std::printf("\nRMSE in ppm, %zu weeks ahead                    train held out\n", ahead);
  report("persistence", [&](std::size_t t) { return ppm[t]; });
  report("the change of a year ago",
         [&](std::size_t t) { return ppm[t] + ppm[t + ahead - year] - ppm[t - year]; });
  bank fixed{ppm, {1}, {INFINITY}};
  double best = INFINITY, best_memory = 0;
  for (; fixed.memory[0] < 1000; fixed.memory[0] *= 1.1)
    if (fixed.run(train); rmse(train, by(fixed)) < best)
      best = rmse(train, by(fixed)), best_memory = fixed.memory[0];
  fixed.memory[0] = best_memory;
  fixed.run(train);
  report("one real smoother with the best decay", by(fixed));

  bank b{ppm, {4, 30, 30, 30}, {INFINITY, INFINITY, 70, 20}};  // far from a year and its half
  b.run(train);
  report("four smoothers as they start", by(b));
  using clock = std::chrono::steady_clock;
  const auto start = clock::now();
  auto said = start + std::chrono::seconds(1);  // quiet for two seconds, then a line a second
  for (int step = 1; step <= adam_steps; ++step, b.run(train)) {
    b.learn(train, step);
    if (clock::now() < said + std::chrono::seconds(1)) continue;
    said = clock::now();
    std::printf("  step %d of %d: train RMSE %.3f\n", step, adam_steps, rmse(train, by(b)));
  }
  report("four smoothers with learned decays", by(b));
  std::printf("\ndecays           |lambda|    memory in weeks    period in weeks (inf: real)\n");
  for (std::size_t k = 0; k < b.memory.size(); ++k)
    std::printf("  learned %15.4f %18.1f %18.1f\n", std::abs(b.lambda[k]), b.memory[k],
                b.period[k]);
  std::printf("  best fixed %12.4f %18.1f\n", std::abs(fixed.lambda[0]), fixed.memory[0]);

  table << "date,ppm,smoothed,forecast,split\n";
  for (std::size_t t = 0; t < ppm.size(); ++t) {
    table << r.dates[t] << ',';
    if (r.measured[t]) table << ppm[t];
    table << ',' << b.smooth[t * b.memory.size()].real() << ',';
    if (t >= 2 * year + ahead && r.measured[t - ahead]) table << b.forecast(t - ahead);
    table << ',' << (t < split ? "train" : "held_out") << '\n';
  }
  return summary.flush() && table.flush() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "co2_smoothers: %s\n", error.what());
  return 1;
}
