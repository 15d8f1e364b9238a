// SPDX-License-Identifier: BSD-3-Clause
// Times the phases of a scan whose time axis is split over processes, with barriers between the
// phases. Also times the call as a whole, and one process that does everything. First and last
// refer to scan order.
//
//     mpirun -n 4 build/release/bench/distributed/bench_distributed --json four.json
//
// The phases:
//
// check      validation of the arguments, and an all-reduce of 72 bytes
// first      the scan of the first part                          } at the same time,
// summary    the maps of parts that are neither first nor last   } in different processes
// exchange   the all-gather of the maps
// fold       the states between parts; every process computes all of them
// run        the scans of all parts but the first
//
// Rank 0 also runs the whole scan, with one thread and with all cores, and computes the maps of the
// whole sequence, while the others sleep. Each time is that of the slowest process, in the fastest
// of several runs. In the phases, every process has one thread. With fewer cores than processes,
// the processes share cores, and the times show no gain from more processes.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include <scanrec/mpi.hpp>

#include "../measure.hpp"
#include "record.hpp"

namespace {

using namespace bench;
using namespace scanrec;

enum phase : std::size_t { check, first, summary, exchange, fold, run, phases };
constexpr std::array<const char*, phases> names{"check",    "first", "summary",
                                                "exchange", "fold",  "run"};
using times = std::array<double, phases>;
using map = part_map<float>;

struct workload {
  std::string name;
  std::int64_t lanes, steps;
  bool constant;  // one gate for all steps and lanes
};

/// This process and the number of processes. Position 0 is the process with the part of time that
/// is scanned first.
struct processes {
  int rank = 0, size = 1;
  bool backwards = false;
  [[nodiscard]] int rank_of(int position) const {
    return backwards ? size - 1 - position : position;
  }
  [[nodiscard]] int position() const { return rank_of(rank); }
};

/// The seconds that f() takes in this process; all processes begin together.
template <class F>
double seconds_here(F f) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  f();
  return MPI_Wtime() - start;
}
/// Waits for the other processes without keeping a core busy.
void wait_asleep() {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int done = 0; !done;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}
template <std::size_t N>
void keep_fastest(std::array<double, N>& fastest, const std::array<double, N>& here) {
  std::array<double, N> slowest{};
  MPI_Allreduce(here.data(), slowest.data(), static_cast<int>(N), MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
  for (std::size_t i = 0; i < N; ++i) fastest[i] = std::min(fastest[i], slowest[i]);
}

/// Fills the buffer of a role with `count` elements of an endless periodic array, from index
/// `begin` on. So a sequence has the same values for any number of parts.
float* filled(int role, std::int64_t begin, std::int64_t count, bool gate) {
  constexpr std::int64_t period = 8191;
  std::vector<float> once(period);
  fill(once.data(), period, gate);
  auto* const p = static_cast<float*>(
      buffers.get(role, static_cast<std::size_t>(std::max<std::int64_t>(count, 1)) * 4));
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t at = (begin + i) % period, run = std::min(period - at, count - i);
    std::copy_n(once.data() + at, run, p + i);
    i += run;
  }
  return p;
}

/// The phases of a call on one part of the sequence, and the calls that are timed beside them. Rank
/// 0 has the arrays of the whole sequence, and its part is their beginning.
struct pieces {
  std::function<void()> check;
  std::function<std::vector<map>()> summary;
  // Replaces the states before the part by those after it; for a vjp, these are gradients.
  std::function<void(std::vector<float>&)> run;
  std::function<void()> whole;          // the call of scanrec::mpi
  std::function<void(int)> alone;       // the whole scan, with this number of threads
  std::function<void()> alone_summary;  // the maps of the whole sequence
  // Results at the first step of the last part: of the last process, and of one process alone.
  std::function<std::vector<float>()> last;
  std::function<std::vector<float>()> last_alone;
};

