// SPDX-License-Identifier: BSD-3-Clause
// Compares schemes that compute the states between the parts of a sequence whose time axis is split
// over thousands of processes. Reports for each scheme the work of one process, the time of that
// work, the error, and the fraction of states whose bits differ from those of the scheme `one
// level`. One process simulates all others, so no messages are sent. The map of a part is the
// affine function from the state before the part to the state after it. A lane is one of many
// independent sequences.
//
// one level    All maps are gathered. Each process applies those of the earlier parts to a state.
// two levels   Maps are gathered within groups and composed to one map per group. The maps of the
//              groups are gathered between groups. A process applies the maps of the earlier groups
//              to a state, and then the maps of the earlier parts of its group.
// doubling     In round r = 0, 1, ... a process composes its map with that of the process 2^r
//              positions before it.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <scanrec/split_time.hpp>

#include "../measure.hpp"
#include "record.hpp"

namespace {

using namespace bench;
using namespace scanrec;

using map = part_map<float>;
using maps = std::vector<map>;  // a map per lane; for several parts, part after part
using states = std::vector<part_state<float>>;
/// Type of the exact results. On x86 it has 11 more bits than double, in which maps are folded, so
/// its own errors are negligible.
using exact = long double;

constexpr std::int64_t part_steps = 8;

/// A number in [0, 1) that depends only on the arguments.
double noise(std::int64_t step, std::int64_t lane, int role) {
  auto bits = static_cast<std::uint64_t>((step * 65537 + lane) * 2 + role) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ (bits >> 29)) * 0xbf58476d1ce4e5b9u;
  return static_cast<double>((bits ^ (bits >> 32)) >> 11) * 0x1p-53;
}
float gate_at(std::int64_t step, std::int64_t lane) {
  return static_cast<float>(1 - 0.002 * noise(step, lane, 0));
}
float input_at(std::int64_t step, std::int64_t lane) {
  return static_cast<float>(2 * noise(step, lane, 1) - 1);
}

/// The maps of all parts as the library forms them. The first part has constant maps, since no
/// state precedes it.
maps summaries(std::int64_t parts, std::int64_t lanes) {
  const extents shape{.time = part_steps, .channel = lanes};
  std::vector<float> gate(static_cast<std::size_t>(part_steps * lanes)), input(gate.size());
  maps all;
  all.reserve(static_cast<std::size_t>(parts * lanes));
  for (std::int64_t part = 0; part < parts; ++part) {
    for (std::int64_t t = 0; t < part_steps; ++t)
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        const auto i = static_cast<std::size_t>(t * lanes + lane);
        gate[i] = gate_at(part * part_steps + t, lane);
        input[i] = input_at(part * part_steps + t, lane);
      }
    const maps own = linear_scan_summary(tiled{.threads = 1}, sequence_view(gate.data(), shape),
                                         sequence_view(input.data(), shape));
    for (const map& m : own) all.push_back(part == 0 ? map::constant(m.u) : m);
  }
  return all;
}
std::span<const map> of_part(const maps& all, std::int64_t part, std::int64_t lanes) {
  return std::span(all).subspan(static_cast<std::size_t>(part * lanes),
                                static_cast<std::size_t>(lanes));
}
void compose(std::span<map> earlier, std::span<const map> later) {
  for (std::size_t i = 0; i < earlier.size(); ++i) earlier[i] = combine(earlier[i], later[i]);
}

/// Per lane: how often one process applies a map to a state (acts), how often it composes two maps
/// (combines), and how many maps it receives.
struct work {
  double acts, combines, received;
};
/// A scheme. `roundings` is L in the error bound of docs/numerics.md, where P counts the roundings
/// per step and L all others. Here a part counts as one step.
struct scheme {
  const char* name;
  int roundings;
  work does;
  double seconds;
  states after;  // the states after every part, for some lanes
};

// ---- the states after all parts -------------------------------------------------------------

