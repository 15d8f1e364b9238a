// SPDX-License-Identifier: BSD-3-Clause
// The processes of a call whose time axis is split over them: their agreement on arguments, their
// messages, and the order in which they run their parts.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <scanrec/split_time.hpp>

namespace scanrec::mpi {

/// Thrown if a call of MPI fails, if another process cannot take part, or if the processes disagree
/// about the call. In the last two cases no process has written anything.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How processes exchange the maps of their parts. A map takes the state before a part to the state
/// after it. The way must be the same in every process.
enum class exchange {
  gather,  ///< each process receives all maps and folds them in order: MPI_Allgather
  scan,    ///< each process receives the composed maps of all earlier parts: MPI_Exscan
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

/// The MPI data type of a map, so that counts are numbers of maps.
template <class Map>
struct element_type {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  element_type() {
    check(MPI_Type_contiguous(static_cast<int>(sizeof(Map)), MPI_BYTE, &type),
          "MPI_Type_contiguous");
    check(MPI_Type_commit(&type), "MPI_Type_commit");
  }
  element_type(const element_type&) = delete;
  element_type& operator=(const element_type&) = delete;
  ~element_type() { MPI_Type_free(&type); }
};
/// combine(earlier, later) as an MPI operation that does not commute.
template <class Map>
struct composition {
  MPI_Op op = MPI_OP_NULL;
  composition() { check(MPI_Op_create(&compose, 0, &op), "MPI_Op_create"); }
  composition(const composition&) = delete;
  composition& operator=(const composition&) = delete;
  ~composition() { MPI_Op_free(&op); }

 private:
  static void compose(void* earlier, void* later, int* count, MPI_Datatype*) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(*count); ++i) {
      // Copies, since MPI does not specify the alignment of its buffers.
      Map before, after;
      std::memcpy(&before, static_cast<std::byte*>(earlier) + i * sizeof(Map), sizeof(Map));
      std::memcpy(&after, static_cast<std::byte*>(later) + i * sizeof(Map), sizeof(Map));
      after = combine(before, after);
      std::memcpy(static_cast<std::byte*>(later) + i * sizeof(Map), &after, sizeof(Map));
    }
  }
};
/// A copy of a communicator whose ranks are in scan order, because MPI_Exscan composes in the order
/// of ranks.
struct turned_ranks {
  MPI_Comm comm = MPI_COMM_NULL;
  turned_ranks(MPI_Comm of, int position) {
    check(MPI_Comm_split(of, 0, position, &comm), "MPI_Comm_split");
  }
  turned_ranks(const turned_ranks&) = delete;
  turned_ranks& operator=(const turned_ranks&) = delete;
  ~turned_ranks() { MPI_Comm_free(&comm); }
};

/// The processes of a call, in scan order.
class parts {
 public:
  parts(MPI_Comm comm, bool backwards, exchange how)
      : comm_(comm), backwards_(backwards), how_(how) {
    check(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
  }
  [[nodiscard]] int position() const { return rank_of(rank_); }
  [[nodiscard]] int count() const { return size_; }
  [[nodiscard]] exchange how() const { return how_; }
  [[nodiscard]] bool first() const { return position() == 0; }
  [[nodiscard]] bool last() const { return position() == size_ - 1; }

  /// Checks across processes whether all can run the call, and throws in every process otherwise. A
  /// process that failed rethrows its own exception. The others throw an error that names the
  /// lowest rank that failed. `kind`, the exchange, and `shape` except for time must agree.
  void agree(const std::exception_ptr& failed, const extents& shape, std::int64_t kind) const {
    kind = 2 * kind + (how_ == exchange::scan ? 1 : 0);
    // The all-reduce gives the minimum of every number and of its negative, and the lowest rank
    // that failed.
    std::array<std::int64_t, 9> mine{shape.group,  -shape.group,  shape.batch,
                                     -shape.batch, shape.channel, -shape.channel,
                                     kind,         -kind,         failed ? rank_ : size_};
    if (failed)  // the arguments of this process are not compared
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
            "scanrec: expected the same type, order, exchange and shape (except time) on all "
            "ranks of the communicator, got different ones");
  }
  /// The maps of all parts, in scan order.
  template <class Map>
  [[nodiscard]] std::vector<Map> gather(const std::vector<Map>& own) const {
    const std::size_t lanes = own.size();
    std::vector<Map> by_rank(lanes * static_cast<std::size_t>(size_));
    const element_type<Map> element;
    check(MPI_Allgather(own.data(), static_cast<int>(lanes), element.type, by_rank.data(),
                        static_cast<int>(lanes), element.type, comm_),
          "MPI_Allgather");
    if (!backwards_) return by_rank;
    std::vector<Map> in_order;
    in_order.reserve(by_rank.size());
    for (int rank = size_ - 1; rank >= 0; --rank) {
      const auto begin = by_rank.begin() + static_cast<std::ptrdiff_t>(lanes) * rank;
      in_order.insert(in_order.end(), begin, begin + static_cast<std::ptrdiff_t>(lanes));
    }
    return in_order;
  }
  /// The composition of the maps of all earlier parts, grouped as the MPI library chooses. In the
  /// first part it is the identity.
  template <class Map>
  [[nodiscard]] std::vector<Map> compose_before(const std::vector<Map>& own) const {
    std::vector<Map> before(own.size(), Map::identity());
    const element_type<Map> element;
    const composition<Map> compose;
    const auto in_order = [&](MPI_Comm comm) {
      check(MPI_Exscan(own.data(), before.data(), static_cast<int>(own.size()), element.type,
                       compose.op, comm),
            "MPI_Exscan");
    };
    if (backwards_) {
      const turned_ranks turned(comm_, position());
      in_order(turned.comm);
    } else {
      in_order(comm_);
    }
    if (first()) before.assign(own.size(), Map::identity());  // MPI_Exscan does not set it
    return before;
  }
  /// The minimum of a number over all processes.
  [[nodiscard]] int least(int mine) const {
    int all = mine;
    check(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm_), "MPI_Allreduce");
    return all;
  }
  template <class T>
  void send_on(const std::vector<T>& states) const {
    if (!last())
      check(MPI_Send(states.data(), bytes_of(states), MPI_BYTE, rank_of(position() + 1), 0, comm_),
            "MPI_Send");
  }
  template <class T>
  void receive(std::vector<T>& states) const {
    check(MPI_Recv(states.data(), bytes_of(states), MPI_BYTE, rank_of(position() - 1), 0, comm_,
                   MPI_STATUS_IGNORE),
          "MPI_Recv");
  }

 private:
  // The rank at a position, or the position of a rank: the mapping is its own inverse.
  [[nodiscard]] int rank_of(int position) const {
    return backwards_ ? size_ - 1 - position : position;
  }
  template <class T>
  static int bytes_of(const std::vector<T>& states) {
    return static_cast<int>(states.size() * sizeof(T));
  }

  MPI_Comm comm_;
  bool backwards_;
  exchange how_;
  int rank_ = 0, size_ = 1;
};

