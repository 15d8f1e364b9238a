// SPDX-License-Identifier: BSD-3-Clause
// Concepts and building blocks for recurrences and backends outside the library.
//
// A recurrence is a struct that defines the inputs, the map and the outputs of a time step. A
// backend is a struct that defines the order in which steps are combined, on its own lanes and
// threads. The two are independent: with few exceptions (docs/extend.md), every backend runs every
// recurrence.
//
//     struct leaky_sum : extend::affine_steps<double> {...};  // load, finish, begin, end, arrays
//
//     extend::problem_builder c("leaky_sum", input.shape);    // the call
//     const int u = c.add("input", input, access::read);      // once for each array of the call
//     c.prepare<leaky_sum>(direction::forward);               // throws if an array is invalid
//     leaky_sum r;
//     r.input = c.input<double>(u);                           // once for each field
//     extend::run(tiled{}, r, c);
//
// docs/extend.md is the guide. It also covers optional members that make kernels faster.
// examples/extend.cpp is a complete program with a recurrence, its adjoint and a backend.
#pragma once

#include <concepts>
#include <cstdint>

#include <scanrec/affine.hpp>
#include <scanrec/concepts.hpp>
#include <scanrec/detail/problem/build.hpp>
#include <scanrec/detail/problem/run.hpp>
#include <scanrec/detail/recurrence/affine_steps.hpp>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/field.hpp>
#include <scanrec/detail/recurrence/recompute.hpp>
#include <scanrec/detail/recurrence/steps.hpp>
#include <scanrec/detail/recurrence/sums.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::inline SCANREC_ABI::extend {

// ---- lanes and positions ----------------------------------------------------------------------

// position<Axis, Assume> locates the lanes of a step. `time` and `channel` are the step and the
// channel of the first lane. `row` and `index` are offsets from the element that the fields point
// at, in steps and in elements. `count` is the number of lanes in use. rarely(condition) and
// mostly(condition) return the condition. If `Assume` decides the condition, rarely() is false and
// mostly() is true at compile time.
using recurrence::assume;
using recurrence::lane_axis;
using recurrence::position;

/// The position of a single lane, for backends without SIMD.
using scalar_position = position<lane_axis::channel>;
/// A single lane of R's compute type.
template <class R>
using lane_of = simd::lane_t<typename R::value, 1>;
/// The state of a single lane.
template <class R>
using state_of = typename R::template state_of<lane_of<R>>;
/// The map of a single lane; combine(earlier, later) composes maps and act(state) applies one.
template <class R>
using map_of = typename R::template map_of<lane_of<R>>;
/// The running sums of a single lane.
template <class R>
using sums_of = typename R::template sums<lane_of<R>>;
/// The step of a single lane: the return type of R's load.
template <class R>
using step_of = scanrec::detail::step_of<R>;

// ---- the fields of a recurrence ---------------------------------------------------------------

// Pointers and strides in scan order, the order in which a scan processes time. A backend advances
// the pointers; a recurrence loads and stores lanes through them.
using recurrence::input_field;   // a sequence: load<Lane>(at), load_or_zero, load_neighbour(at, 1)
using recurrence::output_field;  // a sequence: store(at, lane); a gradient: put(at, lane, sum)
using recurrence::reset_field;   // the reset mask: present(), load<Mask>(at)
using recurrence::state_input;   // a value per sequence: load_or_zero<Lane>(at)
using recurrence::state_output;  // a value per sequence: put(at, lane)

// `arrays` lists the fields: using arrays = array_list<reads<&r::gate>, writes<&r::state>>. A
// backend does not advance the pointer of a field that is not listed. List outputs in the order in
// which the call adds them, those with `writes` before those with `ends_in`. If a step also reads
// the next or the previous element of an array in scan order, list that array with reads_next or
// reads_previous_if_given. A list may not contain both.
using recurrence::array_list;
using recurrence::ends_in;
using recurrence::only_if;
using recurrence::reads;
using recurrence::reads_if_given;
using recurrence::reads_next;
using recurrence::reads_next_if_given;
using recurrence::reads_previous_if_given;
using recurrence::reads_reset_mask;
using recurrence::starts_from;
using recurrence::writes;
using recurrence::writes_if_given;

// Base classes. affine_steps<Value> is for steps of the form state = gate * state + input; the
// derived class defines load, finish, begin, end and arrays. affine_maps<Value> defines the
// constants and types only.
using recurrence::affine_maps;
using recurrence::affine_steps;

// ---- calls ------------------------------------------------------------------------------------

// problem_builder describes the arrays of a call with add, add_factor, add_resets and require.
// prepare checks them and brings them to scan order. input, output, start, end and resets return
// the fields.
using scanrec::detail::in_place_pair;
using scanrec::detail::problem_builder;

