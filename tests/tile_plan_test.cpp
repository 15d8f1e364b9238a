// SPDX-License-Identifier: BSD-3-Clause
// Tests of the plan of the tiled backend, on random problems of sizes that are too large to run.
// Work items and tiles cover every element once, sums count every term once, scratch has its stated
// size, and no arithmetic wraps or divides by zero (this file is compiled to trap if it does).
// scanrec/detail/cpu/tile_plan.hpp defines work items, strips and tiles.
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/linear_scan.hpp>
#include <scanrec/scan.hpp>
#include <scanrec/variants.hpp>

#include "catch.hpp"

namespace {

using namespace scanrec;
using detail::all_axes;
using detail::along;
using detail::axis;
using detail::offset_of;
using detail::region;

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

/// Random problems. Their arrays have distant addresses and are never dereferenced.
class problems {
 public:
  explicit problems(unsigned seed) : bits_(seed) {}

  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(bits_() % static_cast<std::uint64_t>(n));
  }
  template <class... N>
  std::int64_t one_of(N... n) {
    const std::int64_t list[]{static_cast<std::int64_t>(n)...};
    return list[below(sizeof...(n))];
  }
  bool maybe(int of = 2) { return below(of) == 0; }

  /// The next problem, or nullopt if its arguments are rejected.
  std::optional<problem> next() {
    arrays_ = 0;
    shape_ = {extent(), extent(), extent(), maybe(3) ? extent() : 1};
    like_ = permutation();
    try {
      switch (below(9)) {
        case 0:
          return forward<float>();
        case 1:
          return forward<std::complex<double>>();
        case 2:
          return backward<float, float>();
        case 3:
          return backward<double, double>();
        case 4:
          return backward<bfloat16, bfloat16>();
        case 5:
          return backward<mat<float, 3>, vec<float, 3>>();
        case 6:
          return gated<float>();
        case 7:
          return gated<bfloat16>();
        default:
          return prefixes();
      }
    } catch (const argument_error&) {
      return std::nullopt;
    }
  }

  /// The problem of an operator scan of elements of E. resized() sets another element size.
  template <class E>
  problem prefixes_of(const extents& shape) {
    arrays_ = 0, shape_ = shape;
    const auto first = [](const E& earlier, const E&) { return earlier; };
    problem p;
    detail::make_operator_scan("scan", false, first, dense<const E>(), dense<E>(), {},
                               [&](const auto&, const problem& made) { p = made; });
    return p;
  }
  static problem resized(problem p, std::int64_t bytes, std::int64_t alignment) {
    for (array_use& array : p) array.element_bytes = bytes;
    p.compute_bytes = p.map_bytes = p.step_bytes = p.carry_bytes = p.carry_map_bytes = bytes;
    p.carried_bytes = bytes;
    p.alignment = std::max<std::int64_t>(64, alignment);
    detail::check_arguments(p, std::array<detail::in_place_pair, 0>{});
    return p;
  }

 private:
  using order = std::array<int, 4>;

  std::int64_t extent() {
    switch (below(8)) {
      case 0:
        return one_of(0, 1);
      case 1:
        return 1;
      case 2:
      case 3:
        return 1 + below(6);
      case 4:
      case 5:
        return 1 + below(300);
      case 6:
        return 1 + below(std::int64_t{1} << below(15));
      default:
        return std::max<std::int64_t>(0, (std::int64_t{1} << below(41)) + below(3) - 1);
    }
  }
  order permutation() {
    order p{0, 1, 2, 3};
    if (maybe()) return {3, 2, 1, 0};  // channels last
    std::shuffle(p.begin(), p.end(), bits_);
    return p;
  }
  // Most arrays of a problem have the same axis order, `like_`. Some have negative strides or gaps.
  scanrec::strides strides(const extents& shape, int broadcasts) {
    const order own = maybe(6) ? permutation() : like_;
    const bool gaps = maybe(5), turned = maybe(6);
    std::int64_t size = 1;
    scanrec::strides s;
    for (const int i : own) {
      const axis a = all_axes[i];
      along(s, a) = broadcasts > 0 && maybe(broadcasts) ? 0 : turned && maybe() ? -size : size;
      if (along(s, a) != 0)
        size = std::min(huge / 4, detail::clipped_product(size, along(shape, a) + gaps));
    }
    return s;
  }
  template <class T>
  T* somewhere() {
    return reinterpret_cast<T*>(static_cast<std::uintptr_t>(++arrays_) << 55);
  }
  template <class T>
  sequence_view<T> dense() {
    return {somewhere<T>(), shape_, strides(shape_, 0)};
  }
  /// An input or a gradient, which may broadcast.
  template <class T>
  sequence_view<T> any(int broadcasts) {
    return {somewhere<T>(), shape_, strides(shape_, broadcasts)};
  }
  template <class T>
  state_view<T> edge(int broadcasts) {
    extents shape = shape_;
    shape.time = 1;
    return {somewhere<T>(), shape, strides(shape, broadcasts)};
  }
  sequence_view<const bool> resets() {
    extents shape = shape_;
    if (maybe()) shape.channel = 1;
    return {somewhere<const bool>(), shape, strides(shape, 4)};
  }
  direction way() { return maybe() ? direction::forward : direction::reverse; }

