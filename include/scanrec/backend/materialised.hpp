// SPDX-License-Identifier: BSD-3-Clause
// The frame of backends that write the maps of all steps down, scan them, and finish the steps.
//
// A unit is a strip of channels of a batch row, or of some. Its maps are loaded into planes
// (map_planes.hpp), a scan turns them into the state before every step, and every step is then
// taken from there as the plain loop takes it. With enough units each worker has its own; with few,
// all workers share the phases of one. What is computed is the same in both cases.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

#include <scanrec/backend/executor.hpp>
#include <scanrec/backend/map_planes.hpp>
#include <scanrec/backend/scratch.hpp>
#include <scanrec/backend/stage.hpp>
#include <scanrec/backend/sums.hpp>
#include <scanrec/backend/tile_plan.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Runs work(0), ..., work(workers - 1) on an executor, or the default one.
template <class Work>
void run_on(const executor& given, int workers, const Work& work) {
  if (workers <= 1) return work(0);
  const std::function<void(int)> by_reference = std::cref(work);  // allocates nothing
  if (given)
    given(workers, by_reference);
  else
    run_workers(workers, by_reference);
}

/// Workers that share the phases of a scan: each phase starts when the one before has ended.
struct team {
  static constexpr std::int64_t worth_a_piece = 4096;  // elements
  const executor& given;
  int workers = 1;

  /// Calls f(begin, end), or f(begin, end, number of the piece), for pieces of [0, n) that begin at
  /// multiples of `grain`, side by side.
  template <class F>
  void split(std::int64_t n, std::int64_t grain, F f) const {
    const std::int64_t grains = ceil_div(n, grain);
    const std::int64_t piece = ceil_div(grains, std::max(workers, 1)) * grain;
    if (piece == 0) return;
    run_on(given, static_cast<int>(ceil_div(n, piece)), [&](int number) {
      const std::int64_t begin = number * piece, end = std::min(n, begin + piece);
      if constexpr (std::is_invocable_v<F, std::int64_t, std::int64_t, int>)
        f(begin, end, number);
      else
        f(begin, end);
    });
  }
};

/// What the number of slots depends on, the steps apart.
struct materialised_shape {
  bool shared = false;        // all workers work on one unit at a time
  std::int64_t overhang = 0;  // slots that whole packs may reach past the last
};

/// How a materialising backend cuts a problem up.
struct materialised_plan {
  materialised_shape shape{};
  lane_layout lanes{};
  std::int64_t strip = 1, strips = 0;    // channels per unit
  std::int64_t width = 1;                // elements per slot: the strip, in whole packs
  std::int64_t rows = 1, row_spans = 0;  // batch rows per unit
  std::int64_t units = 0;
  std::int64_t units_per_task = 1;
  int threads = 1;
  std::int64_t row_elements = 0;   // of a plane, per batch row
  std::int64_t plane = 0;          // elements per plane of a unit
  std::int64_t buffer_bytes = 0;   // its planes
  std::int64_t maps_bytes = 0;     // per unit at work
  std::int64_t scratch_bytes = 0;  // what the scan asks for besides
  std::int64_t worker_bytes = 0;   // accumulators, and the unit's own
  std::int64_t workspace_bytes = 0;

  /// Steps of a block that is finished in one go: its running sums are drained at its end.
  static constexpr std::int64_t block_steps = 256;
  /// Most packs of a strip.
  static constexpr std::int64_t most_packs = 64;
  /// Steps of the buffer of scans that take maps by blocks.
  static constexpr std::int64_t buffer_steps = 64;
};

