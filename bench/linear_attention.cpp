// SPDX-License-Identifier: BSD-3-Clause
// Times linear attention and its adjoint with six update rules, against two limits: the arithmetic
// baseline, which does as many multiply-adds on registers (multiply_adds.hpp), and the copy
// baseline.
//
// Counters: ns/step is per step and head. GF/s counts two operations per useful multiply-add
// (multiply_adds_per_step below), and peak_GF/s is that of the arithmetic baseline.
// fraction_of_arithmetic and fraction_of_baseline are the times of the two limits divided by that
// of the call. The copy baseline reads query, key and value, and writes one array. For the vjp it
// also reads the gradient of the outputs, and writes three arrays. Gates per key, and in the vjp
// their gradients, are one array more. For a single step it reads and writes one state per head.
// Rows of bfloat16 compute in floats.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "linear_attention_call.hpp"
#include "measure.hpp"
#include "multiply_adds.hpp"

namespace {

using namespace bench;

enum class call { forward, vjp };
constexpr const char* call_names[]{"forward", "vjp"};

/// key_gated and key_gated_delta have a gate per key channel.
enum class rule { linear, gated, key_gated, delta, gated_delta, key_gated_delta };
constexpr const char* rule_names[]{"linear", "gated",       "key_gated",
                                   "delta",  "gated_delta", "key_gated_delta"};
constexpr bool has_gate(rule r) { return r != rule::linear && r != rule::delta; }
constexpr bool has_key_gates(rule r) { return r == rule::key_gated || r == rule::key_gated_delta; }
constexpr bool has_delta(rule r) { return r >= rule::delta; }

/// Keys and values both have d channels.
struct workload {
  std::string name;
  std::int64_t batch, time, heads, d;
};

/// Useful multiply-adds per step and head. In chunks of C = 32 steps, each product of the state
/// with the rows of a chunk takes d^2 per step. Each product of the rows with each other, or with a
/// triangle, takes C d / 2.
///
///   forward: S k (delta rule), S q, update of S; q k, k k (delta rule), triangles times v
///
///   vjp: the recomputed updates, and two products per product of the forward call
///
/// So a forward call has 2 or 3 products with the state and 2 or 4 others. Its vjp has 5 or 8 and 5
/// or 11: 2.5 and 2.7 times as many. The products of gates per key with rows are not counted.
double multiply_adds_per_step(const workload& w, call what, rule by) {
  const bool back = what == call::vjp, delta = has_delta(by);
  const int with_state = back ? (delta ? 8 : 5) : (delta ? 3 : 2);
  const int others = back ? (delta ? 11 : 5) : (delta ? 4 : 2);
  const double d = static_cast<double>(w.d);
  const double chunk = static_cast<double>(std::min<std::int64_t>(w.time, 32));
  return with_state * d * d + others * chunk / 2 * d;
}

/// Fills an array with values between `low` and `high`.
template <class T>
void fill_between(T* p, std::int64_t n, float low, float high) {
  fill(p, n, false);
  for (std::int64_t i = 0; i < n; ++i)
    p[i] = static_cast<T>(low + (high - low) * 0.5f * (static_cast<float>(p[i]) + 1));
}

/// The arrays of a call. Calls that continue a stream have initial states.
template <class T, class V>
attention_call<T, V> arrays_of(const workload& w, call what, rule by) {
  const std::int64_t numbers = w.batch * w.time * w.heads, n = numbers * w.d;
  const std::int64_t states = w.batch * w.heads * w.d * w.d;
  const auto role = [&](int i) {
    return static_cast<T*>(buffers.get(i, static_cast<std::size_t>(n) * sizeof(T)));
  };
  attention_call<T, V> x{.batch = w.batch, .time = w.time, .heads = w.heads, .d = w.d};
  if (has_key_gates(by)) x.gate_channels = w.d;
  const std::int64_t gates = numbers * x.gate_channels;
  x.query = role(0), x.key = role(1), x.value = role(2);
  fill(x.query, n, false), fill(x.value, n, false);
  const float unit = std::sqrt(3 / static_cast<float>(w.d));  // keys have a length of about 1
  fill_between(x.key, n, -unit, unit);

  T* const of_gates =
      static_cast<T*>(buffers.get(7, static_cast<std::size_t>(2 * (gates + numbers)) * sizeof(T)));
  if (has_gate(by)) fill_between(x.gate = of_gates, gates, -0.1f, 0);
  if (has_delta(by)) fill_between(x.beta = of_gates + gates, numbers, 0, 1);
  if (what == call::vjp) {
    x.out_grad = role(3), x.query_grad = role(4), x.key_grad = role(5), x.value_grad = role(6);
    fill(x.out_grad, n, false);
    if (has_gate(by)) x.gate_grad = of_gates + gates + numbers;
    if (has_delta(by)) x.beta_grad = of_gates + 2 * gates + numbers;
    return x;
  }
  x.out = role(3);
  V* const both = static_cast<V*>(buffers.get(8, static_cast<std::size_t>(2 * states) * sizeof(V)));
  x.final_state = both;
  if (w.time == 1) fill(x.initial_state = both + states, states, false);
  return x;
}

template <class T>
void measure_call(runner& by, const workload& w, call what, rule of, int threads) {
  using V = scanrec::compute_t<T>;
  const auto x = arrays_of<T, V>(w, what, of);
  const scanrec::tiled on{.threads = threads};
  const int workers = threads > 0 ? threads : default_threads();
  const double steps = static_cast<double>(w.batch * w.time * w.heads);
  const double multiply_adds = steps * multiply_adds_per_step(w, what, of);

  const auto at = [](auto* p) { return reinterpret_cast<float*>(p); };
  const bool back = what == call::vjp, one_step = w.time == 1;
  const int gates = has_key_gates(of) ? 1 : 0;
  const traffic moved = one_step ? traffic{1, 1}
                        : back   ? traffic{4 + gates, 3 + gates}
                                 : traffic{3 + gates, 1};
  const std::int64_t bytes =
      one_step ? w.batch * w.heads * w.d * w.d * static_cast<std::int64_t>(sizeof(V))
               : w.batch * w.time * w.heads * w.d * static_cast<std::int64_t>(sizeof(T));
  read_arrays in{at(x.query), at(x.key), at(x.value), at(back ? x.out_grad : x.gate), at(x.gate)};
  written_arrays out{at(back ? x.query_grad : x.out), at(x.key_grad), at(x.value_grad),
                     at(x.gate_grad)};
  if (one_step) in[0] = at(x.initial_state), out[0] = at(x.final_state);
  const auto baseline = [&](bool stream) { run_baseline(moved, in, out, bytes, stream, workers); };
  const std::vector<double> seconds =
      by.medians({[&] { back ? x.vjp(on) : x.forward(on); },
                  [&] { run_multiply_adds<V>(multiply_adds, workers); }, [&] { baseline(false); },
                  [&] { baseline(true); }});
  const double own = seconds[0];
  by.counter("ns/step", own * 1e9 / steps);
  by.counter("GF/s", 2e-9 * multiply_adds / own);
  by.counter("peak_GF/s", 2e-9 * multiply_adds / seconds[1]);
  by.counter("fraction_of_arithmetic", seconds[1] / own);
  by.counter("fraction_of_baseline", std::min(seconds[2], seconds[3]) / own);
  by.counter("steps", static_cast<double>(w.time));
}

/// A row of one thread, or of all threads if `threads` is 0.
template <class T>
row make_row(const workload& w, call what, rule of, int threads) {
  return {w.name + (threads == 1 ? "_one_thread/" : "/") + rule_names[static_cast<int>(of)] + "/" +
              call_names[static_cast<int>(what)],
          9, [=](runner& by) { measure_call<T>(by, w, what, of, threads); }};
}

}  // namespace