  template <class T>
  problem forward() {
    using C = compute_t<T>;
    scan_options<C> options{.order = way()};
    if (maybe()) options.initial_state = edge<const C>(4);
    if (maybe()) options.final_state = edge<C>(0);
    if (maybe(3)) options.resets = resets();
    return linear_scan_problem(any<const T>(4), any<const T>(8), dense<T>(), options);
  }
  template <class Gate, class State>
  problem backward() {
    using C = compute_t<State>;
    vjp_options<C> options{.order = way()};
    if (maybe()) options.initial_state = edge<const C>(4);
    if (maybe()) options.final_grad = edge<const C>(4);
    if (maybe(3)) options.resets = resets();
    const int often = static_cast<int>(one_of(2, 4, 0));
    scan_gradients<Gate, State> gradients;
    if (maybe()) gradients.gate_grad = any<Gate>(often);
    if (maybe()) gradients.input_grad = any<State>(often);
    if (maybe()) gradients.initial_grad = edge<C>(often);
    return linear_scan_vjp_problem(any<const Gate>(4), any<const State>(8), any<const State>(8),
                                   gradients, options);
  }
  template <class T>
  problem gated() {
    using cell = fo_pooling<>;
    gated_vjp_options<float> options{.order = way()};
    const int often = static_cast<int>(one_of(2, 4, 0));
    gated_gradients<cell, T> gradients;
    gradients.arrays = {any<T>(often), any<T>(often), any<T>(often)};
    const cell::arrays<sequence_view<T>> pre{any<T>(8), any<T>(8), any<T>(8)};
    if (maybe())
      return gated_scan_vjp_problem(cell{}, pre, memory::store{any<T>(8)}, any<T>(8), gradients,
                                    options);
    const extents kept = memory::checkpoint_extents(shape_);
    const sequence_view<float> checkpoints(somewhere<float>(), kept, strides(kept, 0));
    return gated_scan_vjp_problem(cell{}, pre, memory::recompute{checkpoints}, any<T>(8), gradients,
                                  options);
  }
  problem prefixes() {
    const std::int64_t bytes = maybe() ? 1 + below(8192) : one_of(1, 2048, 2049, 3200, 8192);
    return resized(prefixes_of<char>(shape_), bytes, bytes & -bytes);
  }

  std::mt19937_64 bits_;
  int arrays_ = 0;
  extents shape_{0, 0, 0, 0};
  order like_{3, 2, 1, 0};  // channels last
};

struct output {
  array_use array;
  sum_plan sum;
};
std::vector<output> outputs_of(const problem& p, const tile_plan& plan) {
  std::vector<output> list;
  for (const array_use& array : p)
    if (array.use != access::read) list.push_back({array, plan.sums[list.size()]});
  return list;
}

// ---- cover ------------------------------------------------------------------------------------

/// Work items form a grid: along each axis an item begins at the end of the previous one.
void check_cover(const tile_plan& plan, problems& random) {
  const extents& shape = plan.shape;
  CHECK(plan.strip >= 1);
  CHECK(plan.strips == detail::ceil_div(shape.channel, plan.strip));
  const extents spans{plan.batch_span, 1, plan.strip, plan.group_span};
  extents count{0, 1, 0, 0};
  std::int64_t items = 1;
  for (const axis a : {axis::group, axis::batch, axis::channel}) {
    REQUIRE(along(spans, a) >= 1);
    CHECK(along(spans, a) <= std::max<std::int64_t>(1, along(shape, a)));
    along(count, a) = along(shape, a) == 0 ? 0 : (along(shape, a) - 1) / (along(spans, a)) + 1;
    items *= along(count, a);
  }
  REQUIRE(plan.items == items);
  // Checks all items, or a sample if there are many.
  std::set<std::array<std::int64_t, 3>> seen;
  const bool all = items <= 300;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(items, 300); ++i) {
    const region box = detail::item_box(plan, all ? i : random.below(items));
    bool right = box.begin.time == 0 && box.end.time == shape.time;
    for (const axis a : {axis::group, axis::batch, axis::channel})
      right = right && along(box.begin, a) >= 0 && along(box.begin, a) % (along(spans, a)) == 0 &&
              along(box.begin, a) < along(shape, a) &&
              along(box.end, a) == std::min(along(box.begin, a) + along(spans, a), along(shape, a));
    CHECK(right);
    seen.insert({box.begin.group, box.begin.batch, box.begin.channel});
  }
  if (all) CHECK(static_cast<std::int64_t>(seen.size()) == items);
  // Consecutive work items are disjoint.
  if (items > 1) {
    const std::int64_t i = random.below(items - 1);
    const region box = detail::item_box(plan, i), next = detail::item_box(plan, i + 1);
    CHECK((box.begin.group != next.begin.group || box.begin.batch != next.begin.batch ||
           box.begin.channel != next.begin.channel));
  }

  REQUIRE(plan.tile_steps >= 1);
  CHECK(plan.tiles == std::max<std::int64_t>(
                          1, shape.time / plan.tile_steps + (shape.time % plan.tile_steps != 0)));
  // States are recomputed from a checkpoint on. Another tile may already have overwritten its own
  // inputs with gradients, so every tile must begin at a checkpoint.
  if (plan.recomputed.bytes > 0 && plan.tiles > 1)
    CHECK(plan.tile_steps % memory::checkpoint_interval == 0);
  CHECK(plan.tasks == (plan.items_whole ? plan.items : plan.items * plan.tiles));
  // A work item that passes from worker to worker has a single row, or processes a tile in all its
  // rows before the next tile.
  if (!plan.items_whole) CHECK(plan.hands_on);
  if (plan.hands_on) CHECK((plan.rows_together || (plan.batch_span == 1 && plan.group_span == 1)));
  if (plan.time_split) CHECK(plan.hands_on);
  // Tasks that workers claim in blocks do not wait for other tasks, and their sums need no order.
  if (plan.in_blocks) {
    CHECK(plan.threads > 1);
    CHECK(plan.items_whole);
    for (const sum_plan& sum : plan.sums) CHECK((!sum.active || sum.complete));
  }
}

// ---- sums -------------------------------------------------------------------------------------