template <class Scan>
materialised_plan plan_materialised(const Scan& scan, const problem& p, int threads) {
  using policy = tile_policy;
  materialised_plan plan;
  const std::int64_t T = p.shape.time, C = p.shape.channel;
  std::int64_t lanes = 1;
  plan.lanes = choose_layout(p);
  if (!p.one_by_one) lanes = p.channel_lanes.lanes;
  const bool along_time = plan.lanes.along == recurrence::lane_axis::time;
  plan.shape.overhang = along_time ? 2 * lanes : 0;
  if (!along_time) {
    const std::int64_t of_a_pack =
        lanes * std::max<std::int64_t>(1, scan.kept_bytes(p, plan.shape));
    const std::int64_t packs =
        std::clamp<std::int64_t>(scan.cached_bytes / of_a_pack, 1, plan.most_packs);
    plan.strip = std::max<std::int64_t>(1, std::min(packs * lanes, C));
  }
  plan.strips = ceil_div(C, plan.strip);
  plan.width = along_time ? 1 : round_up(plan.strip, lanes);
  plan.rows = std::clamp<std::int64_t>(scan.rows(p), 1, std::max<std::int64_t>(p.shape.batch, 1));
  plan.row_spans = ceil_div(p.shape.batch, plan.rows);
  plan.units = p.shape.group * plan.row_spans * plan.strips;
  plan.units_per_task = std::max<std::int64_t>(
      1, policy::unit_elements / std::max<std::int64_t>(1, T * plan.strip * plan.rows));

  const std::int64_t useful = element_count(p.shape) / policy::thread_elements;
  plan.threads = threads > 0 ? std::min<int>(threads, most_threads)
                             : static_cast<int>(std::clamp<std::int64_t>(
                                   useful, 1, std::min(default_threads(), most_threads)));
  plan.shape.shared = plan.threads > 1 && plan.units < plan.threads &&
                      T * plan.width * plan.rows > team::worth_a_piece;

  if (scan.by_blocks) {
    plan.plane = round_up((plan.buffer_steps + plan.shape.overhang) * plan.width, 16);
  } else {
    plan.row_elements =
        round_up((scan.slots(T, plan.shape) + plan.shape.overhang) * plan.width, 16);
    plan.plane = plan.row_elements * plan.rows;
  }
  plan.buffer_bytes = round_up(plan.plane * p.map_bytes, 64);
  plan.maps_bytes = plan.buffer_bytes * (scan.by_blocks && plan.shape.shared ? plan.threads : 1);
  plan.scratch_bytes = round_up(scan.scratch_bytes(p, plan), 64);
  const std::int64_t unit_bytes = plan.maps_bytes + plan.scratch_bytes;
  const sums_layout sums(p, {1, plan.block_steps, plan.strip, 1});
  plan.worker_bytes = sums.block_bytes + (plan.shape.shared ? 0 : unit_bytes);
  plan.workspace_bytes =
      plan.threads * plan.worker_bytes + sums.total_bytes + (plan.shape.shared ? unit_bytes : 0);
  return plan;
}

/// Lanes along channels: a slot holds the maps of one step, a pack of channels after the other.
/// Recurrences that are not made of real lanes go one by one.
template <class R>
struct channel_columns {
  static constexpr int lanes = lanes_of<R>;
  using value = typename R::value;
  using lane = simd::lane_t<value, lanes>;
  using map = typename R::template map_of<lane>;
  using state = typename R::template state_of<lane>;
  static constexpr bool along_time = false;
  using place = recurrence::place<recurrence::lane_axis::channel>;
  static constexpr bool has_sums = !std::is_empty_v<typename R::template sums<lane>>;

