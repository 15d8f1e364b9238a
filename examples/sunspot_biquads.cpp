// SPDX-License-Identifier: BSD-3-Clause
// Forecast the sunspot record with a learned biquad for every number of years ahead.
//
//   state[t] = A state[t-1] + gain * number[t]        a second-order section: 2 numbers per state
//   number[t+ahead] ~ weight . state[t]               sunspot numbers are normalised
//
// Each biquad starts as an autoregression of order 2, fitted one year ahead as by Yule (1927) and
// applied `ahead` times. At first, its states are (number[t], number[t-1]). Adam trains A, gain and
// weight to minimise the mean squared error `ahead` years ahead; linear_scan_vjp differentiates the
// states. Training uses the forecasts of the years before held_out_from; later years are held out.
// Each biquad is a channel. Its A applies to all years, so the gradient of A is a sum over the
// years.
#include <cmath>
#include <cstdio>
#include <fstream>

#include <Eigen/Cholesky>
#include <scanrec/scan.hpp>

#include "adam.hpp"
#include "yearly_record.hpp"

using vec = scanrec::vec<double, 2>;
using mat = scanrec::mat<double, 2>;
using pair = Eigen::Map<Eigen::Vector2d>;
constexpr int most_ahead = 8, parameters = 8 * most_ahead, train_from = 1749, held_out_from = 1925;

struct bank {
  const yearly_record& r;  // normalised
  scanrec::extents shape{.time = r.end - r.first, .channel = most_ahead};
  scanrec::strides once{.batch = 0, .time = 0, .channel = 1};  // one value for all years
  struct {                                                     // contiguous doubles
    mat a[most_ahead];
    vec gain[most_ahead], weight[most_ahead];
  } now{}, grad{};
  std::vector<vec> input = std::vector<vec>(r.values.size() * most_ahead), state = input;

  /// The index of the state from which biquad k forecasts `year`: that of k + 1 years earlier.
  std::size_t index(int year, int k) const {
    return std::size_t((year - k - 1 - r.first) * most_ahead + k);
  }
  double forecast(int year, int k) {
    return pair(now.weight[k].at).dot(pair(state[index(year, k)].at));
  }
  void start_as_autoregression() {
    Eigen::Matrix2d xx = Eigen::Matrix2d::Zero();
    Eigen::Vector2d xy = Eigen::Vector2d::Zero();
    for (int year = train_from; year < held_out_from; ++year) {
      const Eigen::Vector2d past(r.at(year - 1), r.at(year - 2));
      xx += past * past.transpose(), xy += past * r.at(year);
    }
    const Eigen::Vector2d c = xx.ldlt().solve(xy);
    vec weight{1, 0};
    for (int k = 0; k < most_ahead; ++k) {
      weight = {weight[0] * c[0] + weight[1], weight[0] * c[1]};
      now.weight[k] = weight, now.gain[k] = {1, 0}, now.a[k] = {{{0, 0}, {1, 0}}};
    }
    run();
  }
  void run() {
    for (std::size_t i = 0; i < input.size(); ++i)
      pair(input[i].at) = r.values[i / most_ahead] * pair(now.gain[i % most_ahead].at);
    scanrec::linear_scan(scanrec::sequence_view(now.a, shape, once),
                         scanrec::sequence_view(input.data(), shape),
                         scanrec::sequence_view(state.data(), shape));
  }
  /// An Adam step for the mean squared error in the training years, from the states of the last
  /// run().
  void learn(adam& optimiser) {
    std::vector<vec> state_grad(state.size()), input_grad(state.size());
    grad = {};
    for (int k = 0; k < most_ahead; ++k)
      for (int year = train_from; year < held_out_from; ++year) {
        const double e = 2 * (forecast(year, k) - r.at(year)) / (held_out_from - train_from);
        pair(state_grad[index(year, k)].at) = e * pair(now.weight[k].at);
        pair(grad.weight[k].at) += e * pair(state[index(year, k)].at);
      }
    scanrec::linear_scan_vjp(scanrec::sequence_view(now.a, shape, once),
                             scanrec::sequence_view(state.data(), shape),
                             scanrec::sequence_view(state_grad.data(), shape),
                             {.gate_grad = scanrec::sequence_view(grad.a, shape, once),
                              .input_grad = scanrec::sequence_view(input_grad.data(), shape)});
    for (std::size_t i = 0; i < input.size(); ++i)
      pair(grad.gain[i % most_ahead].at) += r.values[i / most_ahead] * pair(input_grad[i].at);
    optimiser.step({now.a[0].at[0], parameters}, {grad.a[0].at[0], parameters});
    run();
  }
};

int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("usage: sunspot_biquads sunspots_yearly.csv out_dir");
  yearly_record r(argv[1], train_from - most_ahead, held_out_from + 1);
  std::ofstream table(argv[2] + std::string("/forecast.csv"));
  if (!table) throw std::runtime_error(std::string("cannot write in ") + argv[2]);
  r.normalise(train_from, held_out_from);
  bank start{r}, learned{r};
  start.start_as_autoregression(), learned.start_as_autoregression();
  adam optimiser(parameters, 0.01);
  for (int step = 0; step < 1000; ++step) learned.learn(optimiser);

  std::printf("RMSE of sunspot numbers from 1925 on, held out\n%s\n",
              "years ahead   persistence   autoregression   learned biquad");
  table << "year,years_ahead,number,persistence,autoregression,learned\n";
  for (int k = 0; k < most_ahead; ++k) {
    double squares[3]{};
    for (int year = train_from; year < r.end; ++year) {
      const double made[]{r.at(year - k - 1), start.forecast(year, k), learned.forecast(year, k)};
      table << year << ',' << k + 1 << ',' << r.original(r.at(year));
      for (const double x : made) table << ',' << r.original(x);
      table << '\n';
      for (int i = 0; i < 3 && year >= held_out_from; ++i)
        squares[i] += std::pow(made[i] - r.at(year), 2) / (r.end - held_out_from);
    }
    for (double& x : squares) x = r.deviation * std::sqrt(x);
    std::printf("%11d %13.1f %16.1f %16.1f\n", k + 1, squares[0], squares[1], squares[2]);
  }
  return table.flush() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "sunspot_biquads: %s\n", error.what());
  return 1;
}