/// Runs the steps of a small problem as the backend does, and counts the terms of every sum.
class counted_sums {
 public:
  counted_sums(const problem& p, const tile_plan& plan) : plan_(plan) {
    for (output& o : outputs_of(p, plan))
      if (o.sum.active) sums_.push_back({std::move(o), {}, {}, {}});
  }
  void check() {
    if (sums_.empty()) return;
    const std::int64_t T = plan_.shape.time;
    for (std::int64_t tile = 0; tile < (plan_.hands_on ? plan_.tiles : 1); ++tile)
      for (std::int64_t item = 0; item < plan_.items; ++item) {
        region box = detail::item_box(plan_, item);
        if (plan_.hands_on) {
          box.begin.time = tile * plan_.tile_steps;
          box.end.time = std::min(T, box.begin.time + plan_.tile_steps);
          clear([](const sum& s) { return s.plan.time_kept; });
          if (item_sums_.size() <= static_cast<std::size_t>(item))
            item_sums_.push_back(std::vector<accumulators>(sums_.size()));
          for (std::size_t i = 0; i < sums_.size(); ++i)
            if (!sums_[i].plan.time_kept) sums_[i].own.swap(item_sums_[item][i]);
          for_rows(box, [&](const region& row) { steps(box, row, box.end.time == T); });
          finish(scope::tile, box);
          if (box.end.time == T) finish(scope::row, box), finish(scope::item, box);
          for (std::size_t i = 0; i < sums_.size(); ++i)
            if (!sums_[i].plan.time_kept) sums_[i].own.swap(item_sums_[item][i]);
        } else if (plan_.rows_together) {
          clear([](const sum&) { return true; });
          run_item(box), finish(scope::item, box);
        } else {
          clear([](const sum& s) { return scope_of(s) == scope::item; });
          for_rows(box, [&](const region& row) {
            clear([](const sum& s) { return scope_of(s) != scope::item; });
            run_item(row);
          });
          finish(scope::item, box);
        }
      }
    const region whole{{0, 0, 0, 0}, plan_.shape};
    for (sum& s : sums_) {
      if (!s.plan.complete) hand_out(s, whole, s.totals, s.plan.total_strides, whole);
      std::int64_t terms = 1;
      for (const axis a : all_axes)
        if (along(s.array.strides, a) == 0)
          terms *= s.array.sequence || a != axis::time ? along(plan_.shape, a) : 1;
      bool right = true;
      detail::for_kept(s.array.strides, whole, [&](const extents& at) {
        const auto found = s.written.find(offset_of(at, s.array.strides));
        right = right && found != s.written.end() && found->second == terms;
      });
      CHECK(right);
    }
    CHECK(!collided_);
    CHECK(!out_of_bounds_);
    CHECK(!twice_);
  }

 private:
  enum class scope { tile, row, item };
  struct term_count {
    std::int64_t of = 0, terms = 0;  // `of`: the element of the gradient
  };
  using accumulators = std::map<std::int64_t, term_count>;
  struct sum {
    array_use array;
    sum_plan plan;
    accumulators own, totals;
    std::map<std::int64_t, std::int64_t> written;
    sum(output o, accumulators first, accumulators all, std::map<std::int64_t, std::int64_t> out)
        : array(o.array),
          plan(o.sum),
          own(std::move(first)),
          totals(std::move(all)),
          written(std::move(out)) {}
  };
  static scope scope_of(const sum& s) {
    return s.plan.time_kept ? scope::tile : s.plan.row_scope ? scope::row : scope::item;
  }

  template <class Which>
  void clear(Which which) {
    for (sum& s : sums_)
      if (which(s)) s.own.clear();
  }
  template <class F>
  void for_rows(const region& box, F f) {
    for (std::int64_t g = box.begin.group; g < box.end.group; ++g)
      for (std::int64_t b = box.begin.batch; b < box.end.batch; ++b) {
        region row = box;
        row.begin.group = g, row.end.group = g + 1;
        row.begin.batch = b, row.end.batch = b + 1;
        f(row);
      }
  }
  void run_item(const region& box) {
    const std::int64_t T = plan_.shape.time;
    for (std::int64_t t = 0; t < T; t += plan_.tile_steps) {
      region tile = box;
      tile.begin.time = t, tile.end.time = std::min(T, t + plan_.tile_steps);
      clear([](const sum& s) { return s.plan.time_kept; });
      for_rows(tile, [&](const region& row) { steps(tile, row, tile.end.time == T); });
      finish(scope::tile, tile);
    }
    if (T == 0) for_rows(box, [&](const region& row) { steps(box, row, true); });
    finish(scope::row, box);
  }
  void steps(const region& box, const region& row, bool last) {
    for (sum& s : sums_)
      for (std::int64_t c = row.begin.channel; c < row.end.channel; ++c) {
        extents at = row.begin;
        at.channel = c;
        if (!s.array.sequence && last) add(s, at, box);
        if (s.array.sequence)
          for (; at.time < row.end.time; ++at.time) add(s, at, box);
      }
  }
  void add(sum& s, const extents& at, const region& box) {
    extents from = box.begin;
    if (!s.array.sequence) from.time = at.time;
    put(s.own, offset_of(detail::difference(at, from), s.plan.strides), s.plan.elements,
        offset_of(at, s.array.strides), 1);
  }
  void put(accumulators& into, std::int64_t position, std::int64_t positions, std::int64_t of,
           std::int64_t terms) {
    out_of_bounds_ = out_of_bounds_ || position < 0 || position >= positions;
    term_count& one = into.try_emplace(position, term_count{of, 0}).first->second;
    collided_ = collided_ || one.of != of;
    one.terms += terms;
  }
  void finish(scope ending, const region& box) {
    for (sum& s : sums_) {
      if (scope_of(s) != ending) continue;
      if (s.plan.complete)
        hand_out(s, box, s.own, s.plan.strides, box);
      else
        detail::for_kept(s.array.strides, box, [&](const extents& at) {
          const auto own = s.own.find(offset_of(detail::difference(at, box.begin), s.plan.strides));
          put(s.totals, offset_of(at, s.plan.total_strides), s.plan.total_elements,
              offset_of(at, s.array.strides), own == s.own.end() ? 0 : own->second.terms);
        });
    }
  }
  void hand_out(sum& s, const region& box, const accumulators& from,
                const scanrec::strides& strides, const region& relative_to) {
    detail::for_kept(s.array.strides, box, [&](const extents& at) {
      const auto found = from.find(offset_of(detail::difference(at, relative_to.begin), strides));
      const bool first = s.written
                             .emplace(offset_of(at, s.array.strides),
                                      found == from.end() ? 0 : found->second.terms)
                             .second;
      twice_ = twice_ || !first;
    });
  }