/// The arrays of a part, or of the whole sequence.
struct arrays {
  sequence_view<float> gate{}, input{}, state{}, gate_grad{}, input_grad{};
};

std::vector<float> row(const sequence_view<float>& of, std::int64_t step) {
  const float* const begin = of.data + step * of.shape.channel;
  return {begin, begin + of.shape.channel};
}
pieces forward(const arrays& part, const arrays& all, std::int64_t last_begin) {
  const tiled one{.threads = 1};
  return {
      .check = [=] { static_cast<void>(linear_scan_problem(part.gate, part.input, part.state)); },
      .summary = [=] { return linear_scan_summary(one, part.gate, part.input); },
      .run =
          [=](std::vector<float>& states) {
            linear_scan(one, part.gate, part.input, part.state,
                        {.initial_state = state_view<const float>(states.data(), part.state.shape),
                         .final_state = state_view<float>(states.data(), part.state.shape)});
          },
      .whole = [=] { mpi::linear_scan(MPI_COMM_WORLD, one, part.gate, part.input, part.state); },
      .alone =
          [=](int threads) {
            linear_scan(tiled{.threads = threads}, all.gate, all.input, all.state);
          },
      .alone_summary = [=] { static_cast<void>(linear_scan_summary(one, all.gate, all.input)); },
      .last = [=] { return row(part.state, 0); },
      .last_alone = [=] { return row(all.state, last_begin); }};
}
// The array of inputs is also passed as the gradient of the states.
pieces vjp(const arrays& part, const arrays& all, const std::vector<float>& entering) {
  const tiled one{.threads = 1};
  const auto before = [entering, shape = part.gate.shape] {
    return state_view<const float>(entering.data(), shape);
  };
  const auto wanted = [](const arrays& of) {
    return scan_gradients<float, float>{.gate_grad = of.gate_grad, .input_grad = of.input_grad};
  };
  return {
      .check =
          [=] {
            static_cast<void>(linear_scan_vjp_problem(part.gate, part.state, part.input,
                                                      wanted(part), {.initial_state = before()}));
          },
      .summary = [=] { return linear_scan_vjp_summary(one, part.gate, part.input); },
      .run =
          [=](std::vector<float>& grads) {
            auto gradients = wanted(part);
            std::vector<float> begins(grads.size());
            gradients.initial_grad = state_view<float>(begins.data(), part.gate.shape);
            linear_scan_vjp(one, part.gate, part.state, part.input, gradients,
                            {.initial_state = before(),
                             .final_grad = state_view<const float>(grads.data(), part.gate.shape)});
            grads = begins;
          },
      .whole =
          [=] {
            mpi::linear_scan_vjp(MPI_COMM_WORLD, one, part.gate, part.state, part.input,
                                 wanted(part), {.entering_state = before()});
          },
      .alone =
          [=](int threads) {
            linear_scan_vjp(tiled{.threads = threads}, all.gate, all.state, all.input, wanted(all));
          },
      .alone_summary =
          [=] { static_cast<void>(linear_scan_vjp_summary(one, all.gate, all.input)); },
      .last = [=] { return row(part.input_grad, part.input_grad.shape.time - 1); },
      .last_alone = [=] { return row(all.input_grad, part.input_grad.shape.time - 1); }};
}

