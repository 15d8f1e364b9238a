// SPDX-License-Identifier: BSD-3-Clause
// Gradients that are sums. A thread adds the terms of its lanes to accumulators in the workspace
// (lane_plan.cuh). A second kernel adds up the accumulators that belong to one element of a
// gradient, and clears them. If accumulators have the shape of the gradient, no second kernel is
// needed: the kernel that fills them also writes the gradient and clears them. The order of
// additions depends only on the problem and the options.
#pragma once

#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_plan.cuh>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/sums.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// Clears the accumulators of one lane for one tile of steps. at.channel is the channel of the
/// lane, and at.time is the number of the tile.
template <class R, class Position>
SCANREC_DEVICE void clear_lane_sums(const R& row, const Position& at) {
  const auto clear = [&at](const auto& out) {
    using wide = std::remove_pointer_t<decltype(out.sums.data)>;
    const auto& s = out.sums.strides;
    out.sums.data[out.sums.offset + at.time * s.time + at.channel * s.channel] = wide{};
  };
  if constexpr (scanrec::detail::may_sum<R>) {
    scanrec::detail::for_writes(row, [&](const auto& out) {
      if (out.action == recurrence::write::sum_time) clear(out);
    });
    scanrec::detail::for_ends(row, [&](const auto& out) {
      if (out.action == recurrence::write::sum_site) clear(out);
    });
  }
}

/// For each output that is summed over lanes and keeps its time axis, calls f(sum, output,
/// position) for the accumulators of a region.
template <class R, class F>
SCANREC_DEVICE void for_step_sums(const R& r, [[maybe_unused]] const region& own, F f) {
  if constexpr (scanrec::detail::may_sum<R>)
    scanrec::detail::for_writes(r, [&](const auto& out) {
      if (out.action == recurrence::write::sum_site)
        scanrec::detail::for_kept(out.strides, own, [&](const extents& at) {
          f(out.sums.data[scanrec::detail::offset_of(at, out.sums.strides)], out, at);
        });
    });
}
template <class R>
SCANREC_DEVICE void clear_step_sums(const R& r, const region& own) {
  for_step_sums(r, own, [](auto& sum, const auto&, const extents&) {
    sum = std::remove_reference_t<decltype(sum)>{};
  });
}
template <class R>
SCANREC_DEVICE void write_step_sums(const R& r, const region& own) {
  for_step_sums(r, own, [](auto& sum, const auto& out, const extents& at) {
    scanrec::detail::write_sum(out, at, simd::from_element(sum));
    sum = std::remove_reference_t<decltype(sum)>{};
  });
}