  /// Stores the maps of the block's steps; that of step t in slot t + shift.
  template <class Maps>
  static void load(const R& r, const block& where, const materialised_plan& plan,
                   std::int64_t steps, const Maps& to, std::int64_t shift) {
    for_channel_pieces<lanes>(
        r, where, plan.lanes, steps, false, [&](const R& piece, const block& b) {
          const std::int64_t first = (b.begin + shift) * plan.width + (b.channel - where.channel);
          load_packs(piece, b, to.from(first), plan.width);
        });
  }
  /// Takes the block's steps from the states before them, which are in slot t.
  template <class Maps>
  static void finish(const R& r, const block& where, const materialised_plan& plan,
                     std::int64_t steps, const Maps& from) {
    for_channel_pieces<lanes>(
        r, where, plan.lanes, steps, true, [&](const R& piece, const block& b) {
          const std::int64_t first = b.begin * plan.width + (b.channel - where.channel);
          finish_packs(piece, b, from.from(first), plan.width, steps);
        });
  }
  /// Stores the state before the first step, as a map that forgets, in a slot.
  template <class Maps>
  static void begin(const R& r, const block& where, const materialised_plan& plan, const Maps& to,
                    std::int64_t slot) {
    for_packs(where, 0, [&](place at, std::int64_t c) {
      to.store(slot * plan.width + c, constant_map<map>(r.template begin<lane>(at)));
    });
  }
  /// Of a sequence without steps the first state is the last.
  static void pass(const R& r, const block& where) {
    for_packs(where, 0, [&](place at, std::int64_t) { r.end(at, r.template begin<lane>(at)); });
  }

 private:
  template <class F>
  static SCANREC_INLINE void for_packs(const block& where, std::int64_t time, F f) {
    for (std::int64_t c = 0; c < where.channels; c += lanes) f(place_of(where, time, 0, c), c);
  }
  static SCANREC_INLINE place place_of(const block& b, std::int64_t time, std::int64_t row,
                                       std::int64_t c) {
    return {time, b.channel + c, row, c,
            static_cast<int>(std::min<std::int64_t>(lanes, b.channels - c))};
  }

  // The kernels take the recurrence by value: a copy that no store can reach stays in registers.
  template <class Maps>
  [[gnu::noinline]] static void load_packs(R r, block b, Maps to, std::int64_t width) {
    for (std::int64_t row = 0; row < b.end - b.begin; ++row)
      for (std::int64_t c = 0; c < b.channels; c += lanes) {
        const place at = place_of(b, b.begin + row, row, c);
        const auto read = r.template load<lane>(at);
        to.store_step(row * width + c, r.map(at, read), read);
      }
  }
  template <class Maps>
  [[gnu::noinline]] static void finish_packs(R r, block b, Maps from, std::int64_t width,
                                             std::int64_t steps) {
    typename R::template sums<lane> running[has_sums ? materialised_plan::most_packs : 1]{};
    for (std::int64_t row = 0; row < b.end - b.begin; ++row)
      for (std::int64_t c = 0; c < b.channels; c += lanes) {
        const place at = place_of(b, b.begin + row, row, c);
        const auto before = from.template load<state>(row * width + c);
        const auto read = r.template load<lane>(at);
        const auto after = r.next(at, read, before);
        r.finish(at, read, before, after, running[has_sums ? c / lanes : 0]);
        if (at.time + 1 == steps) r.end(at, after);
      }
    if constexpr (has_sums)
      for_packs(b, b.begin, [&](place at, std::int64_t c) { r.drain(at, running[c / lanes]); });
  }
};

/// Lanes along time: a slot holds the map of one step of one channel.
template <class R>
struct time_columns {
  using value = typename R::value;
  static constexpr int lanes = simd::lanes_v<value>;
  using lane = simd::lane_t<value, lanes>;
  using scalar = simd::lane_t<value, 1>;
  using map = typename R::template map_of<lane>;
  using state = lane;
  static constexpr bool along_time = true;
  using place = recurrence::place<recurrence::lane_axis::time>;

