// SPDX-License-Identifier: BSD-3-Clause
// Functions that help to run one sequence as several parts, each in its own call. They compute the
// map of a part, which takes the state before the part to the state after it, and apply such maps.
//
// Parts may run in other processes or at other times. The caller transports the maps;
// scanrec/mpi.hpp does so with MPI. (Within a call, detail/cpu/choose_tiles.hpp splits time over
// threads.)
//
//     part k maps a state x to a_k x + u_k:        x_{k+1} = a_k x_k + u_k
//
// x_k is the state before part k. a_k is the product of the part's gates, or 0 if a reset separates
// x_k from x_{k+1}. u_k is the final state of the part for an initial state of 0. Processes that
// apply the same maps in scan order get the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <scanrec/affine.hpp>
#include <scanrec/cells/cell.hpp>
#include <scanrec/detail/split_time/pieces.hpp>
#include <scanrec/detail/split_time/products.hpp>
#include <scanrec/element.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/linear_scan.hpp>
#include <scanrec/options.hpp>
#include <scanrec/views.hpp>

namespace scanrec::inline SCANREC_ABI {

/// A state in the wide type (double for float), as fold_part() takes it. For real T it is a plain
/// number; for complex T it has members re and im.
template <class T>
using part_state = detail::wide_lane<T>;
/// The map of a part, state -> a * state + u, for states of compute type T.
template <class T>
using part_map = affine<part_state<T>>;

/// Options of linear_scan_summary and the other functions that compute the maps of a part. They
/// must equal the options of the call that scans the part.
struct part_options {
  direction order = direction::forward;
  sequence_view<const bool> resets{};
  sequence_view<const bool> zoneout{};  ///< for gated scans only
};

}  // namespace scanrec::inline SCANREC_ABI

