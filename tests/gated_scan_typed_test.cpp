// SPDX-License-Identifier: BSD-3-Clause
// Tests of gated_scan and its adjoint for one cell and element type. CMake compiles this file once
// per pair and defines TEST_CELL, TEST_TYPE and the name of the pair, TEST_TYPE_NAME.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "gated_calls.hpp"
#include "gated_reference.hpp"
#include "guarded.hpp"

namespace {

using namespace reference;
using T = TEST_TYPE;
using V = compute_t<T>;
using N = number<T>;
using cell = TEST_CELL;
using again = cell_again<cell>;
using arrays = cell::arrays<sequence_view<T>>;
constexpr auto count = static_cast<std::int64_t>(cell::names.size());
#define TYPED_CASE(name, tags) TEST_CASE(TEST_TYPE_NAME ": " name, "[" TEST_TYPE_NAME "]" tags)

using tested::kept;
using backend = tested::gated_backend<cell, T>;
/// Returns the backends that satisfy a condition. The test case must call each of them.
template <class Condition>
std::vector<backend> backends(Condition holds) {
  static const std::vector<backend> list =
      tested::chosen_backends(tested::gated_backends<cell, T>());
  std::vector<backend> some;
  std::copy_if(list.begin(), list.end(), std::back_inserter(some), holds);
  for (const backend& one : some) tested::expect_backend(one.name);
  return some;
}
std::vector<backend> backends() {
  return backends([](const backend&) { return true; });
}

struct variation {
  extents shape;
  layout l;
  direction order;
  bool boundary_states = false;  // initial and final states and their gradients
  bool resets = false, zoneout = false;
  double forget_bias = 0;
};
std::vector<variation> variations() {
#if defined(SCANREC_TEST_STRIDE)  // slow builds; 7 is coprime to 2, 3, 4 and 5 below
  constexpr int stride = SCANREC_TEST_STRIDE > 1 ? 7 : 1;
#else
  constexpr int stride = 1;
#endif
  const std::vector<extents> shapes{{1, 1, 1},    {2, 2, 3},    {1, 127, 16},
                                    {2, 128, 17}, {1, 129, 33}, {2, 300, 5},
                                    {3, 70, 40},  {1, 700, 1},  {2, 260, 3, 2}};
  std::vector<variation> all;
  int i = 0;
  for (const extents& s : shapes)
    for (const layout l : {layout::channels_last, layout::time_contiguous, layout::padded,
                           layout::backwards, layout::mirrored, layout::strided}) {
      variation v{s, l, i % 2 ? direction::reverse : direction::forward};
      v.boundary_states = i % 3 != 0, v.resets = i % 4 == 1, v.zoneout = i % 5 == 2;
      v.forget_bias = i % 3 == 1 ? 1 : 0;
      if (i++ % stride == 0) all.push_back(v);
    }
  return all;
}

/// The arrays of one problem.
struct problem_case {
  variation v;
  extents wide, one, kept_shape;
  array<T> pre, output_grad;
  array<V> x0, gT;
  std::vector<std::uint8_t> reset_bytes, zoned_bytes;
  cell the_cell{};

