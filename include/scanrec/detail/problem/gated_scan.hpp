// SPDX-License-Identifier: BSD-3-Clause
// Turns the arguments of gated_scan and its adjoint into a recurrence and its problem.
#pragma once

#include <array>
#include <concepts>
#include <type_traits>
#include <utility>

#include <scanrec/detail/problem/build.hpp>
#include <scanrec/detail/problem/expect.hpp>
#include <scanrec/detail/recurrence/gated_forward.hpp>
#include <scanrec/detail/recurrence/gated_vjp.hpp>
#include <scanrec/element.hpp>
#include <scanrec/memory.hpp>
#include <scanrec/options.hpp>
#include <scanrec/views.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The views of a cell's arrays, and their element type.
template <class Cell, class Arrays>
using listed_views = decltype(listed<Cell::names.size()>(std::declval<const Arrays&>()));
template <class Cell, class Arrays>
using stored_in = typename sequence_traits<typename listed_views<Cell, Arrays>::value_type>::stored;

/// An aggregate with as many views as the cell has arrays.
template <class Arrays, class Cell>
concept arrays_of_cell = gated_cell<Cell> && std::is_aggregate_v<Arrays> &&
                             sizeof(Arrays) == Cell::names.size() * sizeof(sequence_view<float>) &&
                         element<stored_in<Cell, Arrays>>;

/// The types that depend on a cell and its arrays. The primary template covers invalid arrays, so
/// that overload resolution finds the call and its checks report the mistake.
template <class Cell, class Arrays>
struct beside_arrays {
  using value = float;
  using gradients = none_t;
};
template <class Cell, arrays_of_cell<Cell> Arrays>
struct beside_arrays<Cell, Arrays> {
  using value = compute_t<stored_in<Cell, Arrays>>;
  using gradients = gated_gradients<Cell, stored_in<Cell, Arrays>>;
};
template <class Cell, class Arrays>
using gated_options_for = gated_options<typename beside_arrays<Cell, Arrays>::value>;
template <class Cell, class Arrays>
using gated_vjp_options_for = gated_vjp_options<typename beside_arrays<Cell, Arrays>::value>;
template <class Cell, class Arrays>
using gated_gradients_for = typename beside_arrays<Cell, Arrays>::gradients;

/// Whether a backend recomputes states from checkpoints.
template <class Backend>
inline constexpr bool recomputes_states = requires {
  requires Backend::recomputes_states;
};

template <class S>
struct stored_type {
  using stored = S;
};
/// memory::store if `states` is present, else none; decided when a call runs.
template <class T>
struct store_if_given {
  sequence_view<T> states;
};

template <class Memory>
struct memory_traits {  // none
  static constexpr bool stores = false, recomputes = false, writable = true;
};
template <class T>
struct memory_traits<memory::store<T>> {
  static constexpr bool stores = true, recomputes = false, writable = !std::is_const_v<T>;
  using stored = std::remove_const_t<T>;
};
template <class T>
struct memory_traits<store_if_given<T>> : memory_traits<memory::store<T>> {};
template <class T>
struct memory_traits<memory::recompute<T>> {
  static constexpr bool stores = false, recomputes = true, writable = !std::is_const_v<T>;
  using kept = std::remove_const_t<T>;
};
/// The memory policies of an adjoint (kept_states) and of a forward call (kept_by_forward).
template <class Memory>
concept kept_states = memory_traits<Memory>::stores || memory_traits<Memory>::recomputes;
template <class Memory>
concept kept_by_forward = std::same_as<Memory, none_t> ||
    (kept_states<Memory>&& memory_traits<Memory>::writable);

