// SPDX-License-Identifier: BSD-3-Clause
// Parts of a sequence, one after the other in one process: their maps, and what follows from these.
#include <scanrec/backends.hpp>

#include "catch.hpp"
#include "split_time.hpp"

namespace {

using namespace scanrec;

template <class T>
void check_parts() {
  using V = compute_t<T>;
  split::for_cases<T>([](const split::whole<T>& w, const std::string& name) {
    const auto lanes = static_cast<std::size_t>(w.shape.group * w.shape.batch * w.shape.channel);
    for (const int parts : {1, 2, 3, 17}) {
      const auto cuts = split::cuts_of(w.shape.time, parts, static_cast<unsigned>(parts));
      std::vector<part_state<V>> states, grads;
      for (const V& x : w.first) states.push_back(detail::widened_state(x));
      for (const V& g : w.last_grad) grads.push_back(detail::widened_state(g));
      const auto narrowed = [&](const std::vector<part_state<V>>& from) {
        std::vector<V> to;
        for (const auto& x : from) to.push_back(detail::narrowed_state<V>(x));
        return to;
      };
      std::vector<T> x(w.input.size()), dx(w.input.size());
      for (int k = 0; k < 2 * parts; ++k) {
        // First all parts of the scan, then those of its adjoint, the other way.
        const bool adjoint = k >= parts;
        const int i = adjoint ? 2 * parts - 1 - k : k;
        const auto part =
            static_cast<std::size_t>(w.order == direction::forward ? i : parts - 1 - i);
        const std::int64_t begin = cuts[part], end = cuts[part + 1];
        const part_options options{.order = w.order, .resets = w.cuts(begin, end)};
        const auto gate = w.gates().steps(begin, end);
        const auto entering = narrowed(adjoint ? grads : states);
        const state_view<const V> from(entering.data(), w.shape);
        const tiled on{.threads = 1};
        if (!adjoint) {
          const auto input = w.inputs().steps(begin, end);
          linear_scan(on, gate, input, w.over(x).steps(begin, end),
                      {.order = w.order, .initial_state = from, .resets = options.resets});
          const auto maps = linear_scan_summary(on, gate, input, options);
          REQUIRE(maps.size() == lanes);
          fold_part<part_state<V>>(maps, states);
        } else {
          const auto grad = w.grads().steps(begin, end);
          linear_scan_vjp(on, gate, none, grad,
                          scan_gradients<T>{.input_grad = w.over(dx).steps(begin, end)},
                          {.order = w.order, .final_grad = from, .resets = options.resets});
          fold_part<part_state<V>>(linear_scan_vjp_summary(on, gate, grad, options), grads);
        }
      }
      const std::string where = name + ", " + std::to_string(parts) + " parts";
      w.check_states({x.data(), w.shape}, 0, w.shape.time, where + ": states");
      w.check_input_grads({dx.data(), w.shape}, 0, w.shape.time, where + ": gradients");
    }
  });
}

TEST_CASE("a sequence in parts has the states and gradients of the whole",
          "[split_time][forward][vjp]") {
  check_parts<float>();
  check_parts<double>();
  check_parts<std::complex<float>>();
  check_parts<bfloat16>();
  check_parts<std::uint32_t>();
}

TEST_CASE("products of gates do not vanish before the states they meet", "[split_time]") {
  const extents shape{.batch = 1, .time = 220, .channel = 2};
  const std::vector<float> gate(440, 0.5f), input(440, 0.0f);
  const sequence_view<const float> a(gate.data(), shape), u(input.data(), shape);
  const float first[] = {1e30f, 1e38f};
  std::vector<float> last(2);
  linear_scan(sequential{}, a, u, none,
              {.initial_state = state_view<const float>(first, shape),
               .final_state = state_view<float>(last.data(), shape)});
  const auto maps = linear_scan_summary(tiled{}, a, u);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(last[i] > 0);
    CHECK(static_cast<float>(maps[i].act(static_cast<double>(first[i]))) == last[i]);
  }
}

TEST_CASE("a part without steps does nothing, one with a cut forgets", "[split_time][resets]") {
  const extents shape{.batch = 1, .time = 3, .channel = 2};
  const float gate[] = {2, 3, 2, 3, 2, 3}, input[] = {1, 1, 1, 1, 1, 1};
  const bool marks[] = {false, true, false};
  const sequence_view<const float> a(gate, shape), u(input, shape);
  const auto nothing = linear_scan_summary(tiled{}, a.steps(1, 1), u.steps(1, 1));
  const auto all = linear_scan_summary(tiled{}, a, u);
  const auto cut = linear_scan_summary(
      tiled{}, a, u,
      {.resets = sequence_view<const bool>(marks, {.batch = 1, .time = 3, .channel = 1})});
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK((nothing[i].a == 1 && nothing[i].u == 0));
    CHECK(cut[i].a == 0);
  }
  CHECK((all[0].a == 8 && all[0].u == 7));
  CHECK((all[1].a == 27 && all[1].u == 13));
  CHECK((cut[0].u == 3 && cut[1].u == 4));
}

}  // namespace