  explicit problem_case(const variation& of) : v(of), wide(of.shape), one(of.shape) {
    wide.channel *= count, one.time = 1;
    kept_shape = memory::checkpoint_extents(v.shape);
    pre = array<T>(wide, v.l, 1);
    for (T& x : pre.storage()) x = scaled(x);
    output_grad = array<T>(v.shape, v.l, 2);
    x0 = array<V>(one, layout::channels_last, 3), gT = array<V>(one, layout::padded, 4);
    const auto elements = static_cast<std::size_t>(v.shape.group * v.shape.batch * v.shape.time);
    generator bits{5};
    reset_bytes.resize(elements);
    for (auto& r : reset_bytes) r = bits() % 6 == 0;
    zoned_bytes.resize(elements * static_cast<std::size_t>(v.shape.channel));
    for (auto& z : zoned_bytes) z = bits() % 4 == 0;
    the_cell.forget_bias = v.forget_bias;
  }
  // Scales pre-activations to [-3, 3].
  static T scaled(T x) {
    if constexpr (exact<T>)
      return x;
    else
      return static_cast<T>(3 * static_cast<float>(x));
  }
  arrays gates() { return packed<cell>(pre.view()); }
  sequence_view<const bool> resets() const {
    if (!v.resets) return {};
    extents s = v.shape;
    s.channel = 1;
    return {reinterpret_cast<const bool*>(reset_bytes.data()), s};
  }
  sequence_view<const bool> zoneout() const {
    if (!v.zoneout) return {};
    return {reinterpret_cast<const bool*>(zoned_bytes.data()), v.shape};
  }
  gated_options<V> options() {
    gated_options<V> o;
    o.order = v.order, o.resets = resets(), o.zoneout = zoneout();
    if (v.boundary_states) o.initial_state = state_of(x0);
    return o;
  }
  gated_vjp_options<V> vjp_options() {
    gated_vjp_options<V> o;
    o.order = v.order, o.resets = resets(), o.zoneout = zoneout();
    if (v.boundary_states) o.initial_state = state_of(x0), o.final_grad = state_of(gT);
    return o;
  }
  static state_view<V> state_of(array<V>& a) {
    const auto view = a.view();
    return {view.data, view.shape, view.strides};
  }
  /// The time index of step t of the forward call, where t counts in scan order.
  std::int64_t at(std::int64_t t) const {
    return v.order == direction::forward ? t : v.shape.time - 1 - t;
  }
  bool reset(std::int64_t g, std::int64_t b, std::int64_t t) const {
    // In both directions, the reset of step t separates steps t - 1 and t.
    const std::int64_t mark = v.order == direction::forward ? t : t + 1;
    return v.resets && mark < v.shape.time &&
           reset_bytes[static_cast<std::size_t>((g * v.shape.batch + b) * v.shape.time + mark)];
  }
  bool zoned(std::int64_t g, std::int64_t b, std::int64_t t, std::int64_t c) const {
    return v.zoneout && zoned_bytes[static_cast<std::size_t>(
                            ((g * v.shape.batch + b) * v.shape.time + t) * v.shape.channel + c)];
  }
  again::step<N> load(std::int64_t g, std::int64_t b, std::int64_t t, std::int64_t c) {
    std::vector<N> x;
    for (std::int64_t i = 0; i < count; ++i)
      x.push_back(number_of(pre(g, b, t, i * v.shape.channel + c)));
    return again::load(x, N(static_cast<int>(v.forget_bias)));
  }
};

/// A backend's results for a problem.
struct results {
  array<T> output, states, pre_grad;
  std::vector<V> checkpoints, final_state, initial_grad;
  arrays grads() { return packed<cell>(pre_grad.view()); }
};

enum class policy { none, store, recompute };

/// The memory policies that the adjoint of a backend supports.
std::vector<policy> policies_of(const backend& b) {
  return b.recomputes ? std::vector{policy::store, policy::recompute} : std::vector{policy::store};
}
results run(const backend& b, problem_case& p, policy memory, bool backward = true) {
  results r;
  const auto per_sequence =
      static_cast<std::size_t>(p.v.shape.group * p.v.shape.batch * p.v.shape.channel);
  r.output = array<T>(p.v.shape, p.v.l, 11), r.states = array<T>(p.v.shape, p.v.l, 12);
  r.pre_grad = array<T>(p.wide, p.v.l, 13);
  r.final_state.resize(per_sequence), r.initial_grad.resize(per_sequence);
  r.checkpoints.resize(per_sequence * static_cast<std::size_t>(p.kept_shape.time));
  kept<T> k;
  if (memory == policy::store) k.states = r.states.view();
  if (memory == policy::recompute)
    k.checkpoints = sequence_view<V>(r.checkpoints.data(), p.kept_shape);
  auto options = p.options();
  if (p.v.boundary_states) options.final_state = state_view<V>(r.final_state.data(), p.one);
  b.forward(p.the_cell, p.gates(), r.output.view(), k, options);
  if (!backward || memory == policy::none) return r;
  gated_gradients<cell, T> gradients{.arrays = r.grads()};
  if (p.v.boundary_states) gradients.initial_grad = state_view<V>(r.initial_grad.data(), p.one);
  b.vjp(p.the_cell, p.gates(), k, p.output_grad.view(), gradients, p.vjp_options());
  return r;
}

void check(const std::string& what, bool good, std::int64_t t, std::int64_t c) {
  if (!good) FAIL_CHECK(what << " at step " << t << ", channel " << c);
}

/// Compares results with the formulas, sequence by sequence. If states are stored, the reference of
/// the adjoint reads the states that the backend wrote.
void compare(const backend& b, problem_case& p, results& r, bool stored) {
  const auto& s = p.v.shape;
  const std::string name =
      b.name + " " + reference::to_string(s, p.v.l, p.v.order) + (stored ? " store" : " recompute");
  long double roundings = static_cast<long double>(b.more) + 4;
  for (std::int64_t n = s.time; n > 0; n /= 2) roundings += 4;
  for_each_sequence(s, [&](std::int64_t g, std::int64_t batch, std::int64_t c) {
    const auto one = static_cast<std::size_t>((g * s.batch + batch) * s.channel + c);
    const N start = p.v.boundary_states ? number_of(p.x0(g, batch, 0, c)) : N(0);
    carried<N> x{start, magnitude_of(start)};
    std::vector<again::step<N>> steps;
    std::vector<N> before, after;
    for (std::int64_t i = 0; i < s.time; ++i) {
      const std::int64_t t = p.at(i);
      steps.push_back(p.load(g, batch, t, c));
      const bool zoned = p.zoned(g, batch, t, c), reset = p.reset(g, batch, t);
      const N a = zoned ? N(1) : steps.back().a(), u = zoned ? N(0) : steps.back().u();
      before.push_back(reset ? N(0) : x.x);
      const N linked = a * x.x;
      x.size = (reset ? 0 : magnitude_of(a) * x.size) + magnitude_of(u);
      x.x = reset ? u : linked + u;
      after.push_back(off_by(x.x, roundings, x.size));
      check(name + " output", agrees(r.output(g, batch, t, c), steps.back().output(after.back())),
            t, c);
      if (stored) check(name + " states", agrees(r.states(g, batch, t, c), after.back()), t, c);
    }
    if (p.v.boundary_states)
      check(name + " final_state", agrees(r.final_state[one], off_by(x.x, roundings, x.size)), 0,
            c);

    carried<N> y{p.v.boundary_states ? number_of(p.gT(g, batch, 0, c)) : N(0)};
    y.size = magnitude_of(y.x);
    for (std::int64_t i = s.time - 1; i >= 0; --i) {
      const std::int64_t t = p.at(i);
      const auto& step = steps[static_cast<std::size_t>(i)];
      const bool zoned = p.zoned(g, batch, t, c), reset = p.reset(g, batch, t);
      const N a = zoned ? N(1) : step.a(), u = zoned ? N(0) : step.u();
      const N dh = number_of(p.output_grad(g, batch, t, c));
      y.size += magnitude_of(step.back(dh));
      const N grad = off_by(step.back(dh) + y.x, roundings, y.size);
      N was = before[static_cast<std::size_t>(i)];
      if (stored && i > 0 && !reset) was = number_of(r.states(g, batch, p.at(i - 1), c));
      if (!stored && i > 0 && !reset) {
        was = after[static_cast<std::size_t>(i - 1)];
        was = stored_as<T>(was);
      }
      const N is = reset ? u : a * was + u;
      const auto want = step.gradients(zoned ? N(0) : grad, zoned ? N(0) : was, is, dh);
      for (std::int64_t k = 0; k < count; ++k)
        check(name + " " + cell::names[static_cast<std::size_t>(k)].gradient,
              agrees(r.pre_grad(g, batch, t, k * s.channel + c), want[static_cast<std::size_t>(k)]),
              t, c);
      y.x = reset ? N(0) : a * (step.back(dh) + y.x);
      y.size = reset ? 0 : magnitude_of(a) * y.size;
    }
    if (p.v.boundary_states)
      check(name + " initial_grad", agrees(r.initial_grad[one], off_by(y.x, roundings, y.size)), 0,
            c);
  });
}

TYPED_CASE("gated scans and their adjoints are within the error bound", "[backends][gated]") {
  if constexpr (!exact<T>) bounded::unit = roundoff<T>();
#if defined(__CUDACC__)
  // Activations of 16-bit elements use the special functions of the GPU.
  bounded::activations = sizeof(T) == 2 ? 0x1p-16L : 0;
#endif
  for (const variation& v : variations()) {
    problem_case p(v);
    for (const backend& b : backends())
      for (const policy memory : policies_of(b)) {
        results r = run(b, p, memory);
        compare(b, p, r, memory == policy::store);
      }
  }
}

TYPED_CASE("the memory policy changes no bit of the output", "[backends][gated]") {
  for (const variation& v : variations()) {
    if (v.l != layout::channels_last && v.l != layout::time_contiguous) continue;
    problem_case p(v);
    for (const backend& b : backends()) {
      results stored = run(b, p, policy::store, false);
      results kept_few = run(b, p, policy::recompute, false);
      results nothing = run(b, p, policy::none, false);
      INFO(b.name << " " << reference::to_string(v.shape, v.l, v.order));
      CHECK((same_bits(stored.output.storage(), kept_few.output.storage())));
      CHECK((same_bits(stored.output.storage(), nothing.output.storage())));
      CHECK((same_bits(stored.final_state, kept_few.final_state)));
    }
  }
}

TYPED_CASE("recomputed and stored states give the same gradients, bit for bit",
           "[sequential][tiled][gated]") {
  std::vector<variation> all = variations();
  for (const layout l : {layout::channels_last, layout::mirrored})
    for (const direction order : {direction::forward, direction::reverse})
      all.push_back({{8, 400, 17}, l, order, true, true, true});
  // `sequential` processes time serially. So does `tiled` with lanes along channels if time is not
  // split.
  const auto may_be_serial = backends(
      [](const backend& b) { return b.recomputes && (b.serial || exact<T> || b.name == "tiled"); });
  for (const variation& v : all) {
    problem_case p(v);
    for (const backend& b : may_be_serial) {
      // Time is not split if there are many rows.
      const bool serial = b.serial || exact<T> || v.shape.batch == 8;
      if (!serial) continue;
      results stored = run(b, p, policy::store), again_made = run(b, p, policy::recompute);
      INFO(b.name << " " << reference::to_string(v.shape, v.l, v.order));
      CHECK((same_bits(stored.pre_grad.storage(), again_made.pre_grad.storage())));
      CHECK((same_bits(stored.initial_grad, again_made.initial_grad)));
    }
  }
}

/// Chunks of a sequence in scan order, as (lowest time index, number of steps).
using chunk_list = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Runs a forward call and its adjoint chunk by chunk. r.states are the states of a forward call of
/// the whole sequence.
results run_chunks(const backend& b, problem_case& p, policy memory, const chunk_list& chunks) {
  results r = run(b, p, policy::store, false);
  r.pre_grad = array<T>(p.wide, p.v.l, 13);
  r.final_state = p.x0.storage(), r.initial_grad.resize(r.final_state.size());
  for_each_sequence(p.one, [&](std::int64_t g, std::int64_t n, std::int64_t c) {
    const std::int64_t at = (g * p.one.batch + n) * p.one.channel + c;
    r.initial_grad[static_cast<std::size_t>(at)] = p.gT(g, n, 0, c);
  });
  const auto part = [](auto all, std::int64_t first, std::int64_t steps) {
    all.data += first * all.strides.time;
    all.shape.time = steps;
    return all;
  };
  const auto options_of = [&](auto o, std::int64_t first, std::int64_t steps) {
    if (p.v.zoneout) o.zoneout = part(o.zoneout, first, steps);
    // A chunk includes the reset after its last step, except at the end of the sequence.
    if (p.v.resets)
      o.resets = part(o.resets, first, steps + (first + steps < p.v.shape.time ? 1 : 0));
    return o;
  };
  std::vector<std::vector<V>> checkpoints;
  const auto kept_of = [&](std::size_t i) {
    const auto& [first, steps] = chunks[i];
    extents shape = p.v.shape;
    shape.time = steps;
    kept<T> k;
    if (memory == policy::store) k.states = part(r.states.view(), first, steps);
    if (memory == policy::recompute)
      k.checkpoints = sequence_view<V>(checkpoints[i].data(), memory::checkpoint_extents(shape));
    return k;
  };
  const auto carried_state = state_view<V>(r.final_state.data(), p.one);
  const auto carried_grad = state_view<V>(r.initial_grad.data(), p.one);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const auto& [first, steps] = chunks[i];
    checkpoints.emplace_back(10 * static_cast<std::size_t>(steps) + 1);
    auto o = options_of(p.options(), first, steps);
    o.initial_state = o.final_state = carried_state;
    b.forward(p.the_cell, packed<cell>(part(p.pre.view(), first, steps)),
              part(r.output.view(), first, steps), kept_of(i), o);
  }
  std::vector<V> before = p.x0.storage();
  for (std::size_t i = chunks.size(); i-- > 0;) {
    const auto& [first, steps] = chunks[i];
    const std::int64_t t = p.v.order == direction::forward ? first - 1 : first + steps;
    for_each_sequence(p.one, [&](std::int64_t g, std::int64_t n, std::int64_t c) {
      before[static_cast<std::size_t>((g * p.one.batch + n) * p.one.channel + c)] =
          t >= 0 && t < p.v.shape.time ? V(r.states(g, n, t, c)) : p.x0(g, n, 0, c);
    });
    auto o = options_of(p.vjp_options(), first, steps);
    o.initial_state = state_view<V>(before.data(), p.one), o.final_grad = carried_grad;
    b.vjp(p.the_cell, packed<cell>(part(p.pre.view(), first, steps)), kept_of(i),
          part(p.output_grad.view(), first, steps),
          {.arrays = packed<cell>(part(r.pre_grad.view(), first, steps)),
           .initial_grad = carried_grad},
          o);
  }
  return r;
}

