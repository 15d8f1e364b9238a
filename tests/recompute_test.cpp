// SPDX-License-Identifier: BSD-3-Clause
// Tests of states recomputed from checkpoints: they have the bits of stored states, for every block
// that a backend may request.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/detail/recurrence/recompute.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/scan.hpp>

#include "catch.hpp"

/// A backend that runs no steps of the adjoint, but checks the recomputed states that they would
/// read.
namespace looking {

using namespace scanrec;
using detail::block;
using recurrence::lane_axis;

/// The expected states, and the blocks in which the backend requests them.
template <class T>
struct states {
  static constexpr bool recomputes_states = true;
  sequence_view<const T> stored;
  direction order;
  detail::lane_layout layout;
  std::int64_t tile, channels;  // of one block
  std::int64_t* looked_at;
};
template <class T>
std::int64_t workspace_bytes(const states<T>&, const problem&) {
  return 0;
}

template <class T, class R>
void run_recurrence(const states<T>& on, const R& recurrence, const problem& p) {
  using lane = simd::lane_t<typename R::value, 1>;
  using position = recurrence::position<lane_axis::channel>;
  const extents shape = p.shape;
  const detail::recompute_scratch room(p, on.layout, on.channels);
  CHECK(room.states_bytes % 64 == 0);
  CHECK(room.bytes > room.states_bytes);
  CHECK(room.bytes % 64 == 0);
  // Detects writes outside the scratch.
  constexpr std::byte untouched{0x5a};
  std::vector<std::byte> memory(static_cast<std::size_t>(room.bytes + 128), untouched);
  void* first = memory.data();
  std::size_t left = memory.size();
  auto* const own =
      static_cast<std::byte*>(std::align(64, static_cast<std::size_t>(room.bytes), first, left));
  for (std::int64_t g = 0; g < shape.group; ++g)
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      const R row = detail::bound(recurrence, g, b);
      for (std::int64_t c = 0; c < shape.channel; c += on.channels)
        for (std::int64_t t = 0; t < shape.time; t += on.tile) {
          const block where{t, std::min(t + on.tile, shape.time), c,
                            std::min(on.channels, shape.channel - c)};
          std::int64_t next = where.begin;
          const auto run = [&](const auto& forward, const block& part, std::byte* carried) {
            CHECK(carried == own + room.states_bytes);
            using F = std::remove_cvref_t<decltype(forward)>;
            typename F::template sums<lane> none;
            for (std::int64_t k = 0; k < part.channels; ++k) {
              const F here = detail::standing_at(forward, 0, part.channel + k);
              position at{part.begin, part.channel + k, part.begin};
              for (lane x = forward.template begin<lane>(at); at.time < part.end;
                   ++at.time, ++at.row)
                x = detail::take_step(here, at, here.template load<lane>(at), x, none);
            }
          };
          detail::with_states(row, where, room, own, run, [&](const auto& r, const block& part) {
            CHECK(part.begin == next);
            CHECK(part.end > part.begin);
            CHECK((part.channel == where.channel && part.channels == where.channels));
            CHECK(part.begin / memory::checkpoint_interval ==
                  (part.end - 1) / memory::checkpoint_interval);
            next = part.end;
            const auto& s = r.state.strides;
            CHECK(on.layout.stride_of(s) == on.layout.unit());
            // A step reads the state of the next row. The last row has no next one.
            for (std::int64_t i = part.begin + 1; i <= part.end && i < shape.time; ++i)
              for (std::int64_t k = part.channel; k < part.channel + part.channels; ++k) {
                const std::int64_t time = on.order == direction::forward ? shape.time - 1 - i : i;
                const T& expected =
                    on.stored.data[detail::offset_of({b, time, k, g}, on.stored.strides)];
                const T found = r.state.data[i * s.time + k * s.channel];
                REQUIRE(std::memcmp(&found, &expected, sizeof(T)) == 0);
                ++*on.looked_at;
              }
          });
          CHECK(next == where.end);
        }
    }
  const auto clean = [&](const std::byte* begin, const std::byte* end) {
    return std::all_of(begin, end, [&](std::byte x) { return x == untouched; });
  };
  CHECK(clean(memory.data(), own));
  CHECK(clean(own + room.bytes, memory.data() + memory.size()));
}

}  // namespace looking