  const tile_plan& plan_;
  std::vector<sum> sums_;
  std::vector<std::vector<accumulators>> item_sums_;  // sums of work items that are passed on
  bool collided_ = false, out_of_bounds_ = false, twice_ = false;
};

/// Checks the invariants of sums that hold for problems of any size.
void check_sums(const problem& p, const tile_plan& plan) {
  for (const output& o : outputs_of(p, plan)) {
    REQUIRE(o.sum.active == detail::summed(o.array));
    if (!o.sum.active || plan.items == 0) continue;
    const auto summed = [&](axis a) { return detail::broadcast_along(o.array, a); };
    // Whether no other work item contributes to the same sums.
    const bool alone = (!summed(axis::channel) || plan.strips == 1) &&
                       (!summed(axis::batch) || plan.batch_span == plan.shape.batch) &&
                       (!summed(axis::group) || plan.group_span == plan.shape.group);
    CHECK((!o.sum.complete || alone));
    // Sums that keep the time axis are complete at the end of every tile.
    CHECK((!o.sum.time_kept || o.sum.complete));
    CHECK((!o.sum.time_kept || plan.rows_together));
    // Rows that are processed one after the other share accumulators, unless each row has its own.
    // Shared accumulators add over every row axis along which the item has several rows.
    if (!plan.rows_together && !o.sum.row_scope) {
      CHECK((summed(axis::batch) || plan.batch_span == 1));
      CHECK((summed(axis::group) || plan.group_span == 1));
    }
    CHECK(o.sum.wide_bytes > 0);
    CHECK(o.sum.elements >= 1);
    // Offsets are distinct, and the last one is within the memory.
    const auto check_offsets = [&](const scanrec::strides& strides, const extents& size,
                                   std::int64_t elements) {
      std::vector<std::pair<std::int64_t, std::int64_t>> axes;
      for (const axis a : all_axes) {
        if (along(size, a) <= 1 || summed(a)) continue;
        CHECK(along(strides, a) > 0);
        axes.emplace_back(along(strides, a), along(size, a));
      }
      std::sort(axes.begin(), axes.end());
      std::int64_t reach = 0;
      for (const auto& [stride, n] : axes) {
        CHECK(stride > reach);
        reach += stride * (n - 1);
      }
      CHECK(reach < elements);
    };
    const bool rows = plan.rows_together;
    check_offsets(o.sum.strides,
                  {rows ? plan.batch_span : 1, o.sum.time_kept ? plan.tile_steps : 1, plan.strip,
                   rows ? plan.group_span : 1},
                  o.sum.elements);
    if (!o.sum.complete) {
      extents all = plan.shape;
      all.time = 1;
      check_offsets(o.sum.total_strides, all, o.sum.total_elements);
    }
  }
}

// ---- workspace --------------------------------------------------------------------------------

void check_workspace(const problem& p, const tile_plan& plan) {
  const detail::scratch_layout& s = plan.scratch;
  CHECK(plan.workspace_bytes == s.bytes);
  CHECK(plan.alignment == p.alignment);
  CHECK(plan.threads >= 1);
  CHECK(plan.threads <= detail::most_threads);
  for (const std::int64_t position : {s.reductions, s.sums[0], s.recomputed, s.worker, s.carries,
                                      s.ready, s.blocks, s.totals[0], s.bytes}) {
    CHECK(position >= 0);
    CHECK(position % plan.alignment == 0);
  }
  if (s.bytes >= detail::most_bytes) return;  // too large to allocate
  const std::int64_t lanes = plan.lanes.along == recurrence::lane_axis::time ? 1 : p.pack_lanes;
  CHECK(plan.slots_per_row * lanes >= plan.strip);
  const std::int64_t slots =
      plan.slots_per_row * (plan.rows_together ? plan.batch_span * plan.group_span : 1);
  CHECK(slots * plan.slot_bytes <= s.reductions);
  if (plan.time_split) CHECK(slots * plan.reduction_bytes <= s.sums[0] - s.reductions);
  if (plan.hands_on) {
    CHECK(plan.open_items() == (plan.items_whole ? plan.threads : plan.items));
    CHECK(plan.open_items() * slots * plan.carry_bytes <= s.ready - s.carries);
    CHECK(plan.open_items() * 16 <= s.item_sums[0] - s.ready);
  }
  if (plan.in_blocks) CHECK(plan.threads * 8 <= s.totals[0] - s.blocks);
  bool any = false;
  for (int i = 0; i < most_outputs; ++i) {
    const sum_plan& sum = plan.sums[i];
    any = any || sum.active;
    const bool last = i + 1 == most_outputs;
    CHECK(sum.elements * sum.wide_bytes <= (last ? s.recomputed : s.sums[i + 1]) - s.sums[i]);
    CHECK(sum.total_elements * sum.wide_bytes <= (last ? s.bytes : s.totals[i + 1]) - s.totals[i]);
    if (plan.hands_on && !sum.time_kept)
      CHECK(plan.open_items() * sum.elements * sum.wide_bytes <=
            (last ? s.blocks : s.item_sums[i + 1]) - s.item_sums[i]);
  }
  CHECK(plan.recomputed.bytes <= s.worker - s.recomputed);
  CHECK(s.worker * plan.threads <= s.carries);
  // No two workers write to the same page.
  if (plan.threads > 1) CHECK(s.worker - s.recomputed - plan.recomputed.bytes >= 4096);
  if (any) return;
  // Without sums, the bound that workspace_bytes() documents holds, unless the caller requested
  // short tiles.
  if (plan.hands_on && plan.tile_steps < tile_policy::least_tile_steps / 2) return;
  constexpr std::int64_t constant = 512 * 1024;
  std::int64_t array = huge;
  for (const array_use& a : p)
    if (a.data && a.sequence && a.type != &detail::type_tag<bool>)
      array = std::min(array, a.element_bytes);
  array *= detail::element_count(p.shape);
  CHECK(s.bytes <= array / 256 + plan.threads * constant);
}

}  // namespace

