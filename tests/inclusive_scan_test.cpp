// SPDX-License-Identifier: BSD-3-Clause
// Tests of inclusive_scan and exclusive_scan on every backend that accepts operators: order of
// operands, exact results, bounds of arrays and invalid arguments.
#include <atomic>
#include <cmath>
#include <complex>
#include <random>
#include <string>
#include <vector>

#include <scanrec/scan.hpp>
#include <scanrec/variants.hpp>

#include "catch.hpp"
#include "golden.hpp"
#include "guarded.hpp"
#include "operator_backends.hpp"

namespace {

using namespace scanrec;

using tested::with_operator_backends;

/// Steps [begin, end) of one sequence. `merge` is defined for adjacent segments and counts all
/// other calls.
struct segment {
  std::int64_t sequence = -7, begin = 0, end = 0;
};
struct merge {
  std::atomic<std::int64_t>* violations;
  segment operator()(const segment& earlier, const segment& later) const {
    const bool right = earlier.sequence == later.sequence && earlier.sequence >= 0 &&
                       earlier.end == later.begin && earlier.begin < earlier.end &&
                       later.begin < later.end;
    if (!right) ++*violations;
    return {earlier.sequence, earlier.begin, later.end};
  }
};

using words = mat<std::uint32_t, 2>;
constexpr auto times = [](const words& earlier, const words& later) {
  words y{};
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < 2; ++k)
      for (int j = 0; j < 2; ++j) y(i, k) += earlier(i, j) * later(j, k);
  return y;
};

std::vector<strides> layouts_of(const extents& s) {
  strides time_major{.batch = s.channel, .time = s.batch * s.channel, .channel = 1};
  time_major.group = s.batch * s.time * s.channel;
  strides apart = channels_last(s);
  for (const detail::axis a : detail::all_axes) detail::along(apart, a) *= 2;
  return {channels_last(s), time_contiguous(s), time_major, apart};
}
const std::vector<extents>& shapes() {
  static const std::vector<extents> list{{1, 1, 1},  {2, 2, 3},   {1, 17, 1},   {3, 33, 2, 2},
                                         {1, 64, 5}, {2, 129, 1}, {1, 1000, 1}, {40, 8, 3}};
  return list;
}
template <class F>
void for_each_sequence(const extents& s, F f) {
  std::int64_t sequence = 0;
  for (std::int64_t g = 0; g < s.group; ++g)
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t c = 0; c < s.channel; ++c)
        f(extents{.batch = b, .time = 0, .channel = c, .group = g}, sequence++);
}
std::int64_t index(const extents& at, const scanrec::strides& strides, std::int64_t t) {
  return at.group * strides.group + at.batch * strides.batch + t * strides.time +
         at.channel * strides.channel;
}

}  // namespace

TEST_CASE("operators combine every element once, in order and with adjacent operands",
          "[inclusive_scan]") {
  std::atomic<std::int64_t> violations{0};
  const merge merging{&violations};
  for (const extents& shape : shapes())
    for (const scanrec::strides& strides : layouts_of(shape)) {
      const std::size_t n = 2 * shape.group * shape.batch * shape.time * shape.channel;
      const std::size_t m = shape.group * shape.batch * shape.channel;
      for (const direction order : {direction::forward, direction::reverse})
        for (const bool with_initial : {false, true}) {
          std::vector<segment> elements(n), before(m), last(m);
          const auto step_of = [&](std::int64_t t) {
            return order == direction::forward ? t : shape.time - 1 - t;
          };
          for_each_sequence(shape, [&](const extents& at, std::int64_t sequence) {
            for (std::int64_t t = 0; t < shape.time; ++t)
              elements[index(at, strides, t)] = {sequence, step_of(t), step_of(t) + 1};
            before[sequence] = {sequence, -3, 0};
          });
          const sequence_view<const segment> in(elements.data(), shape, strides);
          prefix_options<segment> options{.order = order, .final = {last.data(), shape}};
          if (with_initial) options.initial = {before.data(), shape};
          with_operator_backends([&](const std::string& name, const auto& backend) {
            INFO(name << " " << to_string(shape) << " strides " << to_string(strides));
            const std::int64_t start = with_initial ? -3 : 0;
            const auto check = [&](const std::vector<segment>& results, std::int64_t ahead) {
              bool right = true;
              for_each_sequence(shape, [&](const extents& at, std::int64_t sequence) {
                for (std::int64_t t = 0; t < shape.time; ++t) {
                  const segment& r = results[index(at, strides, t)];
                  const std::int64_t end = step_of(t) + ahead;
                  right = right && r.sequence == sequence && r.begin == start && r.end == end;
                }
                right = right && last[sequence].begin == start && last[sequence].end == shape.time;
              });
              CHECK(right);
              CHECK(violations == 0);
            };
            std::vector<segment> results(n);
            inclusive_scan(backend(), merging, in,
                           sequence_view<segment>(results.data(), shape, strides), options);
            check(results, 1);
            std::vector<segment> own = elements;
            const sequence_view<segment> in_place(own.data(), shape, strides);
            if (with_initial) {
              exclusive_scan(backend(), merging, in_place, in_place, options);
              check(own, 0);
            } else {
              inclusive_scan(backend(), merging, in_place, in_place, options);
              check(own, 1);
            }
          });
        }
    }
}