std::vector<row> bench::rows(bool quick) {
  using enum rule;
  const workload small{"in_cache", 1, 128, 2, 64};
  const workload layer{"d128", 1, 2048, 16, 128};
  std::vector<workload> shapes{small};
  if (!quick)
    shapes.insert(shapes.end(), {layer,
                                 {"d64", 1, 2048, 32, 64},
                                 {"batch", 8, 512, 16, 128},
                                 {"long", 1, 16384, 4, 128},
                                 {"one_head", 1, 2048, 1, 128},
                                 {"one_step", 1, 1, 32, 128}});
  std::vector<row> all;
  for (const call what : {call::forward, call::vjp})
    for (const int threads : {0, 1}) {
      for (const rule of : {gated, gated_delta}) {
        for (const workload& w : shapes)
          if (w.time > 1 || what == call::forward)
            all.push_back(make_row<float>(w, what, of, threads));
        workload stored = quick ? small : layer;
        stored.name = "bfloat16";
        all.push_back(make_row<scanrec::bfloat16>(stored, what, of, threads));
#if !defined(SCANREC_BENCH_ALL_TYPES) || SCANREC_BENCH_ALL_TYPES
        stored.name = "double";
        all.push_back(make_row<double>(stored, what, of, threads));
#endif
      }
      for (const rule of : {linear, delta, key_gated, key_gated_delta})
        all.push_back(make_row<float>(quick ? small : layer, what, of, threads));
    }
  return all;
}