TEST_CASE("plans of random problems satisfy all invariants", "[tile_plan]") {
  problems random(1);
  int planned = 0, refused = 0, split = 0, summed = 0, counted = 0, together = 0, large = 0;
  for (int trial = 0; trial < 12000; ++trial) {
    const std::optional<problem> made = random.next();
    if (!made) {
      ++refused;
      continue;
    }
    const problem& p = *made;
    const auto threads = static_cast<int>(random.maybe() ? 0 : random.below(300));
    std::int64_t tile_steps = 0;
    if (random.maybe())
      tile_steps = random.maybe(8) ? huge : 1 + random.below(std::int64_t{1} << random.below(42));
    const std::int64_t stream_bytes = random.one_of(0, 1, huge);
    INFO(trial << " " << p.call << " " << to_string(p.shape) << " elements of " << p.compute_bytes
               << " threads " << threads << " tile " << tile_steps);
    const tile_plan plan = detail::make_tile_plan(p, threads, tile_steps, stream_bytes);
    CHECK(plan.shape == p.shape);
    check_cover(plan, random);
    check_sums(p, plan);
    check_workspace(p, plan);
    std::int64_t positions = 1;  // a sum may run over an empty axis
    for (const axis a : all_axes) positions *= std::max<std::int64_t>(1, along(p.shape, a));
    if (positions <= 4000) {
      counted_sums(p, plan).check();
      ++counted;
    }
    ++planned, split += plan.time_split, large += positions > (std::int64_t{1} << 40);
    together += plan.rows_together;
    for (const sum_plan& sum : plan.sums) summed += sum.active;
    // The other CPU backends plan from the same problem without overflow.
    CHECK(workspace_bytes(sequential{}, p) >= 0);
    CHECK(workspace_bytes(hillis_steele{.threads = threads}, p) >= 0);
    CHECK(workspace_bytes(blelloch{.threads = threads}, p) >= 0);
  }
  CHECK(planned > 6000);
  CHECK(refused > 300);
  CHECK(split > 400);
  CHECK(summed > 2000);
  CHECK(together > 200);
  CHECK(counted > 1000);
  CHECK(large > 300);
}

TEST_CASE("a plan depends only on the size and alignment of elements", "[tile_plan]") {
  struct alignas(256) apart {
    char bytes[768];
  };
  struct matrix {
    double at[20][20];
  };
  const auto check = []<class E>(std::type_identity<E>) {
    for (const extents& shape : {extents{.time = 5000}, extents{3, 100, 70}, extents{64, 2, 1}}) {
      const problem p = problems(2).prefixes_of<E>(shape);
      const problem q =
          problems::resized(problems(2).prefixes_of<char>(shape), sizeof(E), alignof(E));
      CHECK(p.compute_bytes == q.compute_bytes);
      CHECK(p.map_bytes == q.map_bytes);
      CHECK(p.alignment == q.alignment);
      const tile_plan x = describe(tiled{.threads = 3}, p), y = describe(tiled{.threads = 3}, q);
      CHECK(to_string(x) == to_string(y));
      CHECK(x.workspace_bytes == y.workspace_bytes);
    }
  };
  check(std::type_identity<char>{});
  check(std::type_identity<std::array<char, 2049>>{});
  check(std::type_identity<apart>{});
  check(std::type_identity<matrix>{});
}

// ---- the decisions one by one -------------------------------------------------------------------

namespace {

/// Arrays of floats. Only their layout matters.
sequence_view<float> somewhere(const extents& shape, const scanrec::strides& of) {
  return {reinterpret_cast<float*>(std::uintptr_t{1} << 40), shape, of};
}
sequence_view<float> elsewhere(const extents& shape, const scanrec::strides& of) {
  return {reinterpret_cast<float*>(std::uintptr_t{1} << 50), shape, of};
}
problem forward_of(const extents& shape, const scanrec::strides& of) {
  return linear_scan_problem(somewhere(shape, of), somewhere(shape, of), elsewhere(shape, of));
}
/// The adjoint of a scan. The gate and its gradient have the strides `gate`; the gradient is a sum
/// along axes of stride 0.
problem adjoint_of(const extents& shape, const scanrec::strides& gate) {
  const scanrec::strides dense = channels_last(shape);
  return linear_scan_vjp_problem(somewhere(shape, gate), somewhere(shape, dense),
                                 somewhere(shape, dense), {.gate_grad = elsewhere(shape, gate)});
}
/// The decisions of make_tile_plan, in the same order.
struct decisions {
  explicit decisions(const problem& p, std::int64_t asked = 0)
      : layout(detail::choose_layout(p)),
        lanes(detail::pack_bytes(p, layout).lanes),
        moved(detail::traffic_of(p)),
        sums(detail::demands_of(p)),
        strips(detail::choose_strips(p, layout, lanes, moved, sums)),
        time(detail::choose_tiles(p, layout, lanes, moved, sums, strips, asked)) {}
  detail::lane_layout layout;
  std::int64_t lanes;
  detail::traffic moved;
  detail::demands_of_sums sums;
  detail::strip_choice strips;
  detail::time_choice time;
};

}  // namespace