TEST_CASE("products of integer matrices are exact", "[inclusive_scan]") {
  for (const extents& shape : shapes())
    for (const scanrec::strides& strides : layouts_of(shape)) {
      const std::size_t n = 2 * shape.group * shape.batch * shape.time * shape.channel;
      std::vector<words> elements(n), want(n), excluded(n);
      std::mt19937 engine(3);
      for (words& w : elements)
        for (auto& row : w.at)
          for (auto& x : row) x = engine();
      const words start{{{3, 1}, {4, 1}}};
      for_each_sequence(shape, [&](const extents& at, std::int64_t) {
        words y = start;
        for (std::int64_t t = 0; t < shape.time; ++t) {
          excluded[index(at, strides, t)] = y;
          y = times(y, elements[index(at, strides, t)]);
          want[index(at, strides, t)] = y;
        }
      });
      // One initial element for all sequences.
      const state_view<const words> initial(&start, shape, scanrec::strides{0, 0, 0, 0});
      with_operator_backends([&](const std::string& name, const auto& backend) {
        INFO(name << " " << to_string(shape) << " strides " << to_string(strides));
        std::vector<words> got(n);
        const sequence_view<words> in(elements.data(), shape, strides),
            out(got.data(), shape, strides);
        inclusive_scan(backend(), times, in, out, {.initial = initial});
        CHECK(got == want);
        got.assign(n, {});
        exclusive_scan(backend(), times, in, out, {.initial = initial});
        CHECK(got == excluded);
      });
    }
}

TEST_CASE("prefix sums have the golden bits", "[.golden]") {
  with_operator_backends([](const std::string& name, const auto& backend) {
    // The bits do not depend on the number of threads, so all thread counts share a row of
    // the golden files.
    golden::row row("inclusive_scan and exclusive_scan, sum of floats, " +
                    name.substr(0, name.find(" threads")));
    for (const extents& shape : {extents{2, 203, 19}, extents{1, 1500, 2}}) {
      golden::numbers numbers(1);
      std::vector<float> x(static_cast<std::size_t>(detail::element_count(shape))), y(x.size());
      for (float& v : x) numbers.fill(v);
      inclusive_scan(backend(), op::sum{}, sequence_view(x.data(), shape),
                     sequence_view(y.data(), shape));
      row.add_all(y);
      exclusive_scan(backend(), op::sum{}, sequence_view(x.data(), shape),
                     sequence_view(y.data(), shape));
      row.add_all(y), row.end_hash();
    }
    row.check();
  });
}

TEST_CASE("prefixes of composed maps give the states of consecutive steps", "[inclusive_scan]") {
  using complex = std::complex<double>;
  const extents shape{.batch = 2, .time = 50};
  std::vector<affine<complex>> maps(100), prefix(100);
  std::vector<affine_matrix<double, 3>> steps(100), composed(100);
  std::mt19937 engine(1);
  std::uniform_real_distribution<double> u(-0.6, 0.6);
  for (auto& m : maps) m = {complex(u(engine), u(engine)), complex(u(engine), u(engine))};
  for (auto& m : steps)
    for (int i = 0; i < 3; ++i) {
      m.u[i] = u(engine);
      for (int j = 0; j < 3; ++j) m.a(i, j) = u(engine);
    }
  with_operator_backends([&](const std::string& name, const auto& backend) {
    INFO(name);
    inclusive_scan(backend(), op::compose{}, sequence_view(maps.data(), shape),
                   sequence_view(prefix.data(), shape));
    inclusive_scan(backend(), op::compose{}, sequence_view(steps.data(), shape),
                   sequence_view(composed.data(), shape));
    double off = 0;
    for (int b = 0; b < 2; ++b) {
      complex x(0.3, 0.1);
      vec<double, 3> y{1, 2, 3};
      for (int t = 0; t < 50; ++t) {
        x = maps[50 * b + t].a * x + maps[50 * b + t].u;
        y = steps[50 * b + t].act(y);
        off = std::max(off, std::abs(x - prefix[50 * b + t].act(complex(0.3, 0.1))));
        const auto z = composed[50 * b + t].act({1, 2, 3});
        for (int i = 0; i < 3; ++i) off = std::max(off, std::abs(y[i] - z[i]));
      }
    }
    CHECK(off < 1e-13);
  });
}

