// SPDX-License-Identifier: BSD-3-Clause
// The processes of a call whose time is split over them: what they agree on, what they tell each
// other, and in which order they walk their parts.
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
/// Refuses a gradient of the initial state that is a sum: it passes from part to part.
template <class T>
void check_initial_grad(const char* call, const state_view<T>& wanted) {
  if (!wanted.absent() && is_sum(wanted))
    throw argument_error(call, "initial_grad", "one per sequence",
                         "strides of 0, which ask for a sum");
}
/// Puts it where the caller wants it.
template <class T>
void store_initial_grad(std::vector<T> grads, const extents& shape, const state_view<T>& wanted,
                        update how) {
  if (wanted.absent()) return;
  if (how == update::accumulate) {
    const std::vector<T> there =
        states_in(state_view<const T>(wanted.data, shape, wanted.strides), shape);
    for (std::size_t i = 0; i < grads.size(); ++i) grads[i] = there[i] + grads[i];
  }
  store_states(grads, shape, wanted);
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

}  // namespace scanrec::mpi::inline SCANREC_ABI