TEST_CASE("lanes run along the axis with most contiguous bytes", "[tile_plan]") {
  const extents shape{.batch = 2, .time = 1000, .channel = 32};
  using recurrence::lane_axis;
  CHECK(decisions(forward_of(shape, channels_last(shape))).layout.along == lane_axis::channel);
  CHECK(decisions(forward_of(shape, time_contiguous(shape))).layout.along == lane_axis::time);
  const extents one{.time = 1000};
  CHECK(decisions(forward_of(one, channels_last(one))).layout.along == lane_axis::time);
  const extents short_one{.time = 3};  // fewer steps than a pack
  CHECK(decisions(forward_of(short_one, channels_last(short_one))).layout.along ==
        lane_axis::channel);
}

TEST_CASE("sums decide which rows are processed together", "[tile_plan]") {
  const extents shape{.batch = 4, .time = 100, .channel = 32, .group = 2};
  const scanrec::strides dense = channels_last(shape);
  const auto of = [&](bool batch, bool time, bool channel, bool group) {
    return detail::demands_of(adjoint_of(shape, {.batch = batch ? dense.batch : 0,
                                                 .time = time ? dense.time : 0,
                                                 .channel = channel ? dense.channel : 0,
                                                 .group = group ? dense.group : 0}));
  };
  const auto none = of(true, true, true, true);
  CHECK((!none.time_kept && !none.crosses_rows && none.batch_can_span && none.group_can_span));
  const auto over_time = of(true, false, true, true);
  CHECK((!over_time.time_kept && !over_time.crosses_rows));
  const auto over_batch = of(false, true, true, true);
  CHECK((over_batch.time_kept && over_batch.batch_together && !over_batch.group_together));
  CHECK((over_batch.crosses_rows && !over_batch.group_can_span && !over_batch.channel_whole));
  const auto over_all_but_time = of(false, true, false, false);
  CHECK((over_all_but_time.batch_together && over_all_but_time.group_together));
  CHECK(over_all_but_time.channel_whole);
}

TEST_CASE("strips are as wide as the limit on their state allows and are counted in packs",
          "[tile_plan]") {
  const auto strips = [](const extents& shape, bool along_time = false) {
    return decisions(forward_of(shape, along_time ? time_contiguous(shape) : channels_last(shape)))
        .strips;
  };
  const std::int64_t widest = tile_policy::strip_bytes / 4;
  CHECK(strips({.batch = 64, .time = 1000, .channel = 16 * widest}).widest == widest);
  CHECK(strips({.batch = 64, .time = 1000, .channel = widest + 16}).widest == widest / 2 + 16);
  CHECK(strips({.batch = 1, .time = 1000, .channel = 300}).widest == 300);
  CHECK(strips({.batch = 3, .time = 1000, .channel = 1000}).most == 3 * 63);  // packs of 16 lanes
  CHECK(strips({.batch = 3, .time = 1000, .channel = 1000}, true).most == 3 * 1000);
  CHECK(strips({.batch = 3, .time = 1024, .channel = 1000}, true).widest == 8);
  CHECK(strips({.batch = 3, .time = 1 << 20, .channel = 1000}, true).widest == 1);
}

TEST_CASE("tasks get narrower or become tiles until all threads are busy", "[tile_plan]") {
  const auto check = [](const detail::width_costs& of, int threads, std::int64_t strip,
                        bool whole) {
    const detail::width_choice width_choice = detail::choose_width(of, threads);
    INFO(of.rows << " rows of " << of.channels << ", " << threads << " threads");
    CHECK(width_choice.strip == strip);
    CHECK(width_choice.items_whole == whole);
  };
  // Eight rows of 256 floats stay whole as long as there are enough for all threads. With more
  // threads they are divided.
  const detail::width_costs whole{256, 16, 256, 16, 4, 64, 8, 1, false};
  for (const auto& [threads, strip] : std::vector<std::pair<int, std::int64_t>>{
           {1, 256}, {2, 256}, {8, 256}, {16, 128}, {64, 32}, {128, 16}, {256, 16}})
    check(whole, threads, strip, true);
  // If time may be split, tiles of whole rows cost less than pieces of half a kilobyte, because
  // every piece costs 256 bytes extra.
  const detail::width_costs two{256, 16, 256, 16, 4, 256, 1, 512, true};
  check(two, 1, 256, true);
  check(two, 2, 256, false);
  check({1024, 16, 1024, 16, 4, 256, 1, 512, true}, 2, 512, true);
  const detail::width_costs many{256, 16, 256, 16, 4, 64, 8, 64, true};
  check(many, 8, 256, true);
  check(many, 16, 128, true);
  check(many, 64, 256, false);
  // On two threads, five whole work items take as long as three on one thread. If threads take
  // tiles of any item, the five take as long as two and a half. That does not help if there are
  // fewer items than threads, or if an item has a single tile.
  check({16, 16, 16, 16, 4, 0, 5, 16, false}, 2, 16, false);
  check({16, 16, 16, 16, 4, 0, 5, 16, false}, 8, 16, true);
  check({16, 16, 16, 16, 4, 0, 5, 1, false}, 2, 16, true);

  // Strips with sums over channels have the same width for any number of threads.
  const extents shape{.batch = 8, .time = 8192, .channel = 256};
  scanrec::strides gate = channels_last(shape);
  gate.channel = 0;
  const problem p = adjoint_of(shape, gate);
  CHECK(describe(tiled{.threads = 64}, p).strip == describe(tiled{.threads = 1}, p).strip);
}

