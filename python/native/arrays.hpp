// SPDX-License-Identifier: BSD-3-Clause
// Lists the arrays of linear and gated scans, with the name, struct member, role and alias of each.
// The checks of the entry points, and the operands and results of XLA's handlers, follow from these
// lists.
#pragma once

#include <array>
#include <cstddef>

#include <scanrec/c/scanrec.h>

namespace scanrec::native {

/// How a call uses an array. Arrays that are read come first, then those that are written.
enum class role {
  read,
  read_mask,         ///< bytes
  read_resets,       ///< bytes; `more_resets` adds a step
  read_edge,         ///< a boundary state, or its gradient or tangent; no time axis
  read_checkpoints,  ///< states before checkpoint intervals, of the type of read_edge
  write,
  write_edge,
  write_checkpoints,
  gradient,  ///< written; summed over axes with a stride of 0
  edge_gradient,
};
constexpr bool is_written(role use) { return use >= role::write; }
constexpr bool is_gradient(role use) { return use >= role::gradient; }
constexpr bool is_boundary(role use) {
  return use == role::read_edge || use == role::write_edge || use == role::edge_gradient;
}

constexpr bool is_checkpoints(role use) {
  return use == role::read_checkpoints || use == role::write_checkpoints;
}

/// An array of a call: its name, its member, its role, and the array that it may alias, or null.
/// Linear scans of logarithms run as gated scans, so different pairs of arrays may alias.
template <class Arrays>
struct array_entry {
  const char* name;
  scanrec_array Arrays::*member;
  role use;
  const char* in_place_of = nullptr;
  const char* in_place_of_with_logarithms = nullptr;
};
template <class Arrays>
using array_list = std::array<array_entry<Arrays>, sizeof(Arrays) / sizeof(scanrec_array)>;

/// The call that takes a struct of arrays: its name, and the arrays in the struct's order.
template <class Arrays>
struct call_of;

template <>
struct call_of<scanrec_scan_arrays> {
  using a = scanrec_scan_arrays;
  static constexpr const char* name = "linear_scan";
  static constexpr array_list<a> arrays{
      {{"gate", &a::gate, role::read},
       {"input", &a::input, role::read},
       {"initial_state", &a::initial_state, role::read_edge},
       {"resets", &a::resets, role::read_resets},
       {"state", &a::state, role::write, "input"},
       {"final_state", &a::final_state, role::write_edge, "initial_state", "initial_state"}}};
};

template <>
struct call_of<scanrec_vjp_arrays> {
  using a = scanrec_vjp_arrays;
  static constexpr const char* name = "linear_scan_vjp";
  static constexpr array_list<a> arrays{
      {{"gate", &a::gate, role::read},
       {"input", &a::input, role::read},
       {"initial_state", &a::initial_state, role::read_edge},
       {"resets", &a::resets, role::read_resets},
       {"state", &a::state, role::read},
       {"state_grad", &a::state_grad, role::read},
       {"final_grad", &a::final_grad, role::read_edge},
       {"gate_grad", &a::gate_grad, role::gradient, nullptr, "gate"},
       {"input_grad", &a::input_grad, role::gradient, "state_grad", "input"},
       {"initial_grad", &a::initial_grad, role::edge_gradient, "final_grad", "final_grad"}}};
};

template <>
struct call_of<scanrec_jvp_arrays> {
  using a = scanrec_jvp_arrays;
  static constexpr const char* name = "linear_scan_jvp";
  static constexpr array_list<a> arrays{
      {{"gate", &a::gate, role::read},
       {"initial_state", &a::initial_state, role::read_edge},
       {"resets", &a::resets, role::read_resets},
       {"state", &a::state, role::read},
       {"gate_tangent", &a::gate_tangent, role::read},
       {"input_tangent", &a::input_tangent, role::read},
       {"initial_tangent", &a::initial_tangent, role::read_edge},
       {"state_tangent", &a::state_tangent, role::write, "input_tangent"},
       {"final_tangent", &a::final_tangent, role::write_edge, "initial_tangent"}}};
};

template <>
struct call_of<scanrec_gated_arrays> {
  using a = scanrec_gated_arrays;
  static constexpr const char* name = "gated_scan";
  static constexpr array_list<a> arrays{
      {{"candidate", &a::candidate, role::read},
       {"forget_gate", &a::forget_gate, role::read},
       {"output_gate", &a::output_gate, role::read},
       {"input_gate", &a::input_gate, role::read},
       {"initial_state", &a::initial_state, role::read_edge},
       {"resets", &a::resets, role::read_resets},
       {"zoneout", &a::zoneout, role::read_mask},
       {"output", &a::output, role::write},
       {"final_state", &a::final_state, role::write_edge, "initial_state"},
       {"state", &a::state, role::write},
       {"checkpoints", &a::checkpoints, role::write_checkpoints}}};
};

template <>
struct call_of<scanrec_gated_vjp_arrays> {
  using a = scanrec_gated_vjp_arrays;
  static constexpr const char* name = "gated_scan_vjp";
  static constexpr array_list<a> arrays{
      {{"candidate", &a::candidate, role::read},
       {"forget_gate", &a::forget_gate, role::read},
       {"output_gate", &a::output_gate, role::read},
       {"input_gate", &a::input_gate, role::read},
       {"initial_state", &a::initial_state, role::read_edge},
       {"resets", &a::resets, role::read_resets},
       {"zoneout", &a::zoneout, role::read_mask},
       {"state", &a::state, role::read},
       {"checkpoints", &a::checkpoints, role::read_checkpoints},
       {"output_grad", &a::output_grad, role::read},
       {"final_grad", &a::final_grad, role::read_edge},
       {"candidate_grad", &a::candidate_grad, role::gradient, "candidate"},
       {"forget_gate_grad", &a::forget_gate_grad, role::gradient, "forget_gate"},
       {"output_gate_grad", &a::output_gate_grad, role::gradient, "output_gate"},
       {"input_gate_grad", &a::input_gate_grad, role::gradient, "input_gate"},
       {"initial_grad", &a::initial_grad, role::edge_gradient, "final_grad"}}};
};

/// The largest number of arrays of a call.
inline constexpr std::size_t most_arrays = call_of<scanrec_gated_vjp_arrays>::arrays.size();

/// The number of arrays that a call reads. They come first in its list.
template <class Arrays>
constexpr std::size_t count_read() {
  std::size_t count = 0;
  for (const auto& entry : call_of<Arrays>::arrays) count += is_written(entry.use) ? 0 : 1;
  return count;
}

/// Whether a list keeps the order of the members of its struct, with inputs first and outputs last.
template <class Arrays>
constexpr bool is_in_order() {
  const Arrays all{};
  const auto& list = call_of<Arrays>::arrays;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i > 0 && !(&(all.*list[i - 1].member) < &(all.*list[i].member))) return false;
    if (is_written(list[i].use) != (i >= count_read<Arrays>())) return false;
  }
  return true;
}
static_assert(is_in_order<scanrec_scan_arrays>() && is_in_order<scanrec_vjp_arrays>() &&
                  is_in_order<scanrec_jvp_arrays>() && is_in_order<scanrec_gated_arrays>() &&
                  is_in_order<scanrec_gated_vjp_arrays>(),
              "scanrec: a list of arrays is not in the order of its struct in scanrec.h");

}  // namespace scanrec::native