/// Calls f(output, array) for outputs that keep their time axis and are summed over lanes. `array`
/// holds the output's `terms` terms in shared memory. The first array begins at `byte`, and the
/// others follow.
template <class R, class F>
SCANREC_DEVICE void for_terms([[maybe_unused]] R& r, std::int64_t byte, std::int64_t terms, F f) {
  if constexpr (scanrec::detail::may_sum<R>)
    scanrec::detail::for_writes(r, [&](auto& out) {
      if (out.action != recurrence::write::sum_site) return;
      using wide = std::remove_pointer_t<decltype(out.sums.data)>;
      f(out, device::shared_array<wide>(byte));
      byte += (terms * static_cast<std::int64_t>(sizeof(wide)) + 15) / 16 * 16;
    });
}
/// Clears `count` terms, at distances of `apart` elements.
template <class Wide>
SCANREC_DEVICE void clear_terms(Wide* first, int count, int apart) {
  for (int i = 0; i < count; ++i) first[i * apart] = Wide{};
}
/// Adds up the terms of a step over `lanes` lanes.
template <class Terms>
SCANREC_DEVICE auto add_terms(const Terms& terms, int first, int lanes) {
  // Four partial sums, so that additions do not wait for each other.
  using wide_lane = decltype(simd::from_element(terms.load(0)));
  wide_lane sums[4] = {};
  for (int lane = 0; lane < lanes; lane += 4) {
    SCANREC_UNROLL
    for (int k = 0; k < 4; ++k)
      if (lane + k < lanes) sums[k] = sums[k] + simd::from_element(terms.load(first + lane + k));
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// One gradient and its accumulators. Each element of `out` is the sum of the accumulators that
/// belong to it.
template <class S>
struct lane_sums {
  recurrence::output_field<S> out;
  // The extents of the gradient, and those of the accumulators that are added for each element.
  extents kept{1, 1, 1, 1}, summed{1, 1, 1, 1};
  using wide = simd::lane_t<wide_t<S>, 1>;

  /// `lanes`: numbers of lanes or strips along each axis. `steps`: number of steps with separate
  /// sums. `tiles`: number of tiles to be summed.
  lane_sums(const recurrence::output_field<S>& gradient, const extents& lanes, std::int64_t steps,
            std::int64_t tiles)
      : out(gradient) {
    kept.time = steps, summed.time = tiles;
    for (const axis a : lane_axes) {
      extents& those = along(out.strides, a) == 0 ? summed : kept;
      along(those, a) = along(lanes, a);
    }
  }
  SCANREC_HD [[nodiscard]] std::int64_t elements() const {
    return kept.group * kept.batch * kept.channel * kept.time;
  }
  SCANREC_HD [[nodiscard]] std::int64_t terms() const {
    return summed.group * summed.batch * summed.channel * summed.time;
  }

  SCANREC_HD static extents position(std::int64_t i, const extents& of) {
    extents at;
    at.channel = i % of.channel, i /= of.channel;
    at.time = i % of.time, i /= of.time;
    at.batch = i % of.batch, at.group = i / of.batch;
    return at;
  }
  SCANREC_HD wide take_term(const extents& element, std::int64_t i) const {
    const extents at = position(i, summed);
    const auto& s = out.sums.strides;
    auto& position =
        out.sums.data[scanrec::detail::offset_of(element, s) + scanrec::detail::offset_of(at, s)];
    const wide term = simd::from_element(position);
    position = std::remove_reference_t<decltype(position)>{};
    return term;
  }
  SCANREC_HD void write(const extents& element, wide sum) const {
    scanrec::detail::write_sum(out, element, sum);
  }
};

/// Adds up accumulators, one thread per element of the gradient; for many elements or few terms.
template <class S>
struct add_terms_in_turn {
  static constexpr int threads = 128;
  static constexpr int blocks_together = 8;
  static constexpr bool synchronises = false;
  lane_sums<S> sums;

  SCANREC_DEVICE void operator()() const {
    const std::int64_t i = device::block_index() * threads + device::thread_index();
    if (i >= sums.elements()) return;
    const extents element = sums.position(i, sums.kept);
    auto sum = simd::constant<typename lane_sums<S>::wide>(0);
    for (std::int64_t k = 0; k < sums.terms(); ++k) sum = sum + sums.take_term(element, k);
    sums.write(element, sum);
  }
};

/// Adds up accumulators, one block per element of the gradient. Each thread adds up every
/// `threads`-th term. Then the sums of the threads are added pairwise.
template <class S>
struct add_terms_by_block {
  static constexpr int threads = 128;
  static constexpr int blocks_together = 8;
  static constexpr bool synchronises = true;
  using wide = typename lane_sums<S>::wide;
  static constexpr std::int64_t shared_bytes = threads * sizeof(wide);
  lane_sums<S> sums;

  SCANREC_DEVICE void operator()() const {
    const int own = device::thread_index();
    const extents element = sums.position(device::block_index(), sums.kept);
    wide sum = simd::constant<wide>(0);
    for (std::int64_t k = own; k < sums.terms(); k += threads)
      sum = sum + sums.take_term(element, k);
    const device::shared_array<wide> of_threads(0);
    of_threads.store(own, sum);
    for (int half = threads / 2; half > 0; half /= 2) {
      device::synchronise_block();
      if (own < half) of_threads.store(own, of_threads.load(own) + of_threads.load(own + half));
    }
    if (own == 0) sums.write(element, of_threads.load(0));
  }
};

/// Queues the summation of one gradient.
template <class S>
void add_lanes(const recurrence::output_field<S>& out, const lane_plan& plan, bool per_strip,
               stream_t stream) {
  extents accumulators = plan.lanes.all;
  if (per_strip) accumulators.channel = plan.strips;
  const lane_sums<S> sums(out, accumulators, per_strip ? plan.steps : 1,
                          per_strip ? 1 : plan.tiles);
  constexpr std::int64_t few_terms = 32;
  if (sums.terms() <= few_terms || sums.elements() >= add_terms_by_block<S>::threads * few_terms) {
    constexpr int threads = add_terms_in_turn<S>::threads;
    launch(add_terms_in_turn<S>{sums}, (sums.elements() + threads - 1) / threads, stream);
  } else {
    launch(add_terms_by_block<S>{sums}, sums.elements(), stream,
           add_terms_by_block<S>::shared_bytes);
  }
}

/// Queues the summation of all gradients with accumulators per lane or per strip.
template <class R>
void add_all_lanes([[maybe_unused]] const R& r, [[maybe_unused]] const lane_plan& plan,
                   [[maybe_unused]] stream_t stream) {
  if constexpr (scanrec::detail::may_sum<R>) {
    const auto* o = plan.outputs.data();
    scanrec::detail::for_outputs(r, [&](const auto& out) {
      if (o->per_lane || o->per_strip) add_lanes(out, plan, o->per_strip, stream);
      ++o;
    });
  }
}

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