namespace {

/// The balance of a plan: the total work divided by the threads and by the work of the busiest
/// thread. The cost of a task is its packs times its steps. A thread has at most its share plus one
/// task, because tasks are claimed in order.
double balance(const tile_plan& plan, int threads, std::int64_t lanes) {
  const bool along_time = plan.lanes.along == recurrence::lane_axis::time;
  const auto packs = [&](std::int64_t channels) {
    return along_time ? channels : detail::ceil_div(channels, lanes);
  };
  const extents& s = plan.shape;
  const std::int64_t rows = s.batch * s.group;
  const std::int64_t steps = plan.items_whole ? s.time : plan.tile_steps;
  const double task = static_cast<double>(plan.batch_span * plan.group_span *
                                          packs(std::min(plan.strip, s.channel)) * steps);
  const double all = static_cast<double>(rows * packs(s.channel) * s.time);
  const double rounds = static_cast<double>(detail::ceil_div(plan.tasks, threads));
  return all / threads / std::min(rounds * task, all / threads + task);
}

using named_problem = std::pair<std::string, problem>;

/// The problems of all linear-scan calls for a shape and layout.
template <class T, class V>
std::vector<named_problem> linear_calls_of(const extents& shape, bool along_time) {
  const auto at = [](std::uintptr_t i) { return reinterpret_cast<V*>(i << 44); };
  const scanrec::strides dense = along_time ? time_contiguous(shape) : channels_last(shape);
  const auto array = [&](int i) { return sequence_view<V>(at(i), shape, dense); };
  const auto gates = [&](int i, const scanrec::strides& of) {
    return sequence_view<T>(reinterpret_cast<T*>(at(i)), shape, of);
  };
  std::vector<named_problem> list;
  list.emplace_back("forward", linear_scan_problem(gates(1, dense), array(2), array(3)));
  list.emplace_back(
      "vjp", linear_scan_vjp_problem(gates(1, dense), array(2), array(3),
                                     {.gate_grad = gates(4, dense), .input_grad = array(5)}));
  const scanrec::strides once{.channel = dense.channel};
  list.emplace_back("a gate per channel, vjp",
                    linear_scan_vjp_problem(gates(1, once), array(2), array(3),
                                            {.gate_grad = gates(4, once), .input_grad = array(5)}));
  const scanrec::strides per_step{.batch = shape.time, .time = 1};
  list.emplace_back("a gate per step, forward",
                    linear_scan_problem(gates(1, per_step), array(2), array(3)));
  list.emplace_back("jvp", linear_scan_jvp_problem(gates(1, dense), array(2), gates(3, dense),
                                                   array(4), array(5)));
  return list;
}

/// The problems of QRNN pooling for a shape and layout.
template <class T>
std::vector<named_problem> gated_calls_of(const extents& shape, bool along_time) {
  const scanrec::strides dense = along_time ? time_contiguous(shape) : channels_last(shape);
  const auto array = [&](std::uintptr_t i) {
    return sequence_view<T>(reinterpret_cast<T*>(i << 44), shape, dense);
  };
  using cell = fo_pooling<>;
  const cell::arrays<sequence_view<T>> of{array(1), array(2), array(3)};
  const memory::store states{array(4)};
  const memory::recompute checkpoints{sequence_view(
      reinterpret_cast<float*>(std::uintptr_t{5} << 44), memory::checkpoint_extents(shape))};
  const gated_gradients<cell, T> gradients{.arrays = {array(6), array(7), array(8)}};
  std::vector<named_problem> list;
  list.emplace_back("fo-pooling", gated_scan_problem(cell{}, of, array(9)));
  list.emplace_back("fo-pooling, states stored", gated_scan_problem(cell{}, of, array(9), states));
  list.emplace_back("fo-pooling vjp, states stored",
                    gated_scan_vjp_problem(cell{}, of, states, array(9), gradients));
  list.emplace_back("fo-pooling vjp, states recomputed",
                    gated_scan_vjp_problem(cell{}, of, checkpoints, array(9), gradients));
  return list;
}

}  // namespace

TEST_CASE("large calls of any shape keep 8 to 128 threads busy", "[tile_plan]") {
  std::mt19937_64 bits(1);
  const auto log_uniform = [&](double least, double most) {
    const double u =
        std::uniform_real_distribution<double>(std::log2(least), std::log2(most))(bits);
    return std::max<std::int64_t>(1, std::llround(std::exp2(u)));
  };
  int checked = 0, split = 0, whole = 0, by_tile = 0;
  const auto check = [&](const std::string& name, const problem& p, int threads) {
    const tile_plan plan = describe(tiled{.threads = threads}, p);
    INFO(name << " " << to_string(plan) << threads << " threads: " << plan.tasks << " tasks");
    const double even = balance(plan, threads, plan.lanes.single ? 1 : p.pack_lanes);
    CHECK(even >= 0.7);
    CHECK(plan.tasks >= (threads * 3 + 3) / 4);
    ++checked, split += plan.time_split, whole += plan.items_whole, by_tile += !plan.items_whole;
  };
  for (int trial = 0; trial < 1500; ++trial) {
    // At least 2^22 elements. A quarter of the shapes have few rows, and half of this quarter also
    // has few channels.
    extents shape;
    do {
      shape = {log_uniform(1, 4096), log_uniform(64, 1 << 24), log_uniform(1, 8192), 1};
      if (trial % 4 == 0) shape.batch = 1 + static_cast<std::int64_t>(bits() % 8);
      if (trial % 8 == 0) shape.channel = 1 + static_cast<std::int64_t>(bits() % 64);
    } while (detail::element_count(shape) < (1 << 22) ||
             detail::element_count(shape) > (std::int64_t{1} << 34));
    const bool along_time = trial % 2 == 1;
    for (const int threads : {8, 32, 64, 128}) {
      const std::string where = along_time ? " along time" : " channels last";
      const auto check_all = [&](const std::string& type, const std::vector<named_problem>& calls) {
        for (const auto& [name, p] : calls) check(type + " " + name + where, p, threads);
      };
      using complex = std::complex<float>;
      check_all("float", linear_calls_of<float, float>(shape, along_time));
      check_all("bfloat16", linear_calls_of<bfloat16, bfloat16>(shape, along_time));
      check_all("complex", linear_calls_of<complex, complex>(shape, along_time));
      check_all("matrices", linear_calls_of<mat<float, 2>, vec<float, 2>>(shape, along_time));
      check_all("float", gated_calls_of<float>(shape, along_time));
      check_all("bfloat16", gated_calls_of<bfloat16>(shape, along_time));
    }
  }
  CHECK(checked > 100000);
  CHECK(split > 1000);
  CHECK(whole > 1000);
  CHECK(by_tile > 1000);
}