states one_level(const maps& all, std::int64_t parts, std::int64_t lanes) {
  states now(static_cast<std::size_t>(lanes)), after;
  for (std::int64_t part = 0; part < parts; ++part) {
    fold_part<part_state<float>>(of_part(all, part, lanes), now);
    after.insert(after.end(), now.begin(), now.end());
  }
  return after;
}
states two_levels(const maps& all, std::int64_t parts, std::int64_t lanes, std::int64_t group) {
  states entering(static_cast<std::size_t>(lanes)), after;
  for (std::int64_t from = 0; from < parts; from += group) {
    const std::int64_t to = std::min(from + group, parts);
    states now = entering;
    maps together(static_cast<std::size_t>(lanes), map::identity());
    for (std::int64_t part = from; part < to; ++part) {
      fold_part<part_state<float>>(of_part(all, part, lanes), now);
      after.insert(after.end(), now.begin(), now.end());
      if (part == from)
        std::ranges::copy(of_part(all, part, lanes), together.begin());
      else
        compose(together, of_part(all, part, lanes));
    }
    fold_part<part_state<float>>(together, entering);
  }
  return after;
}
states doubling(const maps& all, std::int64_t parts, std::int64_t lanes) {
  maps now = all;
  for (std::int64_t distance = 1; distance < parts; distance *= 2) {
    const maps before = now;
    for (std::int64_t i = distance * lanes; i < parts * lanes; ++i)
      now[static_cast<std::size_t>(i)] =
          combine(before[static_cast<std::size_t>(i - distance * lanes)],
                  before[static_cast<std::size_t>(i)]);
  }
  states after;
  after.reserve(now.size());
  for (const map& m : now) after.push_back(m.u);
  return after;
}

// ---- errors and bits ------------------------------------------------------------------------

/// The largest error as a fraction of the bound |y - x| <= (1 + eps)^L S - s of docs/numerics.md,
/// where y is the computed state and x the exact one. s is the sum of the magnitudes of the terms
/// of x. S is the same sum, but every step multiplies the earlier terms by a further (1 + eps)^2. L
/// is `roundings`. Call step() for every step, and compare() after the steps whose state is
/// checked.
class bound {
 public:
  bound(double eps, int roundings) : eps_(eps), factor_(std::pow(1 + eps_, roundings)) {}
  void step(exact gate, exact input) {
    x_ = gate * x_ + input;
    s_ = std::fabs(gate) * s_ + std::fabs(input);
    large_ = std::fabs(gate) * (1 + eps_) * (1 + eps_) * large_ + std::fabs(input);
  }
  void compare(exact computed) {
    largest_ = std::max(largest_, std::fabs(computed - x_) / (factor_ * large_ - s_));
  }
  [[nodiscard]] double largest() const { return static_cast<double>(largest_); }

 private:
  exact eps_, factor_, x_ = 0, s_ = 0, large_ = 0, largest_ = 0;
};

/// The error of the fold alone, as a fraction of the bound for double, in which maps are folded.
/// The maps are taken as exact.
double error_of_fold(const maps& all, const scheme& by, std::int64_t parts, std::int64_t lanes) {
  double largest = 0;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    bound of(0x1p-53, by.roundings);
    for (std::int64_t part = 0; part < parts; ++part) {
      const auto i = static_cast<std::size_t>(part * lanes + lane);
      of.step(all[i].a, all[i].u);
      of.compare(by.after[i]);
    }
    largest = std::max(largest, of.largest());
  }
  return largest;
}
/// The error of the states after the parts, as a fraction of the bound for float, the compute type.
/// It includes the roundings of all steps within parts and those of two conversions.
double error_of_states(const scheme& by, std::int64_t parts, std::int64_t lanes) {
  double largest = 0;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    bound of(0x1p-24, by.roundings + 2);
    for (std::int64_t t = 0; t < parts * part_steps; ++t) {
      of.step(gate_at(t, lane), input_at(t, lane));
      if (t % part_steps == part_steps - 1)
        of.compare(
            static_cast<float>(by.after[static_cast<std::size_t>(t / part_steps * lanes + lane)]));
    }
    largest = std::max(largest, of.largest());
  }
  return largest;
}