TYPED_CASE("a stream of chunks has the bits of the whole sequence", "[backends][gated]") {
  constexpr std::int64_t steps = 300;
  for (const layout l : {layout::channels_last, layout::time_contiguous, layout::mirrored})
    for (const direction order : {direction::forward, direction::reverse})
      for (const bool resets : {false, true}) {
        problem_case p({{2, steps, 5}, l, order, true, resets, resets});
        chunk_list chunks;
        std::int64_t done = 0;
        for (const std::int64_t n : {1, 1, 15, 16, 17, 0, 130, 120}) {
          chunks.emplace_back(order == direction::forward ? done : steps - done - n, n);
          done += n;
        }
        REQUIRE(done == steps);
        // The first sequence has a reset at every chunk boundary, the second at some.
        for (const auto& [first, n] : chunks)
          if (first > 0) p.reset_bytes[static_cast<std::size_t>(first)] = 1;
        for (const backend& b : backends([](const backend& of) { return of.serial || exact<T>; }))
          for (const policy memory : policies_of(b)) {
            // States recomputed from a rounded state differ from those of the forward call.
            if (memory == policy::recompute && !std::is_same_v<T, V>) continue;
            results whole = run_chunks(b, p, memory, {{0, steps}});
            results chunked = run_chunks(b, p, memory, chunks);
            INFO(b.name << " " << reference::to_string(p.v.shape, l, order) << ", resets "
                        << resets);
            CHECK((same_bits(whole.output.storage(), chunked.output.storage())));
            CHECK((same_bits(whole.final_state, chunked.final_state)));
            CHECK((same_bits(whole.pre_grad.storage(), chunked.pre_grad.storage())));
            CHECK((same_bits(whole.initial_grad, chunked.initial_grad)));
          }
      }
}