template <class Cell, class Arrays>
constexpr bool fits_cell() {
  constexpr bool cell = gated_cell<Cell>, arrays = arrays_of_cell<Arrays, Cell>;
  SCANREC_EXPECT(cell, "gated_scan", "cell",
                 "a cell such as fo_pooling<>{} (cells/), or your own (docs/qrnn.md)");
  SCANREC_EXPECT(arrays || !cell, "gated_scan", "arrays",
                 "the arrays of the cell, such as packed<Cell>(sequence_view(x, extents)) or "
                 "Cell::arrays<sequence_view<T>>{...}, of float, double, bfloat16 or float16");
  return cell && arrays;
}
template <class Cell, class Arrays, class Output, class Memory>
constexpr bool fits_gated_scan() {
  constexpr bool cell = fits_cell<Cell, Arrays>(), output = writable_elements_or_none<Output>,
                 kept = kept_by_forward<Memory>;
  SCANREC_EXPECT_VIEW(output, "gated_scan", "output", SCANREC_TO_WRITE);
  SCANREC_EXPECT(kept, "gated_scan", "kept",
                 "none, memory::store{states to write} or memory::recompute{checkpoints to write}");
  if constexpr (cell && sequence_of_elements<Output>) {
    constexpr bool same = std::same_as<compute_t<typename sequence_traits<Output>::stored>,
                                       compute_t<stored_in<Cell, Arrays>>>;
    SCANREC_EXPECT(same, "gated_scan", "output",
                   "the compute type of the arrays (float for bfloat16 and float16)");
    return kept && output && same;
  }
  return cell && output && kept;
}
template <class Cell, class Arrays, class Memory, class OutputGrad>
constexpr bool fits_gated_scan_vjp() {
  constexpr bool cell = fits_cell<Cell, Arrays>(), kept = kept_states<Memory>,
                 output_grad = elements_or_none<OutputGrad>;
  SCANREC_EXPECT(kept, "gated_scan_vjp", "kept",
                 "memory::store{states} or memory::recompute{checkpoints} of the forward call");
  SCANREC_EXPECT_VIEW(output_grad, "gated_scan_vjp", "output_grad", SCANREC_OR_NONE);
  return cell && kept && output_grad;
}

template <class Memory, class Value>
constexpr void check_checkpoints() {
  if constexpr (memory_traits<Memory>::recomputes)
    static_assert(
        std::same_as<typename memory_traits<Memory>::kept, Value>,
        "scanrec: checkpoints must have the compute type (float for bfloat16 and float16)");
}

/// The field that stores the states or checkpoints of a forward call, if any.
template <class Memory, class Value>
struct kept_field {
  using type = recurrence::kept_nowhere;
};
template <class T, class Value>
struct kept_field<memory::store<T>, Value> {
  using type = recurrence::output_field<std::remove_const_t<T>>;
};
template <class T, class Value>
struct kept_field<store_if_given<T>, Value> {
  using type = recurrence::output_if_given<std::remove_const_t<T>>;
};
template <class T, class Value>
struct kept_field<memory::recompute<T>, Value> {
  using type = recurrence::checkpoint_output<Value>;
};

/// Adds the arrays of a cell to a call, under their names. Returns the index of the first.
template <class Cell, class Arrays>
int add_arrays(problem_builder& c, const Arrays& arrays, const char* array_name::*name,
               access use) {
  constexpr std::size_t count = Cell::names.size();
  const auto views = listed<count>(arrays);
  int first = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const int index = use == access::read ? c.add_factor(Cell::names[i].*name, views[i])
                                          : c.add(Cell::names[i].*name, views[i], use);
    if (i == 0) first = index;
  }
  return first;
}
template <class Cell>
void require_arrays(const problem_builder& c, int first) {
  for (int i = 0; i < static_cast<int>(Cell::names.size()); ++i) c.require(first + i, "an array");
}
template <class R>
void take_arrays(R& r, const problem_builder& c, int first, int zoneout, int reset, direction order,
                 bool adjoint) {
  for (std::size_t i = 0; i < R::pre_arrays; ++i) {
    r.pre[i] = c.input<typename std::remove_cvref_t<decltype(r.pre[i])>::stored>(
        first + static_cast<int>(i));
  }
  r.zoneout = c.input<bool>(zoneout);
  r.resets = c.resets(reset, order, adjoint);
}