// ---- backends ---------------------------------------------------------------------------------

using scanrec::detail::sums_layout;  // accumulators of gradients that are sums, and their size
using scanrec::detail::take_step;    // next, then finish: returns the state after the step
// Building blocks for adjoints with memory::recompute, which recompute states one block at a time.
// See detail/cpu/sequential.hpp.
using scanrec::detail::block;
using scanrec::detail::recompute_scratch;
using scanrec::detail::with_states;

/// A copy of the recurrence whose fields point at the first step of one sequence.
template <class R>
R sequence_of(const R& r, std::int64_t group, std::int64_t batch, std::int64_t channel) {
  return scanrec::detail::standing_at(scanrec::detail::bound(r, group, batch), 0, channel);
}

}  // namespace scanrec::inline SCANREC_ABI::extend

namespace scanrec::inline SCANREC_ABI {

/// A recurrence: the members that every backend calls. The base class affine_steps defines most of
/// them.
///
/// Types and constants:
///
///     value, map_of<Lane>, state_of<Lane>     compute type; type of maps; type of states
///     sums<Lane>                              running sums of gradients; empty if there are none
///     arrays                                  the array_list of its fields
///     one_by_one                              whether lanes are single sequences, never packs
///     any_operator                            whether an associative operator combines maps
///
/// Functions, all const, for every Lane and position (marked SCANREC_HD to run on GPUs):
///
///     load<Lane>(at) -> step                  reads a step; may be called any number of times
///     map(at, step) -> map                    the step as a map of the state; a reset has factor 0
///     next(at, step, before) -> state         the state after the step; see Resets
///     finish(at, step, before, after, sums)   writes the outputs; called once per step
///     begin<Lane>(at) -> state                the state before the first step
///     end(at, after)                          receives the state after the last step
///     flush(at, sums)                         adds running sums to the accumulators
///     touch_rest<Lane>(at)                    reads the inputs that finish uses and map does not
///
/// Resets  At a reset, next must select a value that does not depend on `before`, which may be NaN.
/// Law     map(at, step).act(x) equals next(at, step, x) up to rounding, for finite numbers.
/// Order   finish is the last call for a step and may overwrite the inputs of that step.
/// Threads Several threads call members at once, each on a copy of the recurrence.
template <class R>
concept step_recurrence = requires {
  typename R::value;
  typename R::arrays;
  { R::one_by_one } -> std::convertible_to<bool>;
  { R::any_operator } -> std::convertible_to<bool>;
  typename extend::map_of<R>;
  typename extend::state_of<R>;
  typename extend::sums_of<R>;
  typename extend::step_of<R>;
}
&&requires(const R& r, extend::scalar_position at, const extend::step_of<R>& read,
           extend::state_of<R> before, extend::sums_of<R>& sums) {
  { r.map(at, read) } -> std::convertible_to<extend::map_of<R>>;
  { r.next(at, read, before) } -> std::convertible_to<extend::state_of<R>>;
  r.finish(at, read, before, before, sums);
  { r.template begin<extend::lane_of<R>>(at) } -> std::convertible_to<extend::state_of<R>>;
  r.end(at, before);
  r.flush(at, sums);
  r.template touch_rest<extend::lane_of<R>>(at);
};

/// A backend that runs the recurrence R: a struct of options with two functions, found by
/// argument-dependent lookup:
///
///     workspace_bytes(backend, problem) -> bytes      memory that a call needs
///     run_recurrence(backend, recurrence, problem)    runs every sequence of the problem
///
/// run_recurrence is a template that serves all recurrences. Its arguments are checked and in scan
/// order, so it never handles the direction of time. For every sequence it calls `begin`, then for
/// every step `load`, `next` (or a composed map) and `finish`, and last `end`.
///
/// Order     finish is the last call for a step and may overwrite the inputs of that step.
/// Bits      The backend chooses the order in which maps compose, and documents it.
/// Gradients Gradients that are sums are accumulated through sums_layout, in an order that does not
///           depend on the number of threads.
/// Needs     `static constexpr bool recomputes_states = true` to run adjoints with
///           memory::recompute.
template <class B, class R>
concept backend_for = backend<B> && step_recurrence<R> &&
    requires(const B& b, const R& r, const problem& p) {
  run_recurrence(b, r, p);
};

}  // namespace scanrec::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI::extend {

/// Runs a recurrence on a backend. A call does this last, after prepare().
///
/// Throws  the exceptions of the backend.
template <backend Backend, step_recurrence R>
void run(const Backend& backend, const R& r, const problem_builder& call) {
  scanrec::detail::run_on_backend{backend}(r, call.described());
}

}  // namespace scanrec::inline SCANREC_ABI::extend
