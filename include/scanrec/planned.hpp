// SPDX-License-Identifier: BSD-3-Clause
// plan_linear_scan and plan_gated_scan check and plan a call once, so that it can run many times.
// This pays off for short calls, such as single steps of a stream, in which checks and planning
// take most of the time.
//
//     auto step = plan_linear_scan(gate, input, state, options);
//     step();                                // as linear_scan with these arguments
//     step({.input = later, .state = out});  // on other arrays with the layouts of the plan
#pragma once

#if defined(__CUDACC__)
#error "scanrec: plans are for CPUs; include <scanrec/planned.hpp> in .cpp files"
#endif

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <type_traits>

#include <scanrec/backends.hpp>
#include <scanrec/cells/cell.hpp>
#include <scanrec/detail/cpu/planned_call.hpp>
#include <scanrec/detail/problem/gated_scan.hpp>
#include <scanrec/detail/problem/linear_scan.hpp>
#include <scanrec/options.hpp>
#include <scanrec/views.hpp>

namespace scanrec::inline SCANREC_ABI {

/// A planned linear_scan for arrays of these element types, made by plan_linear_scan.
///
/// Bits    as linear_scan.
/// Memory  owns a workspace of plan().workspace_bytes, or uses the backend's `workspace` if that is
///         set. A call allocates nothing itself; an executor or OpenMP may.
/// Threads Calls of one plan must not run at the same time.
template <class Gate, class Input, class State>
class planned_linear_scan {
 public:
  using value = compute_t<State>;

  /// Pointers to the first elements of the arrays. A null pointer keeps the current array. Layouts
  /// and options stay as planned, and absent arrays stay absent.
  struct pointers {
    const Gate* gate = nullptr;
    const Input* input = nullptr;
    State* state = nullptr;
    const value* initial_state = nullptr;
    value* final_state = nullptr;
    const bool* resets = nullptr;
  };

  /// Runs on the current arrays: those of the plan, until a call replaces them.
  void operator()() { call_.run(); }
  /// Runs on other arrays. Throws argument_error and changes nothing if a pointer is passed for an
  /// array that was absent in the plan, is misaligned, or makes arrays overlap that must not
  /// overlap in linear_scan.
  void operator()(const pointers& now) {
    call_.move_to(std::array<const void*, 6>{now.gate, now.input, now.initial_state, now.resets,
                                             now.state, now.final_state});
    recurrence& r = call_.recurrence();
    r.gate.data = call_.template at<const Gate>(0);
    r.input.data = call_.template at<const Input>(1);
    r.initial_state.data = call_.template at<const value>(2);
    r.resets.reset_mask.data = call_.template at<const bool>(3);
    r.state.data = call_.template at<State>(4);
    r.final_state.data = call_.template at<value>(5);
    call_.run();
  }
  /// The plan of the calls: lanes, tiles, threads, workspace.
  [[nodiscard]] const tile_plan& plan() const { return call_.plan(); }

  /// For plan_linear_scan only.
  using recurrence = scanrec::recurrence::forward<Gate, Input, State>;
  planned_linear_scan(const tiled& backend, const recurrence& r, const problem& p, direction order)
      : call_(backend, r, p, detail::linear_scan_aliases, order == direction::reverse) {}

 private:
  detail::planned_call<recurrence, detail::linear_scan_aliases.size()> call_;
};

/// Checks and plans a linear_scan of these arrays without running it. Arguments, checks and
/// exceptions are those of linear_scan.
template <class Gate, class Input, class State>
[[nodiscard]] auto plan_linear_scan(const tiled& backend, const Gate& gate, const Input& input,
                                    const State& state,
                                    const detail::options_for<scan_options, Gate>& options = {}) {
  if constexpr (detail::fits_linear_scan<Gate, Input, State>())
    return detail::make_linear_scan(
        "linear_scan", gate, input, state, options, [&](const auto& r, const problem& p) {
          using gate_t = typename detail::sequence_traits<Gate>::stored;
          return planned_linear_scan<gate_t, typename detail::sequence_traits<Input>::stored,
                                     detail::stored_or<State, detail::state_of_gate<Gate>>>(
              backend, r, p, options.order);
        });
}
template <class Gate, class Input, class State>
[[nodiscard]] auto plan_linear_scan(const Gate& gate, const Input& input, const State& state,
                                    const detail::options_for<scan_options, Gate>& options = {}) {
  return plan_linear_scan(tiled{}, gate, input, state, options);
}

/// A planned gated_scan that stores nothing for a backward pass, made by plan_gated_scan.
///
/// Bits     as gated_scan.
/// Memory, threads  as planned_linear_scan.
template <class Cell, class Pre, class Output>
class planned_gated_scan {
 public:
  using value = compute_t<Pre>;
  using output_t = std::conditional_t<std::same_as<Output, none_t>, value, Output>;