/// Differences from the results of the scheme `one level`, and errors.
struct outcome {
  double differ, floats_differ;  // fractions of the states, before and after conversion to float
  std::int64_t begins;           // the first part after which a state differs
  double fold_error, error;      // fractions of the bound
};
outcome compare(const maps& all, const scheme& by, const states& left, std::int64_t parts,
                std::int64_t lanes) {
  std::int64_t wide = 0, narrow = 0, begins = parts;
  for (std::int64_t i = 0; i < parts * lanes; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (std::bit_cast<std::uint64_t>(by.after[at]) == std::bit_cast<std::uint64_t>(left[at]))
      continue;
    ++wide;
    begins = std::min(begins, i / lanes);
    narrow += std::bit_cast<std::uint32_t>(static_cast<float>(by.after[at])) !=
              std::bit_cast<std::uint32_t>(static_cast<float>(left[at]));
  }
  const auto states_seen = static_cast<double>(parts * lanes);
  return {static_cast<double>(wide) / states_seen, static_cast<double>(narrow) / states_seen,
          begins, error_of_fold(all, by, parts, lanes), error_of_states(by, parts, lanes)};
}

// ---- time -----------------------------------------------------------------------------------

template <class F>
double fastest(int runs, F f) {
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < runs; ++run) best = std::min(best, seconds_of(f));
  return best;
}
part_state<float> kept;  // so that the compiler does not remove the computation
void keep(const states& of) { kept = of.back(); }

/// Times the work of the last process, since it has the most parts before it. The values of the
/// maps do not matter here, so any maps of `some` stand in for the right ones.
void time_schemes(std::vector<scheme>& schemes, const maps& some, std::int64_t parts,
                  std::int64_t lanes, std::int64_t group, int runs) {
  const auto n = static_cast<std::size_t>(lanes);
  const auto go_through = [&](states& now, std::int64_t from, std::int64_t to) {
    for (std::int64_t part = from; part < to; ++part)
      fold_part<part_state<float>>(of_part(some, part, lanes), now);
  };
  schemes[0].seconds = fastest(runs, [&] {
    states now(n);
    go_through(now, 0, parts - 1);
    keep(now);
  });
  schemes[1].seconds = fastest(runs, [&] {
    const auto mine = of_part(some, 0, lanes);
    maps together(mine.begin(), mine.end());
    for (std::int64_t part = 1; part < group; ++part) compose(together, of_part(some, part, lanes));
    states now(n);
    go_through(now, 0, parts / group - 1);
    fold_part<part_state<float>>(together, now);  // so that the composed maps are used
    go_through(now, 0, group - 1);
    keep(now);
  });
  schemes[2].seconds = fastest(runs, [&] {
    const auto mine = of_part(some, 0, lanes);
    maps later(mine.begin(), mine.end());
    for (std::int64_t round = 0; std::int64_t{1} << round < parts; ++round) {
      const auto earlier = of_part(some, round + 1, lanes);
      for (std::size_t i = 0; i < n; ++i) later[i] = combine(earlier[i], later[i]);
    }
    kept = later.back().u;
  });
}