  template <class Maps>
  static void load(const R& r, const block& where, const materialised_plan& plan,
                   std::int64_t steps, const Maps& to, std::int64_t shift) {
    for_time_pieces<lanes>(r, where, plan.lanes, steps, false, [&](const R& piece, const block& b) {
      load_packs(piece, b, to.from(b.begin + shift), plan.lanes.reversed);
    });
  }
  template <class Maps>
  static void finish(const R& r, const block& where, const materialised_plan& plan,
                     std::int64_t steps, const Maps& from) {
    for_time_pieces<lanes>(r, where, plan.lanes, steps, true, [&](const R& piece, const block& b) {
      finish_packs(piece, b, from.from(b.begin), plan.lanes.reversed, steps);
    });
  }
  template <class Maps>
  static void begin(const R& r, const block& where, const materialised_plan&, const Maps& to,
                    std::int64_t slot) {
    using map_of_one = typename R::template map_of<scalar>;
    to.store(slot, constant_map<map_of_one>(r.template begin<scalar>(place{0, where.channel})));
  }
  static void pass(const R& r, const block& where) {
    const place at{0, where.channel};
    r.end(at, r.template begin<scalar>(at));
  }

 private:
  template <class Maps>
  [[gnu::noinline]] static void load_packs(R r, block b, Maps to, bool reversed) {
    const auto load_at = [&](auto one, auto at) SCANREC_LAMBDA {
      const auto read = r.template load<decltype(one)>(at);
      to.store_step(at.time - b.begin, r.map(at, read), read);
    };
    for_places(r, b, reversed, load_at);
  }
  template <class Maps>
  [[gnu::noinline]] static void finish_packs(R r, block b, Maps from, bool reversed,
                                             std::int64_t steps) {
    typename R::template sums<lane> running{};
    typename R::template sums<scalar> few{};
    for_places(r, b, reversed, [&](auto one, auto at) SCANREC_LAMBDA {
      using any_lane = decltype(one);
      const auto before = from.template load<any_lane>(at.time - b.begin);
      const auto read = r.template load<any_lane>(at);
      const auto after = r.next(at, read, before);
      if constexpr (simd::lane_count<any_lane> == 1)
        r.finish(at, read, before, after, few);
      else
        r.finish(at, read, before, after, running);
      if (at.time + simd::lane_count<any_lane> == steps) {
        if constexpr (simd::lane_count<any_lane> == 1)
          r.end(place{steps, b.channel}, after);
        else
          r.end(place{steps, b.channel}, simd::last(after));
      }
    });
    r.drain(place{b.begin, b.channel, 0, 0, lanes}, running);
    r.drain(place{b.begin, b.channel}, few);
  }

  // Calls f(a lane, place) for packs whose lanes compose, and step by step for the rest.
  template <class F>
  static SCANREC_INLINE void for_places(const R& r, const block& b, bool reversed, F f) {
    place at{b.begin, b.channel, 0, reversed ? 1 - lanes : 0, lanes, reversed};
    while (at.time < b.end) {
      const bool whole = at.time + lanes <= b.end;
      if (whole && r.template composes<lanes>(at)) {
        f(lane{}, at);
      } else {
        const std::int64_t end = whole ? at.time + lanes : b.end;
        for (place one{at.time, b.channel, at.time - b.begin}; one.time < end;
             ++one.time, ++one.row)
          f(scalar{}, one);
      }
      at.time += lanes;
      at.index += reversed ? -lanes : lanes;
    }
  }
};

/// What a scan of maps provides, with the defaults of those that have all maps of a unit before
/// them. A call holds a `scan`, and an `on<Columns, R>` for every unit at work.
///
///     shift                       the map of step t goes to slot t + shift
///     slots(steps, shape)         how many slots of maps are kept for a row
///     first_state(steps, shape)   the slot of the state before the first step
///     kept_bytes(problem, shape)  bytes of maps of a sequence that are gone over again and again
///     cached_bytes                how many of those there should be at a time
///     rows(problem)               batch rows that it likes to scan together
///     scratch_bytes(problem, plan)  per unit, besides the maps
///
///     on(scan, maps, scratch, rows, steps, plan, recurrence, team)
///       to_load(row, begin, piece)           maps that take those of the slots from `begin` on
///       loaded(row, begin, end, piece)       when they are there
///       run()                                when all are
///       to_finish(row, begin, end, worker)   maps whose slot t has the state before step t
struct map_scan {
  /// Whether maps are loaded and finished a few steps at a time, by way of a small buffer.
  static constexpr bool by_blocks = false;
  static constexpr std::int64_t cached_bytes = 256 * 1024;
  static std::int64_t rows(const problem&) { return 1; }
  static std::int64_t scratch_bytes(const problem&, const materialised_plan&) { return 0; }