TYPED_CASE("gradients may overwrite the pre-activations", "[backends][gated]") {
  for (const layout l : {layout::channels_last, layout::time_contiguous}) {
    problem_case p({{2, 300, 17}, l, direction::forward, true});
    for (const backend& b : backends())
      for (const policy memory : policies_of(b)) {
        results apart = run(b, p, memory);
        problem_case q(p.v);
        kept<T> k;
        if (memory == policy::store) k.states = apart.states.view();
        if (memory == policy::recompute)
          k.checkpoints = sequence_view<V>(apart.checkpoints.data(), p.kept_shape);
        b.vjp(q.the_cell, q.gates(), k, q.output_grad.view(), {.arrays = q.gates()},
              q.vjp_options());
        INFO(b.name << " " << name_of(l));
        for_each_sequence(p.wide, [&](std::int64_t g, std::int64_t n, std::int64_t c) {
          for (std::int64_t t = 0; t < p.wide.time; ++t)
            check("in place", same_bits(q.pre(g, n, t, c), apart.pre_grad(g, n, t, c)), t, c);
        });
      }
  }
}

TYPED_CASE("an absent output_grad equals zeros", "[backends][gated]") {
  problem_case p({{2, 140, 17}, layout::channels_last, direction::reverse, true});
  for (T& x : p.output_grad.storage()) x = T(0);
  for (const backend& b : backends()) {
    results with_zeros = run(b, p, policy::store);
    results without = run(b, p, policy::store);
    gated_gradients<cell, T> gradients{.arrays = without.grads()};
    gradients.initial_grad = state_view<V>(without.initial_grad.data(), p.one);
    b.vjp(p.the_cell, p.gates(), {.states = without.states.view(), .checkpoints = {}}, none,
          gradients, p.vjp_options());
    INFO(b.name);
    CHECK((same_bits(with_zeros.pre_grad.storage(), without.pre_grad.storage())));
    CHECK((same_bits(with_zeros.initial_grad, without.initial_grad)));
  }
}