namespace scanrec::detail::inline SCANREC_ABI {

template <class T>
std::vector<part_map<T>> part_maps(const std::vector<part_state<T>>& products,
                                   const std::vector<T>& ends) {
  std::vector<part_map<T>> maps;
  maps.reserve(ends.size());
  for (std::size_t i = 0; i < ends.size(); ++i)
    maps.push_back({products[i], widened_state(ends[i])});
  return maps;
}

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// The maps of linear_scan over a part of time, from the state before the part to the state after
/// it. Returns one map per sequence, ordered by group, batch and channel.
///
/// Shapes  gate, input: (batch, time, channel) of the part, real or complex, as for linear_scan. A
///         part without steps gives the identity.
/// Throws  argument_error; std::bad_alloc.
/// Error   a and u are within the error bound of linear_scan, relative to the magnitudes of the
///         terms that form them. A state to which fold_part() has applied the maps of all parts is
///         within the error bound of linear_scan over the whole sequence.
/// Cost    reads the input once and the gate twice. The second read of the gate stops when all
///         products count as 0. In float, a product counts as 0 below 2^-279, where no finite state
///         contributes a representable number. In double it counts as 0 below 2^-1022, where it
///         loses digits. If the gate has a zero time stride and there are no resets, the second
///         read is one step. The calling thread converts gates to the wide type in blocks of steps.
template <backend Backend, sequence Gate, sequence Input>
[[nodiscard]] std::vector<part_map<detail::value_of<Gate>>> linear_scan_summary(
    const Backend& backend, const Gate& gate, const Input& input,
    const part_options& options = {}) {
  using value = detail::value_of<Gate>;
  static_assert(
      !scanrec::detail::is_vec<value>,
      "scanrec: scans of vectors cannot be split in time, since their gates are matrices");
  detail::lane_array<value> ends(gate.shape);
  linear_scan(backend, gate, input, none,
              {.order = options.order, .final_state = ends.view(), .resets = options.resets});
  return detail::part_maps(detail::products_of(backend, gate, options.order, options.resets).values,
                           ends.values());
}

/// The maps c -> conj(a) c + u of linear_scan_vjp over a part of time, or c -> a c + u with
/// conjugation::none. They take the gradient of the state after the part to the gradient of the
/// state before it; a is the product of the gates.
///
/// Shapes   gate, state_grad: (batch, time, channel) of the part; state_grad may be `none`.
/// Throws, error, cost  as linear_scan_summary, with state_grad as the input.
template <backend Backend, sequence Gate, sequence_argument StateGrad>
[[nodiscard]] std::vector<part_map<detail::value_of<Gate>>> linear_scan_vjp_summary(
    const Backend& backend, const Gate& gate, const StateGrad& state_grad,
    const part_options& options = {}, conjugation convention = conjugation::hermitian) {
  using value = detail::value_of<Gate>;
  static_assert(
      !scanrec::detail::is_vec<value>,
      "scanrec: scans of vectors cannot be split in time, since their gates are matrices");
  using input_t = detail::stored_or<StateGrad, value>;
  auto products = detail::products_of(backend, gate, options.order, options.resets).values;
  if (convention == conjugation::hermitian)
    for (auto& a : products) a = simd::conj_if(-1.0, a);
  detail::lane_array<value> begins(gate.shape);
  const value zero{};
  const state_view<const value> no_grad(&zero, gate.shape, strides{});
  using gate_t = std::remove_const_t<typename detail::sequence_traits<Gate>::stored>;
  linear_scan_vjp(backend, gate, none, state_grad,
                  scan_gradients<gate_t, input_t>{.initial_grad = begins.view()},
                  {.order = options.order,
                   .final_grad = no_grad,
                   .resets = options.resets,
                   .convention = convention});
  return detail::part_maps(products, begins.values());
}

/// The maps of linear_scan_jvp over a part of time. They take the tangent of the state before the
/// part to the tangent of the state after it.
///
/// Shapes   as linear_scan_jvp, of the part. `initial_state` is the state before the part, which
///          multiplies the tangent of the first gate; absent: 0.
/// Throws, error  as linear_scan_summary.
/// Cost     the reads of linear_scan_jvp, and one more read of the gate.
template <backend Backend, sequence Gate, sequence_argument State, sequence_argument GateTangent,
          sequence_argument InputTangent>
[[nodiscard]] std::vector<part_map<detail::value_of<Gate>>> linear_scan_jvp_summary(
    const Backend& backend, const Gate& gate, const State& state, const GateTangent& gate_tangent,
    const InputTangent& input_tangent, const part_options& options = {},
    const state_view<const std::type_identity_t<detail::value_of<Gate>>>& initial_state = {}) {
  using value = detail::value_of<Gate>;
  static_assert(
      !scanrec::detail::is_vec<value>,
      "scanrec: scans of vectors cannot be split in time, since their gates are matrices");
  detail::lane_array<value> ends(gate.shape);
  linear_scan_jvp(backend, gate, state, gate_tangent, input_tangent, none,
                  {.order = options.order,
                   .initial_state = initial_state,
                   .final_tangent = ends.view(),
                   .resets = options.resets});
  return detail::part_maps(detail::products_of(backend, gate, options.order, options.resets).values,
                           ends.values());
}

/// The maps of gated_scan over a part of time.
///
/// Shapes, throws  as gated_scan, of the part.
/// Error    as linear_scan_summary.
/// Cost     reads and activates every array twice, or three times if the cell returns
///          affine_with_rest and computes in float. All passes but the first stop when all products
///          count as 0.
template <backend Backend, gated_cell Cell, class Arrays>
[[nodiscard]] auto gated_scan_summary(const Backend& backend, const Cell& cell,
                                      const Arrays& arrays, const part_options& options = {}) {
  using value = compute_t<detail::stored_in<Cell, Arrays>>;
  detail::lane_array<value> ends(detail::listed<Cell::names.size()>(arrays)[0].shape);
  gated_scan(backend, cell, arrays, none, none,
             {.order = options.order,
              .final_state = ends.view(),
              .resets = options.resets,
              .zoneout = options.zoneout});
  return detail::part_maps(
      detail::gated_products(backend, cell, arrays, options.order, options.resets, options.zoneout)
          .values,
      ends.values());
}

/// The maps of gated_scan_vjp over a part of time. They take the gradient of the state after the
/// part to the gradient of the state before it.
///
/// Shapes, memory, throws  as gated_scan_vjp, of the part.
/// Error    as linear_scan_summary.
/// Cost     the reads of gated_scan_vjp, and those of gated_scan_summary after its first pass.
template <backend Backend, gated_cell Cell, class Arrays, class Memory,
          sequence_argument OutputGrad>
[[nodiscard]] auto gated_scan_vjp_summary(
    const Backend& backend, const Cell& cell, const Arrays& arrays, const Memory& kept,
    const OutputGrad& output_grad, const part_options& options = {},
    const state_view<const compute_t<detail::stored_in<Cell, Arrays>>>& initial_state = {}) {
  using stored = detail::stored_in<Cell, Arrays>;
  using value = compute_t<stored>;
  const extents shape = detail::listed<Cell::names.size()>(arrays)[0].shape;
  detail::lane_array<value> begins(shape);
  const value zero{};
  gated_scan_vjp(backend, cell, arrays, kept, output_grad,
                 gated_gradients<Cell, stored>{.initial_grad = begins.view()},
                 {.order = options.order,
                  .initial_state = initial_state,
                  .final_grad = state_view<const value>(&zero, shape, strides{}),
                  .resets = options.resets,
                  .zoneout = options.zoneout});
  return detail::part_maps(
      detail::gated_products(backend, cell, arrays, options.order, options.resets, options.zoneout)
          .values,
      begins.values());
}

/// Applies the maps of a part: replaces the states before the part by the states after it.
/// Processes that apply the same maps in scan order get the same bits.
template <class T>
void fold_part(std::span<const affine<T>> maps, std::span<T> states) {
  for (std::size_t i = 0; i < states.size(); ++i) states[i] = maps[i].act(states[i]);
}

}  // namespace scanrec::inline SCANREC_ABI