  /// Maps that stay where they are loaded.
  template <class R>
  struct in_place {
    using maps = maps_of<R>;
    maps all;
    const materialised_plan& plan;
    maps to_load(std::int64_t row, std::int64_t, int) const {
      return all.from(row * plan.row_elements);
    }
    void loaded(std::int64_t, std::int64_t, std::int64_t, int) const {}
    maps to_finish(std::int64_t row, std::int64_t, std::int64_t, int) const {
      return all.from(row * plan.row_elements);
    }
  };
};

/// One call of a materialising backend.
template <class R, class Columns, class Scan>
class materialised_call {
  using maps = maps_of<R>;

 public:
  materialised_call(const Scan& scan, const R& recurrence, const problem& p,
                    const materialised_plan& plan, const executor& given, std::byte* memory)
      : scan_(scan),
        recurrence_(recurrence),
        shape_(p.shape),
        plan_(plan),
        sums_(p, {1, plan.block_steps, plan.strip, 1}),
        given_(given),
        memory_(memory),
        totals_(memory + plan.threads * plan.worker_bytes) {
    std::fill_n(totals_, sums_.total_bytes, std::byte{0});
  }

  void run() {
    if (plan_.shape.shared) {
      for (std::int64_t unit = 0; unit < plan_.units; ++unit)
        run_unit(unit, totals_ + sums_.total_bytes, 0, plan_.threads);
    } else {
      run_on(given_, plan_.threads, [&](int worker) {
        const std::int64_t tasks = ceil_div(plan_.units, plan_.units_per_task);
        for (std::int64_t task = next_++; task < tasks; task = next_++) {
          const std::int64_t first = task * plan_.units_per_task;
          const std::int64_t last = std::min(first + plan_.units_per_task, plan_.units);
          for (std::int64_t unit = first; unit < last; ++unit)
            run_unit(unit, own(worker) + sums_.block_bytes, worker, 1);
        }
      });
    }
    sums_.write(recurrence_, shape_, totals_);
  }

 private:
  std::byte* own(int worker) const { return memory_ + worker * plan_.worker_bytes; }