namespace {

using namespace scanrec;
using cell = fo_pooling<>;

template <class T>
void check(const extents& shape, direction order, bool resets, bool starts) {
  INFO(shape.time << " steps, resets " << resets << ", starts " << starts << ", order "
                  << static_cast<int>(order));
  const auto n = static_cast<std::size_t>(detail::element_count(shape));
  const extents few = memory::checkpoint_extents(shape);
  const auto room = static_cast<std::size_t>(detail::element_count(few));
  std::vector<T> pre(3 * n), states(n), output(n), grad(n), gradient(n);
  std::vector<float> checkpoints(room + 1),
      initial(static_cast<std::size_t>(shape.batch * shape.channel * shape.group), 0.375F);
  std::uint32_t random = 1;
  for (T& x : pre) {
    random = random * 1664525U + 1013904223U;
    x = static_cast<T>(static_cast<float>(random >> 8U) * 0x1p-22F - 2);
  }
  const auto reset_mask = std::make_unique<bool[]>(n);
  for (std::size_t i = 0; i < n; ++i) reset_mask[i] = i * i % 41 == 3;
  const cell::arrays<sequence_view<const T>> arrays{
      {pre.data(), shape}, {pre.data() + n, shape}, {pre.data() + 2 * n, shape}};
  const sequence_view<const bool> with_resets =
      resets ? sequence_view<const bool>(reset_mask.get(), shape) : sequence_view<const bool>();
  const state_view<const float> first =
      starts ? state_view<const float>(initial.data(), shape) : state_view<const float>();
  const gated_options<float> options{.order = order, .initial_state = first, .resets = with_resets};
  const sequence_view<float> kept(checkpoints.data(), few);
  gated_scan(sequential{}, cell{}, arrays, sequence_view<T>(output.data(), shape),
             memory::store{sequence_view<T>(states.data(), shape)}, options);
  gated_scan(sequential{}, cell{}, arrays, sequence_view<T>(output.data(), shape),
             memory::recompute{kept}, options);
  using recurrence::lane_axis;
  const bool descending = order == direction::forward;
  for (const detail::lane_layout& layout :
       {detail::lane_layout{.along = lane_axis::channel, .whole = true},
        detail::lane_layout{.along = lane_axis::time, .reversed = descending, .whole = true}})
    for (const std::int64_t tile : {std::int64_t{1}, std::int64_t{7}, std::int64_t{100},
                                    std::int64_t{128}, std::int64_t{129}, std::int64_t{1000}})
      for (const std::int64_t channels : {1, 2, 5}) {
        if (tile == 1 && (channels != 2 || shape.time > 130)) continue;
        INFO("lanes " << static_cast<int>(layout.along) << ", tiles of " << tile << " x "
                      << channels);
        std::int64_t looked_at = 0;
        const looking::states<T> on{sequence_view<const T>(states.data(), shape),
                                    order,
                                    layout,
                                    tile,
                                    channels,
                                    &looked_at};
        gated_scan_vjp(on, cell{}, arrays, memory::recompute{kept},
                       sequence_view<const T>(grad.data(), shape),
                       {.arrays = {sequence_view<T>(gradient.data(), shape), {}, {}}},
                       {.order = order, .initial_state = first, .resets = with_resets});
        CHECK(looked_at == shape.group * shape.batch * shape.channel *
                               std::max<std::int64_t>(0, shape.time - 1));
      }
}

}  // namespace

TEST_CASE("recomputed states have the bits of stored states", "[recompute]") {
  for (const std::int64_t steps : {1, 2, 3, 127, 128, 129, 130, 255, 256, 257, 300})
    for (const direction order : {direction::forward, direction::reverse})
      for (const bool resets : {false, true}) {
        check<float>({2, steps, 3, 2}, order, resets, !resets);
        check<bfloat16>({2, steps, 3, 1}, order, resets, resets);
      }
}

TEST_CASE("the scratch of a checkpoint interval holds its steps and two more rows", "[recompute]") {
  CHECK(detail::interval_rows(1) == 3);
  CHECK(detail::interval_rows(127) == 129);
  CHECK(detail::interval_rows(128) == 130);
  CHECK(detail::interval_rows(1000) == 130);
  problem p;
  p.shape = {1, 300, 20, 1};
  CHECK(detail::recompute_scratch(p, {}, 20).bytes == 0);  // nothing is recomputed
  p.recomputed_bytes = 2;
  p.compute_bytes = 4;
  const detail::recompute_scratch rows(p, {}, 20);
  CHECK((rows.row == 32 && rows.column == 1));
  CHECK(rows.states_bytes == 130 * 32 * 2);
  CHECK(rows.bytes == rows.states_bytes + 32 * 4);
  const detail::recompute_scratch columns(p, {recurrence::lane_axis::time, true, true}, 20);
  CHECK((columns.row == -1 && columns.column == 144));
  CHECK(columns.states_bytes == 144 * 20 * 2);
}

TEST_CASE("a recurrence with stored states gets its whole block in one call", "[recompute]") {
  const recurrence::forward<float, float, float> r;
  using R = std::remove_const_t<decltype(r)>;
  static_assert(!detail::recomputes<R> && detail::recomputed_bytes_of<R>() == 0);
  int calls = 0;
  detail::with_states(
      r, {3, 700, 1, 2}, {}, nullptr, [](auto&&...) { FAIL("nothing is recomputed"); },
      [&](const R& here, const detail::block& part) {
        CHECK(&here == &r);
        CHECK((part.begin == 3 && part.end == 700 && part.channel == 1 && part.channels == 2));
        ++calls;
      });
  CHECK(calls == 1);
}