/// One run of all phases, as in a call whose states are all finite.
times run_phases(const processes& all, const pieces& of, std::size_t lanes) {
  times t{};
  t[check] = seconds_here([&] {
    of.check();
    std::array<std::int64_t, 9> mine{}, least{};
    MPI_Allreduce(mine.data(), least.data(), 9, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
  });
  const bool is_first = all.position() == 0, is_last = all.position() + 1 == all.size;
  std::vector<float> states(lanes);
  std::vector<map> own(lanes, map::identity());
  t[is_first ? first : summary] = seconds_here([&] {
    if (is_first) {
      of.run(states);
      for (std::size_t i = 0; i < lanes; ++i) own[i] = map::constant(states[i]);
    } else if (!is_last) {
      own = of.summary();
    }
  });
  std::vector<map> maps(lanes * static_cast<std::size_t>(all.size));
  t[exchange] = seconds_here([&] {
    MPI_Datatype element = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(sizeof(map), MPI_BYTE, &element);
    MPI_Type_commit(&element);
    MPI_Allgather(own.data(), static_cast<int>(lanes), element, maps.data(),
                  static_cast<int>(lanes), element, MPI_COMM_WORLD);
    MPI_Type_free(&element);
  });
  std::vector<part_state<float>> after(lanes), before(lanes);
  bool finite = true;
  t[fold] = seconds_here([&] {
    for (int position = 0; position + 1 < all.size; ++position) {
      const auto rank = static_cast<std::size_t>(all.rank_of(position));
      fold_part<part_state<float>>(std::span(maps).subspan(lanes * rank, lanes), after);
      if (position + 1 == all.position()) before = after;
      for (const auto& x : after) finite = finite && std::isfinite(static_cast<float>(x));
    }
  });
  if (!finite) throw std::runtime_error("a state is not finite");
  t[run] = seconds_here([&] {
    if (is_first) return;
    for (std::size_t i = 0; i < lanes; ++i) states[i] = static_cast<float>(before[i]);
    of.run(states);
  });
  return t;
}

/// The largest allowed difference of two results at a step, per lane: twice the error bound of
/// docs/numerics.md, (1 + eps)^L S - s with L = 12. s is the sum of the magnitudes of the terms of
/// a state. S is the same sum, but every step multiplies the earlier terms by a further
/// (1 + eps)^2. The sums begin `remembered` steps earlier, since steps before that have a
/// negligible effect. For an adjoint the sums run backwards in time, so they begin later.
std::vector<double> allowed_at(std::int64_t step, const arrays& all, const workload& load,
                               bool is_vjp) {
  const double eps = 0x1p-24;
  const std::int64_t remembered = load.constant ? 1 << 15 : 1 << 11;
  const std::int64_t begin = is_vjp ? std::min(step + remembered, load.steps - 1)
                                    : std::max<std::int64_t>(step - remembered, 0);
  std::vector<double> allowed;
  for (std::int64_t lane = 0; lane < load.lanes; ++lane) {
    double s = 0, large = 0;
    for (std::int64_t t = begin;; t += is_vjp ? -1 : 1) {
      const std::int64_t of_gate = is_vjp ? std::min(t + 1, load.steps - 1) : t;
      const double gate = std::fabs(all.gate.at(0, of_gate, lane));
      const double input = std::fabs(all.input.at(0, t, lane));
      s = gate * s + input;
      large = gate * (1 + eps) * (1 + eps) * large + input;
      if (t == step) break;
    }
    allowed.push_back(2 * (std::pow(1 + eps, 12) * large - s));
  }
  return allowed;
}
/// The difference between results of the last process and of one process alone, as a fraction of
/// the allowed difference. It is taken at the first step of the last part, where the states of
/// earlier parts matter most.
double difference(const processes& all, const pieces& of, const std::vector<float>& found,
                  const std::vector<double>& allowed) {
  std::vector<float> last = found;
  const int from = all.rank_of(all.size - 1), count = static_cast<int>(last.size());
  if (from != 0 && all.rank == from) MPI_Send(last.data(), count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
  double off = 0;
  if (all.rank == 0) {
    if (from != 0)
      MPI_Recv(last.data(), count, MPI_FLOAT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const std::vector<float> right = of.last_alone();
    for (std::size_t i = 0; i < last.size(); ++i)
      off = std::max(off, std::fabs(double{last[i]} - double{right[i]}) / allowed[i]);
  }
  MPI_Bcast(&off, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  return off;
}

/// Measures one call of one workload, prints its line, and returns its record.
record measure_call(processes all, const workload& load, bool is_vjp, int runs) {
  const std::int64_t begin = load.steps * all.rank / all.size;
  const std::int64_t end = load.steps * (all.rank + 1) / all.size;
  const auto laid_out = [&](std::int64_t steps) {
    const extents shape{.time = steps, .channel = load.lanes};
    const strides rows{.batch = steps * load.lanes, .time = load.lanes, .channel = 1};
    const strides of_gate = load.constant ? strides{} : rows;
    const std::int64_t count = steps * load.lanes, gates = load.constant ? 1 : count;
    const auto array = [&](int role, std::int64_t n, bool gate, const strides& lies) {
      return sequence_view<float>(filled(role, begin * load.lanes, n, gate), shape, lies);
    };
    arrays of{.gate = array(0, gates, true, of_gate),
              .input = array(1, count, false, rows),
              .state = array(2, count, false, rows)};
    if (load.constant) *of.gate.data = 0.999f;
    if (is_vjp) {
      of.gate_grad = array(3, gates, false, of_gate);
      of.input_grad = array(4, count, false, rows);
    }
    return of;
  };
  const arrays here = laid_out(all.rank == 0 ? load.steps : end - begin);
  arrays part = here;
  for (sequence_view<float>* view :
       {&part.gate, &part.input, &part.state, &part.gate_grad, &part.input_grad})
    view->shape.time = end - begin;

  const auto lanes = static_cast<std::size_t>(load.lanes);
  pieces of = forward(part, here, load.steps * (all.size - 1) / all.size);
  if (is_vjp) {
    std::vector<float> entering(lanes);
    if (all.rank == 0) of.alone(1);
    mpi::linear_scan(MPI_COMM_WORLD, tiled{.threads = 1}, part.gate, part.input, part.state,
                     {.entering_state = state_view<float>(entering.data(), part.gate.shape)});
    of = vjp(part, here, entering);
    all.backwards = true;
  }
  std::vector<double> allowed;
  if (all.rank == 0)
    allowed = allowed_at(is_vjp ? end - begin - 1 : load.steps * (all.size - 1) / all.size, here,
                         load, is_vjp);
  constexpr double never = std::numeric_limits<double>::infinity();
  times fastest;
  fastest.fill(never);
  // Times of the whole call, and of rank 0 alone: the scan with one thread, the scan with all
  // cores, and the maps.
  std::array<double, 4> calls{never, never, never, never};
  double off = 0;
  for (int run = 0; run < runs; ++run) {
    keep_fastest(fastest, run_phases(all, of, lanes));
    std::array<double, 4> now{};
    now[0] = seconds_here(of.whole);
    const std::vector<float> found = of.last();
    MPI_Barrier(MPI_COMM_WORLD);
    if (all.rank == 0) {
      now[1] = seconds_of([&] { of.alone(1); });
      now[2] = seconds_of([&] { of.alone(default_threads()); });
      now[3] = seconds_of(of.alone_summary);
    }
    wait_asleep();
    keep_fastest(calls, now);
    off = std::max(off, difference(all, of, found, allowed));
  }
  if (!(off <= 1)) throw std::runtime_error(load.name + ": results differ");

  const double maps = all.size > 1 ? static_cast<double>(lanes * sizeof(map)) : 0;
  const char* const call = is_vjp ? "vjp" : "forward";
  record seconds;
  for (std::size_t i = 0; i < phases; ++i) seconds.set(names[i], fastest[i]);
  seconds.set("whole", calls[0]).set("alone", calls[1]).set("alone_all_cores", calls[2]);
  seconds.set("alone_summary", calls[3]);
  if (all.rank == 0) {
    std::printf("%-34s %-8s", load.name.c_str(), call);
    for (const double t : fastest) std::printf(" %9.3f", t * 1e3);
    for (const double t : calls) std::printf(" %9.3f", t * 1e3);
    std::printf(" %6.2f %7.0f\n", calls[0] / calls[1], 72 + maps);
    std::fflush(stdout);
  }
  return record()
      .set("name", load.name)
      .set("call", call)
      .set("processes", all.size)
      .set("lanes", static_cast<double>(load.lanes))
      .set("steps", static_cast<double>(load.steps))
      .set("gate", load.constant ? "constant" : "per step")
      .set("seconds", seconds)
      .set("whole_by_alone", calls[0] / calls[1])
      .set("bytes_check", 72)
      .set("bytes_maps", maps)
      .set("bytes_gathered", maps * (all.size - 1))
      .set("difference_by_bound", off);
}

/// Seconds of one message from rank 0 to rank 1: half of the fastest round trip.
double seconds_of_message(const processes& all, int bytes, int runs) {
  std::vector<char> message(static_cast<std::size_t>(bytes));
  double fastest = std::numeric_limits<double>::infinity();
  for (int run = 0; run < runs; ++run)
    fastest =
        std::min(fastest, seconds_here([&] {
                            const auto send = [&](int to) {
                              MPI_Send(message.data(), bytes, MPI_CHAR, to, 1, MPI_COMM_WORLD);
                            };
                            const auto receive = [&](int from) {
                              MPI_Recv(message.data(), bytes, MPI_CHAR, from, 1, MPI_COMM_WORLD,
                                       MPI_STATUS_IGNORE);
                            };
                            if (all.rank == 0) send(1), receive(1);
                            if (all.rank == 1) receive(0), send(0);
                          }) / 2);
  MPI_Bcast(&fastest, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  return fastest;
}

std::vector<workload> workloads(bool quick) {
  // 2^26 elements each, or 2^18 if `quick`.
  const int less = quick ? 8 : 0;
  const auto steps = [&](int log2) { return std::int64_t{1} << (log2 - less); };
  return {{"one sequence, constant gate", 1, steps(26), true},
          {"one sequence, a gate per step", 1, steps(26), false},
          {"64 lanes", 64, steps(20), false},
          {"4096 lanes", 4096, steps(14), false}};
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  CLI::App app("Measures the phases of a scan whose time is split over processes.");
  std::string json;
  bool quick = false;
  int runs = 11;
  app.add_option("--json", json, "File that receives the figures");
  app.add_option("--runs", runs, "Number of runs; the fastest counts")->check(CLI::PositiveNumber);
  app.add_flag("--quick", quick, "2^18 elements instead of 2^26, two runs");
  int status = 0;
  try {
    app.parse(argc, argv);
    if (quick) runs = 2;
    processes all;
    MPI_Comm_rank(MPI_COMM_WORLD, &all.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &all.size);
    record context = made_here();
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(library, &length);
    const std::string version(library);
    context.set("mpi", version.substr(0, version.find_first_of(",\n")))
        .set("processes", all.size)
        .set("cores", default_threads());
    if (all.size > 1) {
      const double small = seconds_of_message(all, 16, 2000);
      constexpr int large = 1 << 22;
      context.set("message_seconds", small)
          .set("message_bytes_per_second", large / (seconds_of_message(all, large, 20) - small));
    }
    if (all.rank == 0) {
      std::printf("%d processes of one thread on %d cores%s; ms, the slowest process\n%-34s %-8s",
                  all.size, default_threads(),
                  all.size > default_threads() ? ", which they share" : "", "", "");
      for (const char* name : names) std::printf(" %9s", name);
      for (const char* name : {"whole", "alone", "all cores", "its maps"})
        std::printf(" %9s", name);
      std::printf(" %6s %7s\n", "ratio", "bytes");
    }
    std::vector<record> rows;
    for (const workload& load : workloads(quick))
      for (const bool is_vjp : {false, true}) rows.push_back(measure_call(all, load, is_vjp, runs));
    if (all.rank == 0 && !json.empty()) write_records(json, context, rows);
  } catch (const CLI::ParseError& problem) {
    status = app.exit(problem);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}