TYPED_CASE("empty gated scans copy the initial state and final gradient", "[backends][gated]") {
  for (const extents& s : {extents{2, 0, 3}, extents{0, 5, 3}, extents{2, 5, 0}}) {
    problem_case p({s, layout::channels_last, direction::forward, true});
    for (const backend& b : backends())
      for (const policy memory : policies_of(b)) {
        results r = run(b, p, memory);
        INFO(b.name << " " << scanrec::to_string(s));
        if (s.time == 0)
          for (std::int64_t i = 0; i < 6; ++i) {
            CHECK(r.final_state[static_cast<std::size_t>(i)] == p.x0(0, i / 3, 0, i % 3));
            CHECK(r.initial_grad[static_cast<std::size_t>(i)] == p.gT(0, i / 3, 0, i % 3));
          }
      }
  }
}

TYPED_CASE("gated scans access no memory outside their arrays for any strides", "[bounds][gated]") {
  tested::sampler turns;
  for (unsigned number = 0; number < 240; ++number) {
    tested::guarded_layouts l(number);
    std::array<tested::guarded<T>, count> pre;
    for (std::int64_t i = 0; i < count; ++i) pre[i] = l.input<T>(cell::names[i].value);
    const auto output_grad = l.input<T>("output_grad");
    const auto x0 = l.state<V>("initial_state", tested::broadcasts::sometimes);
    const auto gT = l.state<V>("final_grad", tested::broadcasts::sometimes);
    const auto resets = l.resets();
    const auto zoneout = l.one_in(3) ? l.input<bool>("zoneout") : tested::guarded<bool>();
    const auto pack = [](const auto& arrays_of) {
      return std::apply([](const auto&... a) { return arrays{a.view()...}; }, arrays_of);
    };
    const auto in_turn = l;
    std::string wanted;
    turns.next_round();
    for (const backend& b : backends()) {
      if (b.name != "sequential" && !turns.takes(b.name.starts_with("cuda") ? 12 : 3)) continue;
      for (const policy memory : policies_of(b)) {
        auto out = in_turn;  // the same layouts for every backend
        const auto output = out.output<T>("output");
        const auto states = out.output<T>("states");
        auto kept_shape = memory::checkpoint_extents(out.shape);
        const auto checkpoints = out.made<V>("checkpoints", kept_shape);
        const auto final_state = out.state<V>("final_state", tested::broadcasts::never);
        std::array<tested::guarded<T>, count> grads;
        for (auto& g : grads) g = out.gradient<T>("gradient");
        const auto initial_grad = out.state<V>("initial_grad", tested::broadcasts::sometimes);
        INFO(b.name << ", " << out.text);
        kept<T> k;
        if (memory == policy::store) k.states = states.view();
        if (memory == policy::recompute) k.checkpoints = checkpoints.view();
        b.forward({}, pack(pre), output.view(), k,
                  {.order = out.order,
                   .initial_state = x0.state(),
                   .final_state = final_state.state(),
                   .resets = resets.view(),
                   .zoneout = zoneout.view()});
        b.vjp({}, pack(pre), k, output_grad.view(),
              {.arrays = pack(grads), .initial_grad = initial_grad.state()},
              {.order = out.order,
               .initial_state = x0.state(),
               .final_grad = gT.state(),
               .resets = resets.view(),
               .zoneout = zoneout.view()});
        std::string got = output.elements() + final_state.elements() + initial_grad.elements();
        bool untouched = output.gaps_untouched() && states.gaps_untouched() &&
                         checkpoints.gaps_untouched() && final_state.gaps_untouched() &&
                         initial_grad.gaps_untouched();
        for (const auto& g : grads)
          got += g.elements(), untouched = untouched && g.gaps_untouched();
        CHECK(untouched);
        if (exact<T> && wanted.empty()) wanted = got;
        if (exact<T>) CHECK(got == wanted);
      }
    }
  }
}

}  // namespace