record measure_lanes(std::int64_t parts, std::int64_t lanes, std::int64_t group, int runs) {
  const double levels = std::ceil(std::log2(static_cast<double>(parts)));
  const auto one = static_cast<double>(parts - 1), within = static_cast<double>(group - 1);
  const auto between = static_cast<double>(parts / group - 1);
  std::vector<scheme> schemes{
      {"one_level", 1, {one, 0, one}, 0, {}},
      {"two_levels", 2, {between + within, within, between + within}, 0, {}},
      {"doubling", 1 + static_cast<int>(levels), {0, levels, levels}, 0, {}}};
  const std::int64_t looked_at = std::min<std::int64_t>(lanes, 64);
  const maps few = summaries(parts, looked_at);
  schemes[0].after = one_level(few, parts, looked_at);
  schemes[1].after = two_levels(few, parts, looked_at, group);
  schemes[2].after = doubling(few, parts, looked_at);
  maps all;
  all.reserve(static_cast<std::size_t>(parts * lanes));
  for (std::int64_t i = 0; i < parts * lanes; ++i)
    all.push_back(few[static_cast<std::size_t>(i) % few.size()]);
  time_schemes(schemes, all, parts, lanes, group, runs);

  record of_lanes;
  of_lanes.set("parts", static_cast<double>(parts)).set("lanes", static_cast<double>(lanes));
  of_lanes.set("group", static_cast<double>(group));
  for (const scheme& by : schemes) {
    const outcome found = compare(few, by, schemes[0].after, parts, looked_at);
    const auto width = static_cast<double>(lanes);
    const double acts = by.does.acts * width, combines = by.does.combines * width;
    const double bytes = by.does.received * width * sizeof(map);
    const double ns = by.seconds * 1e9 / (acts + combines);
    std::printf("%6lld %-10s %10.0f %10.0f %11.0f %10.2f %6.2f %8.5f %9.2g %6lld %6.3f %6.3f\n",
                static_cast<long long>(lanes), by.name, acts, combines, bytes, by.seconds * 1e6, ns,
                found.differ, found.floats_differ, static_cast<long long>(found.begins),
                found.fold_error, found.error);
    std::fflush(stdout);
    if (!(found.fold_error <= 1 && found.error <= 1))
      throw std::runtime_error(std::string(by.name) + ": not within the bound");
    of_lanes.set(by.name, record()
                              .set("acts", acts)
                              .set("combines", combines)
                              .set("bytes", bytes)
                              .set("seconds", by.seconds)
                              .set("ns_per_map", ns)
                              .set("states_that_differ", found.differ)
                              .set("floats_that_differ", found.floats_differ)
                              .set("first_part_that_differs", static_cast<double>(found.begins))
                              .set("roundings", by.roundings)
                              .set("error_of_fold_by_bound", found.fold_error)
                              .set("error_of_states_by_bound", found.error));
  }
  return of_lanes;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Folds the maps of many parts in one level, in two, and by doubling.");
  std::string json;
  std::int64_t parts = 4096, group = 64;
  std::vector<std::int64_t> lanes{1, 64, 4096, 65536};
  int runs = 7;
  app.add_option("--parts", parts, "Number of parts of the sequence, one per process")
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--group", group, "Parts per group; divides the number of parts")
      ->check(CLI::PositiveNumber);
  app.add_option("--lanes", lanes, "Numbers of independent sequences")->check(CLI::PositiveNumber);
  app.add_option("--runs", runs, "Number of runs; the fastest counts")->check(CLI::PositiveNumber);
  app.add_option("--json", json, "File that receives the figures");
  CLI11_PARSE(app, argc, argv);
  if (parts % group != 0) {
    std::fputs("--group does not divide --parts\n", stderr);
    return 2;
  }
  std::printf(
      "%lld parts, groups of %lld; the work of one process, and the states after all parts\n",
      static_cast<long long>(parts), static_cast<long long>(group));
  std::printf("%6s %-10s %10s %10s %11s %10s %6s %8s %9s %6s %6s %6s\n", "lanes", "", "acts",
              "combines", "bytes", "us", "ns/map", "differ", "as floats", "from", "error",
              "floats");
  try {
    std::vector<record> rows;
    for (const std::int64_t n : lanes) rows.push_back(measure_lanes(parts, n, group, runs));
    if (!json.empty()) write_records(json, made_here(), rows);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
  }
  return 0;
}