  void run_unit(std::int64_t unit, std::byte* memory, int worker, int workers) {
    const std::int64_t T = shape_.time;
    const std::int64_t channel = unit % plan_.strips * plan_.strip;
    const std::int64_t channels = std::min(plan_.strip, shape_.channel - channel);
    const std::int64_t batch = unit / plan_.strips % plan_.row_spans * plan_.rows;
    const std::int64_t rows = std::min(plan_.rows, shape_.batch - batch);
    const std::int64_t group = unit / plan_.strips / plan_.row_spans;
    const block whole{0, T, channel, channels};
    materialised_plan plan = plan_;  // of this unit, which may be the last and narrow
    plan.strip = channels;
    if (!Columns::along_time) plan.width = round_up(channels, Columns::lanes);
    const team all{given_, workers};

    const R first_row = bound(recurrence_, group, batch);
    const maps at = maps::over(memory, plan.plane, has_cuts(recurrence_));
    typename Scan::template on<Columns, R> unit_scan(scan_, at, memory, rows, T, plan, first_row,
                                                     all);
    const std::int64_t stretch = Scan::by_blocks ? plan.buffer_steps : std::max<std::int64_t>(T, 1);
    if (T > 0) {
      for (std::int64_t row = 0; row < rows; ++row) {
        const R r = bound(recurrence_, group, batch + row);
        const std::int64_t start = scan_.first_state(T, plan.shape);
        Columns::begin(r, whole, plan, unit_scan.to_load(row, start, 0), start);
        unit_scan.loaded(row, start, start + 1, 0);
        // Nobody asks for the state after the last step's map: that step is taken from the one
        // before.
        all.split(T - 1, plan.block_steps, [&](std::int64_t first, std::int64_t last, int piece) {
          for (std::int64_t begin = first; begin < last; begin += stretch) {
            const std::int64_t end = std::min(begin + stretch, last);
            Columns::load(r, {begin, end, channel, channels}, plan, T,
                          unit_scan.to_load(row, begin + Scan::shift, piece), Scan::shift);
            unit_scan.loaded(row, begin + Scan::shift, end + Scan::shift, piece);
          }
        });
      }
      unit_scan.run();
    }

    // Rows are finished in blocks, and their sums handed on in the order of units, rows and blocks.
    const std::int64_t blocks = std::max<std::int64_t>(1, ceil_div(T, plan.block_steps));
    const std::int64_t first_turn = unit * plan.rows * blocks;
    const auto finish_block = [&](std::int64_t i, int who) {
      const std::int64_t b = batch + i / blocks, begin = i % blocks * plan.block_steps;
      const std::int64_t end = std::min(T, begin + plan.block_steps);
      const region box{{b, begin, channel, group}, {b + 1, end, channel + channels, group + 1}};
      const auto finish = [&](const R& r) {
        if (T == 0) return Columns::pass(r, whole);
        for (std::int64_t t = begin; t < end; t += stretch) {
          const std::int64_t last = std::min(t + stretch, end);
          Columns::finish(r, {t, last, channel, channels}, plan, T,
                          unit_scan.to_finish(i / blocks, t, last, workers <= 1 ? 0 : who));
        }
      };
      if (!sums_.any) return finish(bound(recurrence_, group, b));
      R summing = recurrence_;
      sums_.bind(summing, box, own(who));
      finish(bound(summing, group, b));
      await(turn_, first_turn + i);
      sums_.hand_on(summing, box, own(who), totals_);
      // The last unit of a span may have fewer rows than turns.
      const bool last = i + 1 == rows * blocks;
      turn_.store(last ? first_turn + plan.rows * blocks : first_turn + i + 1,
                  std::memory_order_release);
    };
    if (workers <= 1) {
      for (std::int64_t i = 0; i < rows * blocks; ++i) finish_block(i, worker);
    } else {
      std::atomic<std::int64_t> next{0};
      run_on(given_, workers, [&](int who) {
        for (std::int64_t i = next++; i < rows * blocks; i = next++) finish_block(i, who);
      });
    }
  }

  const Scan& scan_;
  R recurrence_;
  extents shape_;
  const materialised_plan& plan_;
  sums_layout sums_;
  const executor& given_;
  std::byte* memory_;
  std::byte* totals_;
  std::atomic<std::int64_t> next_{0};  // the next task to claim
  std::atomic<std::int64_t> turn_{0};  // the block whose sums go into the totals next
};

/// Runs a recurrence, given in scan order, on a materialising backend.
template <class Scan, class Backend, class R>
void run_materialised(const Scan& scan, const Backend& backend, R recurrence, const problem& p) {
  const materialised_plan plan = plan_materialised(scan, p, backend.threads);
  for_outputs(recurrence, [](auto& out) { out.stream = false; });
  scratch memory(plan.workspace_bytes);
  const auto run_on_columns = [&](auto columns) {
    using Columns = typename decltype(columns)::type;
    materialised_call<R, Columns, Scan>(scan, recurrence, p, plan, backend.executor, memory.data())
        .run();
  };
  if constexpr (!R::one_by_one)
    if (plan.lanes.along == recurrence::lane_axis::time)
      return run_on_columns(std::type_identity<time_columns<R>>{});
  run_on_columns(std::type_identity<channel_columns<R>>{});
}

}  // namespace scanrec::detail::inline SCANREC_ABI