/// Asserts the requirements of a cell (cells/cell.hpp) and names a missing member.
template <class Cell, std::size_t... I>
constexpr void check_cell(std::index_sequence<I...>) {
#define SCANREC_HAS(what, ...) \
  static_assert(               \
      requires { __VA_ARGS__; }, "scanrec: this cell has no " what)
  using lane = simd::lane_t<float, 1>;
  static_assert(std::is_trivially_copyable_v<Cell>, "scanrec: a cell must be trivially copyable");
  SCANREC_HAS("`arrays<View>`, the struct of its pre-activation arrays",
              typename Cell::template arrays<sequence_view<float>>);
  SCANREC_HAS("`outputs`, the kind of its output, such as output_is_state", Cell::outputs::array);
  SCANREC_HAS("`step<Lane>`, the activated values of one step", typename Cell::template step<lane>);
  SCANREC_HAS("`load(lanes...) const`, which applies the activations to one lane per name",
              std::declval<const Cell&>().load((static_cast<void>(I), lane{})...));
  if constexpr (requires { typename Cell::template step<lane>; }) {
    using step = typename Cell::template step<lane>;
    SCANREC_HAS("`map(step) const`, the affine map of a step",
                affine<lane>(std::declval<const Cell&>().map(std::declval<const step&>())));
    SCANREC_HAS("`gradients(step, cell_cotangents) const`, an array of one lane per name",
                std::get<sizeof...(I) - 1>(std::declval<const Cell&>().gradients(
                    std::declval<const step&>(), std::declval<const cell_cotangents<lane>&>())));
  }
#undef SCANREC_HAS
}

/// Pairs of arrays of gated_scan that may alias.
inline constexpr std::array<in_place_pair, 1> gated_scan_aliases{
    {{"final_state", "initial_state"}}};

/// Builds the recurrence and its problem, and returns then(recurrence, problem). The problem lists
/// arrays in the order in which they are added here.
template <class Cell, class Arrays, class Output, class Memory, class Then>
decltype(auto) make_gated_scan(const char* name, const Cell& cell, const Arrays& arrays,
                               const Output& output, const Memory& kept,
                               const gated_options_for<Cell, Arrays>& options, Then then) {
  using pre_t = stored_in<Cell, Arrays>;
  using value = compute_t<pre_t>;
  using policy = memory_traits<Memory>;
  check_cell<Cell>(std::make_index_sequence<Cell::names.size()>{});
  check_checkpoints<Memory, value>();
  problem_builder c(name, listed<Cell::names.size()>(arrays)[0].shape);
  const int pre = add_arrays<Cell>(c, arrays, &array_name::value, access::read);
  const int x0 = c.add("initial_state", options.initial_state, access::read);
  const int reset = c.add_resets(options.resets);
  const int zoned = c.add_factor("zoneout", options.zoneout);
  // The recurrence and the problem must list the same outputs. The recurrence does not list an
  // output of type none_t, so such an output is not added.
  int h = 0;
  if constexpr (!std::same_as<Output, none_t>) h = c.add("output", output, access::write);
  int x = 0;
  if constexpr (policy::stores) x = c.add("states", kept.states, access::write);
  const int xT = c.add("final_state", options.final_state, access::write);
  if constexpr (policy::recomputes)
    x = c.add_checkpoints("checkpoints", kept.checkpoints, access::write);
  require_arrays<Cell>(c, pre);
  bool keeps = policy::recomputes;
  if constexpr (policy::stores) keeps = !kept.states.absent();
  if (output.absent() && !keeps) c.require(xT, "an array, since output and states are absent");
  using kept_t = typename kept_field<Memory, value>::type;

  using out_t = std::conditional_t<std::same_as<Output, none_t>, none_t,
                                   typename sequence_traits<Output>::stored>;
  using R = recurrence::gated_forward<Cell, pre_t, out_t, kept_t>;
  c.template prepare<R>(options.order, gated_scan_aliases);
  R r;
  r.cell = computed_cell<Cell, pre_t>::of(cell);
  take_arrays(r, c, pre, zoned, reset, options.order, false);
  r.initial_state = c.start<value>(x0);
  if constexpr (R::puts_out) r.output = c.output<stored_or<Output, value>>(h);
  if constexpr (policy::stores)
    static_cast<recurrence::output_field<typename policy::stored>&>(r.kept) =
        c.output<typename policy::stored>(x);
  if constexpr (policy::recomputes) {
    static_cast<recurrence::state_output<value>&>(r.kept) = c.end<value>(x);
    r.kept.steps = c.steps();
  }
  r.final_state = c.end<value>(xT);
  return then(r, c.described());
}