TEST_CASE("scans with an operator reject invalid arguments", "[inclusive_scan][arguments]") {
  const extents shape{.time = 4};
  std::vector<int> data{1, 2, 3, 4}, out(4, 9);
  const sequence_view<int> in(data.data(), shape), to(out.data(), shape);
  const auto plus = [](int x, int y) { return x + y; };
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const argument_error& e) {
      return e.what();
    }
    return "nothing thrown";
  };
  CHECK(message([&] { exclusive_scan(plus, in, to); }).find("'initial'") != std::string::npos);
  CHECK(message([&] {
          inclusive_scan(plus, in, sequence_view<int>(out.data(), {.time = 3}));
        }).find("'results'") != std::string::npos);
  CHECK(message([&] {
          inclusive_scan(plus, in, sequence_view<int>(data.data() + 1, {.time = 4}));
        }).find("overlap") != std::string::npos);
  CHECK(out == std::vector<int>(4, 9));

  // Without steps, the final element is the initial one.
  int first = 5, last = 0;
  const extents none_at_all{.time = 0};
  inclusive_scan(plus, sequence_view<int>(nullptr, none_at_all),
                 sequence_view<int>(nullptr, none_at_all),
                 {.initial = {&first, none_at_all}, .final = {&last, none_at_all}});
  CHECK(last == 5);
  CHECK(message([&] {
          inclusive_scan(plus, sequence_view<int>(nullptr, none_at_all),
                         sequence_view<int>(nullptr, none_at_all), {.final = {&last, none_at_all}});
        }).find("'initial'") != std::string::npos);
}

namespace {
/// A sum that restarts at elements with a nonzero `reset`. The members have names of the library's
/// steps and maps, which must not matter.
struct part {
  float u;
  float reset;
};
struct sum_of_parts {
  part operator()(const part& earlier, const part& later) const {
    return {later.reset != 0 ? later.u : earlier.u + later.u, earlier.reset + later.reset};
  }
};
}  // namespace

TEST_CASE("a user's element type may have members named u and reset, like internal types",
          "[inclusive_scan]") {
  std::vector<part> parts(100);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = {1.0f, i % 7 == 0 ? 1.0f : 0.0f};
  with_operator_backends([&](const std::string& name, const auto& backend) {
    const extents shape{1, 100, 1};
    std::vector<part> sums(100);
    inclusive_scan(backend(), sum_of_parts{}, sequence_view(parts.data(), shape),
                   sequence_view(sums.data(), shape));
    INFO(name);
    for (std::size_t i = 0; i < sums.size(); ++i)
      REQUIRE(sums[i].u == static_cast<float>(i % 7 + 1));
  });
}

namespace {

/// Elements of N integers. 41 integers are larger than two cache lines.
template <int N>
struct numbers {
  std::uint32_t at[N];
};
struct add {
  template <int N>
  numbers<N> operator()(const numbers<N>& earlier, const numbers<N>& later) const {
    numbers<N> sum;
    for (int i = 0; i < N; ++i) sum.at[i] = earlier.at[i] + later.at[i];
    return sum;
  }
};

template <class Element>
void check_bounds(unsigned cases) {
  tested::sampler turns;
  for (unsigned number = 0; number < cases; ++number) {
    tested::guarded_layouts l(number);
    const auto elements = l.input<Element>("elements");
    const auto initial = l.state<Element>("initial", tested::broadcasts::sometimes);
    const bool exclusive = l.one_in(2);
    const auto same_for_all = l;
    std::string wanted;
    turns.next_round();
    with_operator_backends([&](const std::string& name, const auto& backend) {
      if (name != "sequential" && !turns.takes(name.starts_with("cuda") ? 9 : 6)) return;
      auto out = same_for_all;
      const auto results = out.output<Element>("results");
      const auto last = out.state<Element>("final", tested::broadcasts::never);
      INFO(name << ", " << out.text);
      const prefix_options<Element> options{
          .order = l.order, .initial = initial.state(), .final = last.state()};
      if (exclusive)
        exclusive_scan(backend(), add{}, elements.view(), results.view(), options);
      else
        inclusive_scan(backend(), add{}, elements.view(), results.view(), options);
      CHECK(results.gaps_untouched());
      CHECK(last.gaps_untouched());
      const std::string got = results.elements() + last.elements();
      if (wanted.empty()) wanted = got;
      CHECK(got == wanted);
    });
  }
}

}  // namespace

TEST_CASE("operator scans access no memory outside their arrays for any strides",
          "[inclusive_scan][bounds]") {
  check_bounds<numbers<3>>(120);
  check_bounds<numbers<41>>(40);
}
