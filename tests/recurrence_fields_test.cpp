// SPDX-License-Identifier: BSD-3-Clause
// Tests of the arrays that recurrences list: their number, the neighbouring step that a step also
// reads (the halo), and the order of outputs, which must be that of scanrec::problem.
#include <complex>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <scanrec/cells/min_gru.hpp>
#include <scanrec/cells/qrnn.hpp>
#include <scanrec/cells/rg_lru.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/linear_scan.hpp>
#include <scanrec/scan.hpp>
#include <scanrec/sensitivity.hpp>

#include "catch.hpp"

/// A backend that runs no steps. It compares the outputs that a recurrence lists with those of the
/// problem.
namespace comparing {

struct outputs {
  static constexpr bool recomputes_states = true;
  int* seen;
};
inline std::int64_t workspace_bytes(const outputs&, const scanrec::problem&) { return 0; }

struct output {
  const void* data;
  scanrec::strides strides;
  bool summed;
  bool operator==(const output&) const = default;
};

template <class R>
void run_recurrence(const outputs& on, R r, const scanrec::problem& p) {
  using namespace scanrec::detail;
  int sequences = 0;
  const auto count = [&](const auto&) { ++sequences; };
  for_reads(r, count), for_writes(r, count);
  CHECK(sequences == sequences_of<R>);
  std::vector<output> own, listed;
  const auto collect = [&](auto& field) {
    bool summed = false;
    if constexpr (!R::any_operator) summed = field.summed();
    own.push_back({field.data, field.strides, summed});
  };
  for_writes(r, collect), for_ends(r, collect);
  for (const scanrec::array_use& array : p)
    if (array.use != scanrec::access::read)
      listed.push_back({array.data, array.strides, summed(array)});
  CHECK(own.size() <= scanrec::most_outputs);
  CHECK(own.size() == listed.size());
  CHECK(own == listed);
  int reads = 0;
  for_reads(r, [&](const auto&) { ++reads; });
  CHECK(reads + static_cast<int>(own.size()) <=
        p.count + 1);  // for_reads visits the reset mask even if it is absent
  ++*on.seen;
}

}  // namespace comparing

namespace {

using namespace scanrec;

using scan = recurrence::forward<float, float, float>;
using adjoint = recurrence::vjp<float, float, float, float, float>;
using tangent = recurrence::jvp<float, float, float, float, float>;
using pooling = recurrence::gated_forward<fo_pooling<>, float, float, recurrence::kept_nowhere>;
static_assert(detail::sequences_of<scan> == 4 && detail::halo_of<scan> == 0);
static_assert(detail::sequences_of<adjoint> == 6 && detail::halo_of<adjoint> == 1);
static_assert(detail::sequences_of<tangent> == 6 && detail::halo_of<tangent> == -1);
static_assert(detail::sequences_of<pooling> == 3 + 2 + 1 && detail::halo_of<pooling> == 0);

/// Arrays of one shape at distinct addresses.
template <class T>
class arrays {
 public:
  const extents shape{.batch = 2, .time = 200, .channel = 3, .group = 2};
  template <class E = T>
  sequence_view<E> view() {
    return {pointer<E>(), shape};
  }
  /// A view if `wanted`, otherwise an absent one. A sum has zero strides along time and group.
  template <class E = T>
  sequence_view<E> view_if(bool wanted, bool sum = false) {
    if (!wanted) return {};
    scanrec::strides strides = channels_last(shape);
    if (sum) strides.time = strides.group = 0;
    return {pointer<E>(), shape, strides};
  }
  template <class E = T>
  state_view<E> edge_if(bool wanted, bool sum = false) {
    if (!wanted) return {};
    if (sum) return {pointer<E>(), shape, strides{0, 0, 1, 3}};
    return {pointer<E>(), shape};
  }
  sequence_view<const bool> resets_if(bool wanted) {
    if (!wanted) return {};
    return {pointer<bool>(), {shape.batch, shape.time, 1, shape.group}};
  }
  sequence_view<const bool> zoneout_if(bool wanted) { return view_if<const bool>(wanted); }
  template <class E>
  sequence_view<E> checkpoints() {
    return {pointer<E>(), memory::checkpoint_extents(shape)};
  }