template <class Cell, class Arrays, class Memory, class OutputGrad, class Gradients, class Then>
void make_gated_scan_vjp(const char* name, const Cell& cell, const Arrays& arrays,
                         const Memory& kept, const OutputGrad& output_grad,
                         const Gradients& gradients,
                         const gated_vjp_options_for<Cell, Arrays>& options, Then then) {
  using pre_t = stored_in<Cell, Arrays>;
  using value = compute_t<pre_t>;
  using policy = memory_traits<Memory>;
  check_cell<Cell>(std::make_index_sequence<Cell::names.size()>{});
  using grad_t = stored_in<Cell, decltype(gradients.arrays)>;
  static_assert(
      !std::is_const_v<
          std::remove_pointer_t<decltype(listed<Cell::names.size()>(gradients.arrays)[0].data)>>,
      "scanrec: gradients must be writable");
  check_checkpoints<Memory, value>();
  problem_builder c(name, listed<Cell::names.size()>(arrays)[0].shape);
  const int pre = add_arrays<Cell>(c, arrays, &array_name::value, access::read);
  const int gh = c.add("output_grad", output_grad, access::read);
  int x = 0;
  if constexpr (policy::stores) {
    x = c.add("states", kept.states, access::read);
    c.require(x, "an array");
  } else {
    x = c.add_checkpoints("checkpoints", kept.checkpoints, access::read);
  }
  const int x0 = c.add("initial_state", options.initial_state, access::read);
  const int gT = c.add("final_grad", options.final_grad, access::read);
  const int reset = c.add_resets(options.resets);
  const int zoned = c.add_factor("zoneout", options.zoneout);
  const int dpre = add_arrays<Cell>(c, gradients.arrays, &array_name::gradient, access::accumulate);
  const int dx0 = c.add("initial_grad", gradients.initial_grad, access::accumulate);
  require_arrays<Cell>(c, pre);

  using state_t = typename std::conditional_t<policy::stores, policy, stored_type<pre_t>>::stored;
  using output_grad_t = stored_or<OutputGrad, value>;
  using R = std::conditional_t<
      policy::recomputes,
      recurrence::gated_vjp_recomputing<Cell, pre_t, state_t, output_grad_t, grad_t>,
      recurrence::gated_vjp<Cell, pre_t, state_t, output_grad_t, grad_t>>;
  std::array<in_place_pair, R::pre_arrays + 1> may_alias{{{"initial_grad", "final_grad"}}};
  for (std::size_t i = 0; i < R::pre_arrays; ++i)
    may_alias[i + 1] = {Cell::names[i].gradient, Cell::names[i].value};
  c.template prepare<R>(opposite(options.order), may_alias, gradients.update);
  R r;
  r.cell = computed_cell<Cell, pre_t>::of(cell);
  take_arrays(r, c, pre, zoned, reset, options.order, true);
  r.output_grad = c.input<output_grad_t>(gh);
  if constexpr (policy::stores)
    r.state = c.input<state_t>(x);
  else
    r.checkpoints = c.checkpoints<value>(x);
  r.initial_state = c.start<value>(x0);
  r.final_grad = c.start<value>(gT);
  for (std::size_t i = 0; i < R::pre_arrays; ++i)
    r.pre_grad[i] = c.output<grad_t>(dpre + static_cast<int>(i));
  r.initial_grad = c.end<value>(dx0);
  r.steps = c.steps();
  then(r, c.described());
}

}  // namespace scanrec::detail::inline SCANREC_ABI
