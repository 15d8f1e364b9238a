// SPDX-License-Identifier: BSD-3-Clause
// One sequence over many processes: linear_scan and its derivatives, with time split over the ranks
// of an MPI communicator.
//
// Every process calls with the views of its own part; parts follow each other as the ranks do, are
// as long as they like, and may be empty. A process tells the others one map per sequence
// (split_time.hpp), in one all-gather; each folds those before its own from left to right, and
// walks its part from there.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <scanrec/split_time.hpp>

namespace scanrec::mpi {

/// A call of MPI failed, or another process could not take part: then no process has written
/// anything.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace scanrec::mpi

namespace scanrec::mpi::inline SCANREC_ABI {

/// Options of mpi::linear_scan; T is the compute type.
template <class T>
struct scan_options {
  direction order = direction::forward;  ///< the same in every process
  /// Before the first step of the whole sequence; read where that step is, absent: 0.
  state_view<const T> initial_state{};
  state_view<T> entering_state{};  ///< receives the state before this part, for the adjoint
  state_view<T> final_state{};     ///< receives the state after this part
  /// Of this part, as those of linear_scan. A mark at its first step cuts it from the part before;
  /// a reverse scan finds that link behind its last step.
  sequence_view<const bool> resets{};
};

/// Options of mpi::linear_scan_jvp; `order` and `resets` are those of the forward call.
template <class T>
struct jvp_options {
  direction order = direction::forward;
  state_view<const T> entering_state{};  ///< that of the forward call; absent: 0
  /// Of the initial state of the whole sequence; read where that is, absent: 0.
  state_view<const T> initial_tangent{};
  state_view<T> final_tangent{};  ///< receives the tangent of the state after this part
  sequence_view<const bool> resets{};
};

/// Options of mpi::linear_scan_vjp; `order` and `resets` are those of the forward call.
template <class T>
struct vjp_options {
  direction order = direction::forward;
  state_view<const T> entering_state{};  ///< that of the forward call; absent: 0
  /// Of the last state of the whole sequence; read where that is, absent: 0.
  state_view<const T> final_grad{};
  sequence_view<const bool> resets{};
  conjugation convention = conjugation::hermitian;
};

namespace detail {

using namespace scanrec::detail;

inline void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw error(std::string(call) + ": " + std::string(text, static_cast<std::size_t>(length)));
}

/// The processes of a call, in the order in which the scan comes to them.
class parts {
 public:
  parts(MPI_Comm comm, bool backwards) : comm_(comm), backwards_(backwards) {
    check(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
  }
  [[nodiscard]] int place() const { return rank_of(rank_); }
  [[nodiscard]] int count() const { return size_; }
  [[nodiscard]] bool first() const { return place() == 0; }
  [[nodiscard]] bool last() const { return place() == size_ - 1; }

  /// Tells all processes whether one of them cannot go on, and throws in each if so: its own
  /// exception, or one that says who it was. `shape` must be the same everywhere, time apart.
  void agree(const std::exception_ptr& failed, const extents& shape, std::int64_t kind) const {
    // The least of every number and of its negative, and the first who has failed.
    std::array<std::int64_t, 9> mine{shape.group,  -shape.group,  shape.batch,
                                     -shape.batch, shape.channel, -shape.channel,
                                     kind,         -kind,         failed ? rank_ : size_};
    if (failed)  // its shape says nothing
      for (std::size_t i = 0; i < 8; ++i) mine[i] = INT64_MAX;
    std::array<std::int64_t, 9> least = mine;
    check(MPI_Allreduce(mine.data(), least.data(), 9, MPI_INT64_T, MPI_MIN, comm_),
          "MPI_Allreduce");
    if (failed) std::rethrow_exception(failed);
    if (least[8] < size_)
      throw error("scanrec: rank " + std::to_string(least[8]) +
                  " of the communicator cannot take part in the call");
    for (std::size_t i = 0; i < 8; i += 2)
      if (least[i] != -least[i + 1])
        throw error(
            "scanrec: shapes, types or orders differ between the ranks of the communicator");
  }
  /// The maps of all parts, one after the other in the order of the scan.
  template <class Map>
  [[nodiscard]] std::vector<Map> gather(const std::vector<Map>& own) const {
    const std::size_t lanes = own.size();
    std::vector<Map> by_rank(lanes * static_cast<std::size_t>(size_));
    // One element per map, so that counts stay small.
    MPI_Datatype element = MPI_DATATYPE_NULL;
    check(MPI_Type_contiguous(static_cast<int>(sizeof(Map)), MPI_BYTE, &element),
          "MPI_Type_contiguous");
    check(MPI_Type_commit(&element), "MPI_Type_commit");
    const int status = MPI_Allgather(own.data(), static_cast<int>(lanes), element, by_rank.data(),
                                     static_cast<int>(lanes), element, comm_);
    MPI_Type_free(&element);
    check(status, "MPI_Allgather");
    if (!backwards_) return by_rank;
    std::vector<Map> in_order;
    in_order.reserve(by_rank.size());
    for (int rank = size_ - 1; rank >= 0; --rank) {
      const auto begin = by_rank.begin() + static_cast<std::ptrdiff_t>(lanes) * rank;
      in_order.insert(in_order.end(), begin, begin + static_cast<std::ptrdiff_t>(lanes));
    }
    return in_order;
  }
  template <class T>
  void send_on(const std::vector<T>& states) const {
    if (!last())
      check(MPI_Send(states.data(), bytes_of(states), MPI_BYTE, rank_of(place() + 1), 0, comm_),
            "MPI_Send");
  }
  template <class T>
  void receive(std::vector<T>& states) const {
    check(MPI_Recv(states.data(), bytes_of(states), MPI_BYTE, rank_of(place() - 1), 0, comm_,
                   MPI_STATUS_IGNORE),
          "MPI_Recv");
  }

 private:
  // Of a place the rank, and of a rank the place.
  [[nodiscard]] int rank_of(int place) const { return backwards_ ? size_ - 1 - place : place; }
  template <class T>
  static int bytes_of(const std::vector<T>& states) {
    return static_cast<int>(states.size() * sizeof(T));
  }

  MPI_Comm comm_;
  bool backwards_;
  int rank_ = 0, size_ = 1;
};

template <class T>
bool all_finite(const std::vector<part_state<T>>& states) {
  for (const auto& x : states)
    if (!simd::all_zero(simd::zero_if_finite(simd::from_wide<simd::lane_t<T, 1>>(x)))) return false;
  return true;
}

/// Walks every part once its first states are known: those behind the parts before it.
///
///     map()           the map of this part, where states pass through it: neither first nor last
///     walk(states)    walks it, and leaves the states behind it in their place
///
/// Where the state behind some part is not finite, its map may not say what the loop would: the
/// parts behind it wait for each other.
template <class T, class Summarise, class Walk>
void walk_parts(const parts& all, std::vector<T> states, Summarise map, Walk walk) {
  const std::size_t lanes = states.size();
  std::vector<part_map<T>> own(lanes, part_map<T>::identity());
  if (all.first()) {
    walk(states);
    for (std::size_t i = 0; i < lanes; ++i)
      own[i] = part_map<T>::constant(widened_state(states[i]));
  } else if (!all.last()) {
    own = map();
  }
  const std::vector<part_map<T>> maps = all.gather(own);
  // The first part behind which states are not finite; the last one tells nobody.
  std::vector<part_state<T>> behind(lanes, simd::constant<part_state<T>>(0)), before = behind;
  int known = 0;
  for (; known + 1 < all.count(); ++known) {
    fold_part<part_state<T>>(
        std::span(maps).subspan(lanes * static_cast<std::size_t>(known), lanes), behind);
    if (known + 1 == all.place()) before = behind;
    if (!all_finite<T>(behind)) break;
  }
  if (!all.first()) {
    if (all.place() <= known)
      for (std::size_t i = 0; i < lanes; ++i) states[i] = narrowed_state<T>(before[i]);
    else
      all.receive(states);
    walk(states);
  }
  if (all.place() >= known) all.send_on(states);
}

// Copies a view's states, in the order of sequences; zeros where it is absent.
template <class T>
std::vector<T> states_in(const state_view<const T>& view, const extents& shape) {
  lane_array<T> copy(shape);
  const state_view<T> to = copy.view();
  if (!view.absent())
    for (std::int64_t g = 0; g < shape.group; ++g)
      for (std::int64_t b = 0; b < shape.batch; ++b)
        for (std::int64_t c = 0; c < shape.channel; ++c) to.at(b, c, g) = view.at(b, c, g);
  return copy.values();
}
template <class T>
void store_states(const std::vector<T>& from, const extents& shape, const state_view<T>& to) {
  if (to.absent()) return;
  auto next = from.begin();
  for (std::int64_t g = 0; g < shape.group; ++g)
    for (std::int64_t b = 0; b < shape.batch; ++b)
      for (std::int64_t c = 0; c < shape.channel; ++c) to.at(b, c, g) = *next++;
}
template <class T>
bool is_sum(const state_view<T>& view) {
  return (view.shape.group > 1 && view.strides.group == 0) ||
         (view.shape.batch > 1 && view.strides.batch == 0) ||
         (view.shape.channel > 1 && view.strides.channel == 0);
}
/// A number that tells types and orders apart.
template <class T>
std::int64_t kind_of(direction order) {
  return static_cast<std::int64_t>(sizeof(T)) * 8 + (is_complex<T> ? 4 : 0) +
         (std::is_integral_v<T> ? 2 : 0) + (order == direction::reverse ? 1 : 0);
}
/// What f() throws, or nothing.
template <class F>
std::exception_ptr caught(F f) {
  try {
    f();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace detail

/// linear_scan of a sequence whose time is split over the processes of a communicator; all of them
/// call it, each for its part.
///
/// Shapes   as linear_scan, of this part; batch, channel and group are the same in every process,
///          and so are the types.
/// Bits     the same in every run with the same parts; within the bound of linear_scan over the
///          whole sequence whatever the parts are. With one process those of linear_scan.
/// Traffic  an all-gather of a map per sequence and process: two numbers in the wide type, 16 bytes
///          of floats; 72 bytes for the check. Where states are not finite, a message per part
///          more.
/// Cost     a part that is neither first nor last reads its gate twice and its input once before it
///          is walked.
/// Throws   argument_error, in the process whose argument it is, and mpi::error in the others; no
///          process has written anything then. Errors of MPI, where the communicator returns them.
template <backend Backend, sequence Gate, sequence Input, writable_sequence_argument State>
void linear_scan(
    MPI_Comm comm, const Backend& backend, const Gate& gate, const Input& input, const State& state,
    const std::type_identity_t<scan_options<scanrec::detail::value_of<Gate>>>& options = {}) {
  using value = scanrec::detail::value_of<Gate>;
  static_assert(!scanrec::detail::is_vec<value>, "scanrec: time of vectors is not split");
  const extents shape = gate.shape;
  const detail::parts all(comm, options.order == direction::reverse);
  // As the call on this part checks its arguments; each of its outputs in turn as the final state.
  const auto check = [&](const state_view<value>& final_state) {
    static_cast<void>(linear_scan_problem(
        gate, input, state,
        {.order = options.order,
         .initial_state = all.first() ? options.initial_state : state_view<const value>{},
         .final_state = final_state,
         .resets = options.resets}));
  };
  const bool enters = !options.entering_state.absent();
  all.agree(detail::caught([&] {
              if (enters) check(options.entering_state);
              if (!enters || !options.final_state.absent()) check(options.final_state);
            }),
            shape, detail::kind_of<value>(options.order));
  scanrec::detail::lane_array<value> ends(shape);
  const auto walk = [&](std::vector<value>& states) {
    detail::store_states(states, shape, options.entering_state);
    scanrec::linear_scan(backend, gate, input, state,
                         {.order = options.order,
                          .initial_state = state_view<const value>(states.data(), shape),
                          .final_state = ends.view(),
                          .resets = options.resets});
    states = ends.values();
    detail::store_states(states, shape, options.final_state);
  };
  detail::walk_parts<value>(
      all,
      detail::states_in(all.first() ? options.initial_state : state_view<const value>{}, shape),
      [&] {
        return linear_scan_summary(backend, gate, input,
                                   {.order = options.order, .resets = options.resets});
      },
      walk);
}

/// The tangent of mpi::linear_scan.
///
/// Shapes   as linear_scan_jvp, of this part; options.entering_state is what the forward call has
///          given there.
/// Bits, traffic, cost, throws   as mpi::linear_scan.
template <backend Backend, sequence Gate, sequence_argument State, sequence_argument GateTangent,
          sequence_argument InputTangent, writable_sequence_argument StateTangent>
void linear_scan_jvp(
    MPI_Comm comm, const Backend& backend, const Gate& gate, const State& state,
    const GateTangent& gate_tangent, const InputTangent& input_tangent,
    const StateTangent& state_tangent,
    const std::type_identity_t<jvp_options<scanrec::detail::value_of<Gate>>>& options = {}) {
  using value = scanrec::detail::value_of<Gate>;
  static_assert(!scanrec::detail::is_vec<value>, "scanrec: time of vectors is not split");
  const extents shape = gate.shape;
  const detail::parts all(comm, options.order == direction::reverse);
  const auto with = [&](const state_view<const value>& initial, const state_view<value>& last) {
    return scanrec::jvp_options<value>{.order = options.order,
                                       .initial_state = options.entering_state,
                                       .initial_tangent = initial,
                                       .final_tangent = last,
                                       .resets = options.resets};
  };
  const state_view<const value> initial =
      all.first() ? options.initial_tangent : state_view<const value>{};
  all.agree(detail::caught([&] {
              static_cast<void>(linear_scan_jvp_problem(gate, state, gate_tangent, input_tangent,
                                                        state_tangent,
                                                        with(initial, options.final_tangent)));
            }),
            shape, detail::kind_of<value>(options.order));
  scanrec::detail::lane_array<value> ends(shape);
  detail::walk_parts<value>(
      all, detail::states_in(initial, shape),
      [&] {
        return linear_scan_jvp_summary(backend, gate, state, gate_tangent, input_tangent,
                                       {.order = options.order, .resets = options.resets},
                                       options.entering_state);
      },
      [&](std::vector<value>& tangents) {
        scanrec::linear_scan_jvp(
            backend, gate, state, gate_tangent, input_tangent, state_tangent,
            with(state_view<const value>(tangents.data(), shape), ends.view()));
        tangents = ends.values();
        detail::store_states(tangents, shape, options.final_tangent);
      });
}

/// The adjoint of mpi::linear_scan: from right to left, in the order of the scan.
///
/// Shapes   as linear_scan_vjp, of this part; options.entering_state is what the forward call has
///          given there. initial_grad receives the gradient of the state before this part: that of
///          the initial state where the sequence begins. Gradients that are sums over time are the
///          terms of this part: who shares a gate over processes adds them up.
/// Bits, traffic, cost, throws   as mpi::linear_scan.
template <backend Backend, sequence Gate, sequence_argument State, sequence_argument StateGrad,
          class Gradients = scanrec::detail::default_gradients<Gate, State, StateGrad>>
void linear_scan_vjp(
    MPI_Comm comm, const Backend& backend, const Gate& gate, const State& state,
    const StateGrad& state_grad, const Gradients& gradients,
    const std::type_identity_t<vjp_options<scanrec::detail::value_of<Gate>>>& options = {}) {
  using value = scanrec::detail::value_of<Gate>;
  static_assert(!scanrec::detail::is_vec<value>, "scanrec: time of vectors is not split");
  const extents shape = gate.shape;
  const detail::parts all(comm, options.order == direction::forward);
  const auto with = [&](const state_view<const value>& final_grad) {
    return scanrec::vjp_options<value>{.order = options.order,
                                       .initial_state = options.entering_state,
                                       .final_grad = final_grad,
                                       .resets = options.resets,
                                       .convention = options.convention};
  };
  const state_view<value> wanted = gradients.initial_grad;
  all.agree(
      detail::caught([&] {
        if (!wanted.absent() && detail::is_sum(wanted))
          throw argument_error("mpi::linear_scan_vjp", "initial_grad", "one per sequence",
                               "strides of 0, which ask for a sum");
        // Gradients may come from the parts behind alone.
        scanrec::detail::lane_array<value> from(shape), to(shape);
        Gradients asked = gradients;
        if (wanted.absent()) asked.initial_grad = to.view();
        static_cast<void>(linear_scan_vjp_problem(
            gate, state, state_grad, asked,
            with(all.first() && !options.final_grad.absent() ? options.final_grad : from.view())));
      }),
      shape, detail::kind_of<value>(options.order));
  // What goes on to the part before; the caller's gets it afterwards.
  scanrec::detail::lane_array<value> begins(shape);
  Gradients own = gradients;
  own.initial_grad = begins.view();
  detail::walk_parts<value>(
      all, detail::states_in(all.first() ? options.final_grad : state_view<const value>{}, shape),
      [&] {
        return linear_scan_vjp_summary(backend, gate, state_grad,
                                       {.order = options.order, .resets = options.resets},
                                       options.convention);
      },
      [&](std::vector<value>& grads) {
        scanrec::linear_scan_vjp(backend, gate, state, state_grad, own,
                                 with(state_view<const value>(grads.data(), shape)));
        grads = begins.values();
      });
  if (wanted.absent()) return;
  std::vector<value> total = begins.values();
  if (gradients.update == update::accumulate) {
    const std::vector<value> there =
        detail::states_in(state_view<const value>(wanted.data, shape, wanted.strides), shape);
    for (std::size_t i = 0; i < total.size(); ++i) total[i] = there[i] + total[i];
  }
  detail::store_states(total, shape, wanted);
}

}  // namespace scanrec::mpi::inline SCANREC_ABI
