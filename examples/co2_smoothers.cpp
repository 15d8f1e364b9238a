// SPDX-License-Identifier: BSD-3-Clause
// A bank of exponential smoothers with learned complex decays forecasts the Mauna Loa CO2 record.
//
//   smooth[t, k] = lambda[k] * smooth[t-1, k] + (1 - lambda[k]) * ppm[t]
//   ppm[t+ahead] ~ ppm[t] + sum_k Re(conj(weight[k]) * (smooth[t, k] - ppm[t]))
//
// A real lambda smooths; a complex one is tuned to a season of 2 pi / arg(lambda) weeks. Adam
// updates the lambdas with the gradient from linear_scan_vjp. Before each update, the weights are
// fitted by least squares, so their gradients are nearly zero. Nothing is fitted to held-out weeks.
// The numbers of smoothers and updates were chosen on the training weeks.
#include <cmath>
#include <complex>
#include <cstdio>
#include <fstream>
#include <numbers>

#include <Eigen/Cholesky>
#include <scanrec/scan.hpp>

#include "adam.hpp"
#include "weekly_record.hpp"

using complex = std::complex<double>;
using indices = std::vector<std::size_t>;
constexpr std::size_t ahead = 13, year = 52;  // weeks
constexpr double turn = 2 * std::numbers::pi;

/// Smoothers with lambda = exp(-1 / memory + i turn / period). `memory` and `period` are in weeks;
/// lambda is real if the period is infinite.
struct bank {
  const series& ppm;
  series memory, period;
  Eigen::VectorXd weights{};  // Re and Im of every smoother's weight
  std::vector<complex> lambda{}, first{}, input{}, smooth{};
  scanrec::extents shape{.time = std::int64_t(ppm.size()), .channel = std::int64_t(memory.size())};
  static constexpr scanrec::strides once{.batch = 0, .time = 0, .channel = 1};  // same for all t

  /// Runs the smoothers and fits the weights for forecasts that start in the given weeks.
  void run(const indices& weeks) {
    lambda.clear(), input.clear();
    for (std::size_t k = 0; k < memory.size(); ++k)
      lambda.push_back(std::exp(complex(-1 / memory[k], turn / period[k])));
    for (const double x : ppm)
      for (const complex l : lambda) input.push_back((1.0 - l) * x);
    first.assign(memory.size(), ppm[0]), smooth.resize(input.size());
    scanrec::linear_scan(scanrec::sequence_view(lambda.data(), shape, once),
                         scanrec::sequence_view(input.data(), shape),
                         scanrec::sequence_view(smooth.data(), shape),
                         {.initial_state = {first.data(), shape}});
    fit_weights(weeks);
  }
  complex at(std::size_t t, std::size_t k) const { return smooth[t * memory.size() + k]; }
  Eigen::VectorXd features(std::size_t t) const {
    Eigen::VectorXd x(2 * memory.size());
    for (std::size_t k = 0; k < memory.size(); ++k)
      x.segment<2>(2 * k) << at(t, k).real() - ppm[t], at(t, k).imag();
    return x;
  }
  double forecast(std::size_t t) const { return ppm[t] + weights.dot(features(t)); }
  /// Fits by least squares. A real smoother has Im = 0; the ridge term makes the weight of Im zero.
  void fit_weights(const indices& weeks) {
    const Eigen::Index n = 2 * memory.size();
    Eigen::MatrixXd a = 1e-6 * double(weeks.size()) * Eigen::MatrixXd::Identity(n, n);
    Eigen::VectorXd b = Eigen::VectorXd::Zero(n);
    for (const std::size_t t : weeks) {
      const Eigen::VectorXd x = features(t);
      a += x * x.transpose(), b += x * (ppm[t + ahead] - ppm[t]);
    }
    weights = a.ldlt().solve(b);
  }
  /// An Adam step on ln(memory) and ln(period), for the mean squared error. Call run() first.
  void learn(const indices& weeks, adam& optimiser) {
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
    series logarithms, gradient;
    for (std::size_t k = 0; k < n; ++k) {
      for (std::size_t t = 0; t < ppm.size(); ++t) lambda_grad[k] -= input_grad[t * n + k] * ppm[t];
      const complex z = std::conj(lambda_grad[k]) * lambda[k];  // d lambda = lambda d(ln lambda)
      logarithms.insert(logarithms.end(), {std::log(memory[k]), std::log(period[k])});
      gradient.insert(gradient.end(), {z.real() / memory[k], z.imag() * turn / period[k]});
    }
    optimiser.step(logarithms, gradient);
    for (std::size_t k = 0; k < n; ++k)
      memory[k] = std::exp(logarithms[2 * k]), period[k] = std::exp(logarithms[2 * k + 1]);
  }
};

int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("usage: co2_smoothers data/co2_weekly.csv out_dir");
  const weekly_record r(argv[1]);
  const series& ppm = r.ppm;
  std::ofstream summary(argv[2] + std::string("/summary.csv"));
  std::ofstream table(argv[2] + std::string("/forecast.csv"));
  if (!summary || !table) throw std::runtime_error(std::string("cannot write in ") + argv[2]);
  const std::size_t split = ppm.size() * 8 / 10;
  indices train, held_out;  // weeks at which forecasts start, split by target week
  for (std::size_t t = 2 * year; t + ahead < ppm.size(); ++t)
    if (r.measured[t] && r.measured[t + ahead]) (t + ahead < split ? train : held_out).push_back(t);
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
  std::printf("%zu weeks of CO2, held out from %s on\n", ppm.size(), r.dates[split].c_str());
  std::printf("RMSE in ppm, %zu weeks ahead%20s train held out\n", ahead, "");
  report("persistence", [&](std::size_t t) { return ppm[t]; });
  bank fixed{ppm, {1}, {INFINITY}};
  double best = INFINITY, best_memory = 0;
  for (; fixed.memory[0] < 1000; fixed.memory[0] *= 1.1)
    if (fixed.run(train); rmse(train, by(fixed)) < best)
      best = rmse(train, by(fixed)), best_memory = fixed.memory[0];
  fixed.memory[0] = best_memory, fixed.run(train);
  report("one real smoother with the best decay", by(fixed));
  bank b{ppm, {4, 30, 30, 30}, {INFINITY, INFINITY, 70, 20}};  // far from a year and half a year
  adam optimiser(2 * b.memory.size(), 0.03);
  b.run(train);
  for (int step = 0; step < 400; ++step, b.run(train)) b.learn(train, optimiser);
  report("four smoothers with learned decays", by(b));
  std::printf("\ndecays           |lambda|    memory in weeks    period in weeks (inf: real)\n");
  for (std::size_t k = 0; k < 4; ++k)
    std::printf("  %23.4f %18.1f %18.1f\n", std::abs(b.lambda[k]), b.memory[k], b.period[k]);
  table << "date,ppm,smoothed,forecast,split\n";
  for (std::size_t t = 0; t < ppm.size(); ++t) {
    table << r.dates[t] << ',' << (r.measured[t] ? std::to_string(ppm[t]) : "");
    table << ',' << b.at(t, 0).real() << ',';
    if (t >= 2 * year + ahead && r.measured[t - ahead]) table << b.forecast(t - ahead);
    table << ',' << (t < split ? "train" : "held_out") << '\n';
  }
  return summary.flush() && table.flush() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "co2_smoothers: %s\n", error.what());
  return 1;
}