  /// Pointers to the first elements of the arrays. A null pointer keeps the current array.
  struct pointers {
    typename Cell::template arrays<const Pre*> arrays{};
    output_t* output = nullptr;
    const value* initial_state = nullptr;
    value* final_state = nullptr;
    const bool* resets = nullptr;
    const bool* zoneout = nullptr;
  };

  /// Runs on the current arrays: those of the plan, until a call replaces them.
  void operator()() { call_.run(); }
  /// Runs on other arrays. Throws as planned_linear_scan does.
  void operator()(const pointers& now) {
    const auto pre = detail::listed<pre_arrays>(now.arrays);
    std::array<const void*, pre_arrays + 5> given{};
    std::copy(pre.begin(), pre.end(), given.begin());
    given[initial] = now.initial_state, given[initial + 1] = now.resets;
    given[initial + 2] = now.zoneout;
    given[output] = now.output;
    given[final] = now.final_state;
    call_.move_to(given);
    recurrence& r = call_.recurrence();
    for (int i = 0; i < initial; ++i) r.pre[i].data = call_.template at<const Pre>(i);
    r.initial_state.data = call_.template at<const value>(initial);
    r.resets.reset_mask.data = call_.template at<const bool>(initial + 1);
    r.zoneout.data = call_.template at<const bool>(initial + 2);
    if constexpr (recurrence::puts_out) r.output.data = call_.template at<Output>(output);
    r.final_state.data = call_.template at<value>(final);
    call_.run();
  }
  /// The plan of the calls: lanes, tiles, threads, workspace.
  [[nodiscard]] const tile_plan& plan() const { return call_.plan(); }

  /// For plan_gated_scan only.
  using recurrence =
      scanrec::recurrence::gated_forward<Cell, Pre, Output, scanrec::recurrence::kept_nowhere>;
  planned_gated_scan(const tiled& backend, const recurrence& r, const problem& p, direction order)
      : call_(backend, r, p, detail::gated_scan_aliases, order == direction::reverse) {}

 private:
  // Indices of arrays in the problem. If the output is `none`, the problem has no output array, and
  // `output` is past its last array.
  static constexpr std::size_t pre_arrays = Cell::names.size();
  static constexpr int initial = pre_arrays, final = initial + 3 + (recurrence::puts_out ? 1 : 0),
                       output = recurrence::puts_out ? initial + 3 : initial + 4;

  detail::planned_call<recurrence, detail::gated_scan_aliases.size()> call_;
};

/// Checks and plans a gated_scan of these arrays that stores nothing for a backward pass, without
/// running it. Arguments, checks and exceptions are those of gated_scan.
template <class Cell, class Arrays, class Output>
[[nodiscard]] auto plan_gated_scan(const tiled& backend, const Cell& cell, const Arrays& arrays,
                                   const Output& output,
                                   const detail::gated_options_for<Cell, Arrays>& options = {}) {
  if constexpr (detail::fits_gated_scan<Cell, Arrays, Output, none_t>())
    return detail::make_gated_scan(
        "gated_scan", cell, arrays, output, none, options, [&](const auto& r, const problem& p) {
          return planned_gated_scan<Cell, detail::stored_in<Cell, Arrays>,
                                    detail::stored_or<Output, none_t>>(backend, r, p,
                                                                       options.order);
        });
}
template <class Cell, class Arrays, class Output>
[[nodiscard]] auto plan_gated_scan(const Cell& cell, const Arrays& arrays, const Output& output,
                                   const detail::gated_options_for<Cell, Arrays>& options = {}) {
  return plan_gated_scan(tiled{}, cell, arrays, output, options);
}

}  // namespace scanrec::inline SCANREC_ABI