TEST_CASE("time is split if there are too few packs for the threads of a call", "[tile_plan]") {
  const auto time = [](std::int64_t batch, std::int64_t steps, std::int64_t asked = 0) {
    const extents shape{.batch = batch, .time = steps, .channel = 64};
    return decisions(forward_of(shape, channels_last(shape)), asked).time;
  };
  const std::int64_t rows = tile_policy::enough_packs / 4;  // four packs have 64 channels
  CHECK(time(1, 1 << 20).split);
  CHECK(time(rows - 1, 1 << 20).split);
  CHECK(!time(rows, 1 << 20).split);
  const std::int64_t tile = time(1, 1 << 20).tile_steps;
  CHECK(tile == tile_policy::tile_bytes / (2 * 4 * 64));  // two arrays of floats are read
  const std::int64_t least = 4 * tile_policy::thread_elements / 64;  // enough for four threads
  CHECK(least > 2 * tile);
  CHECK(!time(1, least - 1).split);
  CHECK(time(1, least).split);
  // A call with few elements uses few threads, so here 16 packs are enough.
  CHECK(time(1, 17 * tile_policy::elements_per_pack / 64).split);
  CHECK(!time(4, 16 * tile_policy::elements_per_pack / 64 / 4).split);
  CHECK(time(1, 1000, 100).split);  // requested by the caller
  CHECK(time(1, 1000, 100).tile_steps == 100);
  CHECK(!time(1, 100, 1000).split);
  // Tiles have about the same length.
  for (const std::int64_t steps : {least + 1, 2 * least - 1, 1000001L}) {
    const std::int64_t of = time(1, steps).tile_steps, tiles = detail::ceil_div(steps, of);
    CHECK(of <= tile);
    CHECK(tiles * of - steps < tiles * 64);
  }
}

TEST_CASE("short rows share a work item unless a sum keeps them apart", "[tile_plan]") {
  const auto rows = [](const problem& p, std::int64_t strip) {
    const decisions d(p);
    return detail::choose_rows(p, d.sums, d.time, strip);
  };
  const extents shape{.batch = 1000, .time = 10, .channel = 64, .group = 4};
  const scanrec::strides dense = channels_last(shape);
  const std::int64_t enough = tile_policy::item_elements / 4 / (10 * 64);
  CHECK(rows(forward_of(shape, dense), 64).batches == enough);
  CHECK(rows(forward_of(shape, dense), 64).groups == 1);
  const problem over_groups =
      adjoint_of(shape, {.batch = dense.batch, .time = 0, .channel = 1, .group = 0});
  CHECK(rows(over_groups, 64).batches == 1);
  // With this many strips, an item spans all rows, so no sums of several items are added.
  extents wide = shape;
  wide.channel = 4 * tile_policy::enough_packs;
  const problem over_all = adjoint_of(wide, {.channel = 1});
  CHECK(rows(over_all, 1).batches == shape.batch);
  CHECK(rows(over_all, 1).groups == shape.group);
  CHECK(rows(over_all, 2).groups < shape.group);
}

TEST_CASE("rows with gaps are prefetched, but only in large calls", "[tile_plan]") {
  const auto ahead = [](const extents& shape, std::int64_t row) {
    return describe(tiled{},
                    forward_of(shape, {.batch = shape.time * row, .time = row, .channel = 1}))
        .ahead.time;
  };
  const extents large{.batch = 8, .time = 8192, .channel = 256}, small{.time = 64, .channel = 64};
  CHECK(ahead(large, 256) == 0);
  CHECK(ahead(large, 256 + tile_policy::gap_bytes / 4) == 0);
  CHECK(ahead(large, 257 + tile_policy::gap_bytes / 4) > 0);
  CHECK(ahead(large, 3 * 256) == tile_policy::prefetch_bytes / (256 * 4));
  CHECK(ahead(small, 3 * 64) == 0);
}

TEST_CASE("non-temporal stores are used only if rows fill whole cache lines", "[tile_plan]") {
  const auto streams = [](std::int64_t channels, std::int64_t row) {
    const extents shape{.batch = 8, .time = (1 << 21) / channels, .channel = channels};
    const scanrec::strides strides{.batch = shape.time * row, .time = row, .channel = 1};
    return describe(tiled{}, forward_of(shape, strides)).streaming;
  };
  CHECK(streams(256, 256));
  CHECK(streams(240, 256));
  CHECK(streams(240, 244));        // a multiple of 16 bytes suffices for whole packs
  CHECK_FALSE(streams(240, 243));  // not a multiple of 16 bytes
  CHECK_FALSE(streams(250, 250));
  CHECK_FALSE(streams(252, 252));  // the partial last pack shares its line with the next row
  CHECK(streams(252, 256));        // every row begins a line
  CHECK_FALSE(streams(5, 5));
  const auto by_time = [](std::int64_t row) {
    const extents shape{.batch = 8, .time = 8192, .channel = 256};
    const scanrec::strides strides{.batch = 256 * row, .time = 1, .channel = row};
    return describe(tiled{}, forward_of(shape, strides)).streaming;
  };
  CHECK(by_time(8192));
  CHECK(by_time(8196));
  CHECK_FALSE(by_time(8193));
}