 private:
  // The addresses are never dereferenced.
  template <class E>
  E* pointer() {
    return reinterpret_cast<E*>(static_cast<std::uintptr_t>(++count_) << 32);
  }
  int count_ = 0;
};

/// Calls f(has) for every combination of answers; has(i) is the yes or no to question i.
template <int Questions, class F>
void for_all_answers(F f) {
  for (int i = 0; i < 1 << Questions; ++i)
    f([i](int question) { return (i >> question & 1) != 0; });
}

template <class Gate, class State>
void check_linear_scans() {
  using C = compute_t<State>;
  int seen = 0, asked = 0;
  const comparing::outputs on{&seen};
  for_all_answers<5>([&](auto has) {
    for (const direction order : {direction::forward, direction::reverse}) {
      arrays<State> a;
      linear_scan(on, a.template view<Gate>(), a.view(), a.view_if(has(0) || !has(1)),
                  {.order = order,
                   .initial_state = a.template edge_if<const C>(has(2)),
                   .final_state = a.template edge_if<C>(has(1)),
                   .resets = a.resets_if(has(3))});
      ++asked;
      if (!has(4)) continue;
      arrays<State> b;
      const jvp_options<C> options{.order = order,
                                   .initial_state = b.template edge_if<const C>(has(2)),
                                   .final_tangent = b.template edge_if<C>(has(1))};
      const sequence_view<State> tangent = b.view_if(has(0) || !has(1));
      linear_scan_jvp(on, b.template view<Gate>(), b.view(), b.template view<Gate>(),
                      b.view_if(has(2)), tangent, options);
      linear_scan_jvp(on, b.template view<Gate>(), none, none, b.view_if(has(3)), tangent, options);
      ++asked;
      ++asked;
    }
  });
  for_all_answers<9>([&](auto has) {
    arrays<State> a;
    const vjp_options<C> options{.order = has(6) ? direction::forward : direction::reverse,
                                 .initial_state = a.template edge_if<const C>(has(7)),
                                 .final_grad = a.template edge_if<const C>(!has(7)),
                                 .resets = a.resets_if(has(8))};
    linear_scan_vjp(
        on, a.template view<Gate>(), a.view(), a.view_if(has(8)),
        scan_gradients<Gate, State>{.gate_grad = a.template view_if<Gate>(has(0), has(1)),
                                    .input_grad = a.view_if(has(2), has(3)),
                                    .initial_grad = a.template edge_if<C>(has(4), has(5)),
                                    .update = has(6) ? update::accumulate : update::overwrite},
        options);
    ++asked;
  });
  CHECK(seen == asked);
}

template <class Cell, class T>
void check_gated_scans() {
  using C = compute_t<T>;
  int seen = 0, asked = 0;
  const comparing::outputs on{&seen};
  const auto of_cell = [](auto f) {
    typename Cell::template arrays<sequence_view<T>> all;
    if constexpr (Cell::names.size() == 2)
      all = {f(0), f(1)};
    else if constexpr (Cell::names.size() == 3)
      all = {f(0), f(1), f(2)};
    else
      all = {f(0), f(1), f(2), f(3)};
    return all;
  };
  for_all_answers<4>([&](auto has) {
    arrays<T> a;
    const auto pre = of_cell([&](int) { return a.view(); });
    const gated_options<C> options{.initial_state = a.template edge_if<const C>(has(0)),
                                   .final_state = a.template edge_if<C>(has(1)),
                                   .resets = a.resets_if(has(2)),
                                   .zoneout = a.zoneout_if(has(3))};
    const memory::store states{a.view()};
    const memory::recompute checkpoints{a.template checkpoints<C>()};
    gated_scan(on, Cell{}, pre, a.view(), none, options);
    gated_scan(on, Cell{}, pre, a.view(), states, options);
    gated_scan(on, Cell{}, pre, a.view(), checkpoints, options);
    gated_scan(on, Cell{}, pre, none, states, options);
    gated_scan(on, Cell{}, pre, none, checkpoints, options);
    asked += 5;
    if (!has(1)) return;
    gated_scan(on, Cell{}, pre, none, none, options);
    ++asked;
  });
  for_all_answers<7>([&](auto has) {
    arrays<T> a;
    const auto pre = of_cell([&](int) { return a.view(); });
    gated_gradients<Cell, T> gradients{.initial_grad = a.template edge_if<C>(has(4), has(5))};
    gradients.arrays = of_cell([&](int i) { return a.view_if(has(i), has(6)); });
    const gated_vjp_options<C> options{.initial_state = a.template edge_if<const C>(has(5)),
                                       .resets = a.resets_if(has(6)),
                                       .zoneout = a.zoneout_if(has(6))};
    gated_scan_vjp(on, Cell{}, pre, memory::store{a.view()}, a.view_if(has(5)), gradients, options);
    gated_scan_vjp(on, Cell{}, pre, memory::recompute{a.template checkpoints<C>()}, none, gradients,
                   options);
    asked += 2;
  });
  CHECK(seen == asked);
}

}  // namespace

TEST_CASE("linear scans list outputs in the order of the problem", "[fields]") {
  check_linear_scans<float, float>();
  check_linear_scans<bfloat16, bfloat16>();
  check_linear_scans<std::complex<double>, std::complex<double>>();
  check_linear_scans<mat<float, 3>, vec<float, 3>>();
}

TEST_CASE("gated scans list outputs in the order of the problem", "[fields]") {
  check_gated_scans<fo_pooling<>, float>();
  check_gated_scans<ifo_pooling<>, bfloat16>();
  check_gated_scans<gated_accumulation<>, double>();
  check_gated_scans<min_gru<>, float>();
  check_gated_scans<rg_lru, float>();
}

TEST_CASE("sensitivities and operator scans list outputs in the order of the problem", "[fields]") {
  int seen = 0;
  const comparing::outputs on{&seen};
  for_all_answers<4>([&](auto has) {
    arrays<float> a;
    linear_scan_sensitivity(
        on, a.view(), a.view(), a.view_if(has(0) || !has(2)), a.view_if(has(1) || !has(3)),
        {.final_state = a.edge_if(has(2)), .final_sensitivity = a.edge_if(has(3))});
    arrays<int> b;
    const prefix_options<int> options{.order = has(2) ? direction::forward : direction::reverse,
                                      .initial = b.edge_if<const int>(has(0)),
                                      .final = b.edge_if(has(1))};
    inclusive_scan(on, op::sum{}, b.view(), b.view(), options);
    exclusive_scan(on, op::sum{}, b.view(), b.view(), options);
  });
  CHECK(seen == 48);
}