template <class T>
bool all_finite(const std::vector<part_state<T>>& states) {
  for (const auto& x : states)
    if (!simd::all_zero(simd::zero_if_finite(simd::from_wide<simd::lane_t<T, 1>>(x)))) return false;
  return true;
}

/// The states that are known before a part runs.
template <class T>
struct foreseen {
  std::vector<part_state<T>> before;  ///< the states before this part; set if position <= known
  /// Position of the last part for which the states before it follow from the maps. Parts after it
  /// wait for a message.
  int known;
};
/// Folds the maps of all parts but the last, in scan order, and stops if a state is not finite.
template <class T>
foreseen<T> fold_all(const parts& all, const std::vector<part_map<T>>& own) {
  const std::vector<part_map<T>> maps = all.gather(own);
  std::vector<part_state<T>> after(own.size(), simd::constant<part_state<T>>(0));
  foreseen<T> result{after, 0};
  for (int& known = result.known; known + 1 < all.count(); ++known) {
    fold_part<part_state<T>>(
        std::span(maps).subspan(own.size() * static_cast<std::size_t>(known), own.size()), after);
    if (known + 1 == all.position()) result.before = after;
    if (!all_finite<T>(after)) break;
  }
  return result;
}
/// Computes the states before this part from the composed maps of all earlier parts. The map of the
/// first part is a constant, so the state to which the composition is applied does not matter. If a
/// map is not finite, neither is a composition with it, however MPI groups the maps. So each
/// process only has to check the states before its own part.
template <class T>
foreseen<T> compose_all(const parts& all, const std::vector<part_map<T>>& own) {
  foreseen<T> result;
  for (const part_map<T>& map : all.compose_before(own))
    result.before.push_back(map.act(simd::constant<part_state<T>>(0)));
  const bool sound = all.first() || all_finite<T>(result.before);
  result.known = all.least(sound ? all.count() - 1 : all.position() - 1);
  return result;
}

/// Runs every part as soon as the state before it is known.
///
///     map()          the map of this part; called if it is neither first nor last
///     run(states)    runs this part from `states`, and replaces them by the states after it
///
/// If the state after some part is not finite, the map of that part may give another result than
/// the serial loop. The parts after it then run one after the other, each from the states that the
/// previous part sends.
template <class T, class Summarise, class Run>
void run_parts(const parts& all, std::vector<T> states, Summarise map, Run run) {
  std::vector<part_map<T>> own(states.size(), part_map<T>::identity());
  if (all.first()) {
    run(states);
    for (std::size_t i = 0; i < states.size(); ++i)
      own[i] = part_map<T>::constant(widened_state(states[i]));
  } else if (!all.last()) {
    own = map();
  }
  const auto [before, known] =
      all.how() == exchange::gather ? fold_all<T>(all, own) : compose_all<T>(all, own);
  if (!all.first()) {
    if (all.position() <= known)
      for (std::size_t i = 0; i < states.size(); ++i) states[i] = narrowed_state<T>(before[i]);
    else
      all.receive(states);
    run(states);
  }
  if (all.position() >= known) all.send_on(states);
}

// Copies a view's states, ordered by group, batch and channel. Returns zeros if the view is absent.
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
/// A number that identifies the type and the direction, for comparison across processes.
template <class T>
std::int64_t kind_of(direction order) {
  return static_cast<std::int64_t>(sizeof(T)) * 8 + (is_complex<T> ? 4 : 0) +
         (std::is_integral_v<T> ? 2 : 0) + (order == direction::reverse ? 1 : 0);
}
/// Returns the exception that f() throws, or null.
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
