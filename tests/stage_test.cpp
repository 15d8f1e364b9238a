// SPDX-License-Identifier: BSD-3-Clause
// Tests of staging, which copies a block of an array to contiguous scratch: the elements that are
// copied and those that are written back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <scanrec/detail/cpu/stage.hpp>
#include <scanrec/detail/recurrence/forward.hpp>
#include <scanrec/detail/recurrence/vjp.hpp>

#include "catch.hpp"

namespace {

using namespace scanrec;
using detail::block;
using recurrence::lane_axis;
using action = recurrence::write;

using scan = recurrence::forward<float, float, float>;
using adjoint = recurrence::vjp<float, float, float, float, float>;
constexpr int lanes = detail::lanes_of<scan>;
constexpr std::int64_t rows = detail::staged_block<scan>::elements / lanes;
constexpr detail::lane_layout by_channel{lane_axis::channel, false, false};
constexpr detail::lane_layout by_time{lane_axis::time, false, false};
constexpr detail::lane_layout by_time_reversed{lane_axis::time, true, false};

/// An array of steps and channels with a border of gaps. All elements differ.
struct table {
  static constexpr std::int64_t steps = 40, channels = 37;
  std::vector<float> memory;
  std::int64_t first = 0;
  scanrec::strides strides{};

  /// The inner axis is channels or steps, with a stride of `apart` elements. Steps may descend in
  /// memory.
  table(int number, bool channels_inside, std::int64_t apart, bool descending) {
    const std::int64_t n = (steps + 2) * (channels + 2);
    memory.resize(static_cast<std::size_t>(n * apart));
    for (std::size_t i = 0; i < memory.size(); ++i)
      memory[i] = static_cast<float>(number * 100000 + static_cast<int>(i) + 1);
    strides.time = apart * (channels_inside ? channels + 2 : 1);
    strides.channel = apart * (channels_inside ? 1 : steps + 2);
    first = strides.time + strides.channel;
    if (!descending) return;
    first += (steps - 1) * strides.time;
    strides.time = -strides.time;
  }
  float* data() { return memory.data() + first; }
  float& at(std::int64_t t, std::int64_t c) {
    return data()[t * strides.time + c * strides.channel];
  }
  recurrence::input_field<float> input() { return {data(), strides}; }
  recurrence::output_field<float> output(action what = action::store) {
    recurrence::output_field<float> out;
    out.data = data(), out.strides = strides, out.action = what;
    return out;
  }
};

template <class Field>
auto value_at(const Field& field, std::int64_t row, std::int64_t lane) {
  return field.data[row * field.strides.time + lane * field.strides.channel];
}
template <class Field>
bool same_position(const Field& x, const Field& y) {
  return x.data == y.data && x.strides.time == y.strides.time &&
         x.strides.channel == y.strides.channel;
}

/// Blocks at the beginning, in the middle and at the end of time. With lanes along time they have
/// one channel, otherwise up to a pack of channels.
std::vector<block> blocks_of(const detail::lane_layout& layout) {
  std::vector<block> all;
  for (const std::int64_t begin : {0, 3, 24})
    for (const std::int64_t steps : {1, 2, 7, 15, 16}) {
      const std::int64_t end = std::min(begin + steps, table::steps);
      if (layout.along == lane_axis::time) {
        all.push_back({begin, end, 5, 1});
        continue;
      }
      for (const std::int64_t channels : {1, 2, lanes - 1, lanes})
        all.push_back({begin, end, 36 - channels, channels});
    }
  return all;
}
template <class F>
void for_layouts(F f) {
  for (const auto& layout : {by_channel, by_time, by_time_reversed})
    for (const bool channels_inside : {true, false})
      for (const std::int64_t apart : {1, 3})
        for (const bool descending : {false, true})
          for (const block& where : blocks_of(layout)) {
            INFO("lanes " << static_cast<int>(layout.along) << layout.reversed << " inside "
                          << channels_inside << " apart " << apart << " descending " << descending
                          << ", steps " << where.begin << " to " << where.end << ", channels "
                          << where.channel << " and " << where.channels);
            f(layout, where, channels_inside, apart, descending);
          }
}
bool side_by_side(const detail::lane_layout& layout, const scanrec::strides& s, const block& b) {
  return layout.stride_of(s) == layout.unit() &&
         (layout.along == lane_axis::time || b.channels == lanes);
}

}  // namespace

TEST_CASE("a staged block holds its elements contiguously and pads with zeros", "[stage]") {
  for_layouts(
      [](const auto& layout, const block& where, bool inside, std::int64_t apart, bool descending) {
        table gate(1, inside, apart, descending), state(2, inside, apart, descending);
        float same = 7;
        scan r;
        r.gate = gate.input(), r.input = {&same, {}}, r.state = state.output();
        const scan here = detail::standing_at(r, where.begin, where.channel);
        const detail::staged_block<scan> staged(here, layout, where, lanes, gate.steps, true);
        const scan& copy = staged.recurrence();
        CHECK(same_position(copy.input, here.input));  // uniform over lanes, so not staged
        CHECK(!copy.resets.present());
        if (side_by_side(layout, gate.strides, where)) {
          CHECK(same_position(copy.gate, here.gate));
          CHECK(copy.state.data == here.state.data);
          return;
        }
        CHECK(layout.stride_of(copy.gate.strides) == layout.unit());
        CHECK(copy.state.data != here.state.data);
        CHECK(layout.stride_of(copy.state.strides) == layout.unit());
        const std::int64_t width = layout.along == lane_axis::time ? 1 : lanes;
        for (std::int64_t t = where.begin; t < where.end; ++t)
          for (std::int64_t c = 0; c < width; ++c)
            REQUIRE(value_at(copy.gate, t - where.begin, c) ==
                    (c < where.channels ? gate.at(t, where.channel + c) : 0));
      });
}

TEST_CASE("only outputs are written back", "[stage]") {
  for_layouts(
      [](const auto& layout, const block& where, bool inside, std::int64_t apart, bool descending) {
        for (const action what : {action::store, action::add, action::sum_time, action::nothing}) {
          table state(2, inside, apart, descending);
          const std::vector<float> before = state.memory;
          float gate = 0;
          scan r;
          r.gate = r.input = {&gate, {}};
          r.state = state.output(what);
          r.state.stream = true;
          const scan here = detail::standing_at(r, where.begin, where.channel);
          detail::staged_block<scan> staged(here, layout, where, lanes, state.steps, true);
          const auto& copy = staged.recurrence().state;
          const bool in_place = what == action::sum_time || what == action::nothing ||
                                side_by_side(layout, state.strides, where);
          CHECK((copy.data == here.state.data) == in_place);
          CHECK(copy.stream == in_place);  // staged outputs are in cache and not streamed
          if (!in_place)
            for (std::int64_t t = where.begin; t < where.end; ++t)
              for (std::int64_t c = 0; c < where.channels; ++c) {
                float& position =
                    copy.data[(t - where.begin) * copy.strides.time + c * copy.strides.channel];
                if (what == action::add) REQUIRE(position == state.at(t, where.channel + c));
                position = -static_cast<float>(100 * t + c);
              }
          CHECK(state.memory == before);
          staged.write_back();
          std::vector<float> expected = before;
          if (!in_place)
            for (std::int64_t t = where.begin; t < where.end; ++t)
              for (std::int64_t c = 0; c < where.channels; ++c)
                expected[static_cast<std::size_t>(&state.at(t, where.channel + c) -
                                                  state.memory.data())] =
                    -static_cast<float>(100 * t + c);
          REQUIRE(state.memory == expected);
        }
      });
}

TEST_CASE("outputs are not staged if writes are not requested", "[stage]") {
  table state(2, false, 3, false);
  float gate = 0;
  scan r;
  r.gate = r.input = {&gate, {}};
  r.state = state.output();
  const std::vector<float> before = state.memory;
  detail::staged_block<scan> staged(r, by_channel, {0, 4, 0, 5}, lanes, state.steps, false);
  CHECK(same_position(staged.recurrence().state, r.state));
  staged.write_back();
  CHECK(state.memory == before);
}

TEST_CASE("an output that aliases an input does not change the staged input", "[stage]") {
  for (const auto& layout : {by_channel, by_time, by_time_reversed}) {
    table both(1, false, 3, false);
    const block where{3, 12, 2, layout.along == lane_axis::time ? 1 : 7};
    float gate = 0;
    scan r;
    r.gate = {&gate, {}}, r.input = both.input(), r.state = both.output();
    detail::staged_block<scan> staged(detail::standing_at(r, where.begin, where.channel), layout,
                                      where, lanes, both.steps, true);
    const scan& copy = staged.recurrence();
    for (std::int64_t t = where.begin; t < where.end; ++t)
      for (std::int64_t c = 0; c < where.channels; ++c) {
        const std::int64_t row = t - where.begin;
        copy.state.data[row * copy.state.strides.time + c * copy.state.strides.channel] = -1;
        REQUIRE(value_at(copy.input, row, c) == both.at(t, where.channel + c));
      }
    staged.write_back();
    CHECK(both.at(where.begin, where.channel) == -1);
    CHECK(both.at(where.end - 1, where.channel + where.channels - 1) == -1);
    CHECK(both.at(where.end, where.channel) != -1);
  }
}

TEST_CASE("neighbours within the sequence are staged", "[stage]") {
  for_layouts(
      [](const auto& layout, const block& where, bool inside, std::int64_t apart, bool descending) {
        table state(1, inside, apart, descending), gate(2, inside, apart, descending);
        adjoint r;
        r.gate = gate.input(), r.state = state.input(), r.steps = state.steps;
        for (const std::int64_t steps : {where.end, state.steps}) {
          const adjoint here = detail::standing_at(r, where.begin, where.channel);
          const detail::staged_block<adjoint> staged(here, layout, where, lanes, steps, true);
          const auto& copy = staged.recurrence().state;
          for (std::int64_t t = where.begin - 1; t <= where.end; ++t) {
            if (t < 0 || t >= steps) continue;
            for (std::int64_t c = 0; c < where.channels; ++c)
              REQUIRE(value_at(copy, t - where.begin, c) == state.at(t, where.channel + c));
          }
          // The gate, which is staged without neighbours, has the elements of the block.
          for (std::int64_t t = where.begin; t < where.end; ++t)
            for (std::int64_t c = 0; c < where.channels; ++c)
              REQUIRE(value_at(staged.recurrence().gate, t - where.begin, c) ==
                      gate.at(t, where.channel + c));
        }
      });
}

TEST_CASE("staged reset masks include the reset beyond the sequence if there is one", "[stage]") {
  for (const auto& layout : {by_channel, by_time, by_time_reversed})
    for (const int shift : {-1, 0, 1})
      for (const bool one_more : {false, true}) {
        INFO("shift " << shift << ", one more " << one_more);
        const table as(0, false, 2, false);
        const auto memory = std::make_unique<bool[]>(as.memory.size());
        for (std::size_t i = 0; i < as.memory.size(); ++i) memory[i] = i * i % 7 < 3;
        const auto mark = [&](std::int64_t t, std::int64_t c) {
          return &memory[static_cast<std::size_t>(as.first + t * as.strides.time +
                                                  c * as.strides.channel)];
        };
        // The sequence is all steps of the table except the first and the last.
        const std::int64_t steps = as.steps - 2;
        float same = 1;
        scan r;
        r.gate = r.input = {&same, {}};
        r.resets.reset_mask = {mark(1, 0), as.strides};
        r.resets.shift = shift;
        if (!one_more && shift != 0) r.resets.step_without_reset = shift < 0 ? 0 : steps - 1;
        for (std::int64_t begin = 0; begin < steps; begin += 9) {
          const block where{begin, std::min(begin + 9, steps), 3,
                            layout.along == lane_axis::time ? 1 : 5};
          const scan here = detail::standing_at(r, where.begin, where.channel);
          const detail::staged_block<scan> staged(here, layout, where, lanes, steps, true);
          const auto& resets = staged.recurrence().resets;
          CHECK(resets.reset_mask.data != here.resets.reset_mask.data);
          for (std::int64_t t = where.begin; t < where.end; ++t)
            for (std::int64_t c = 0; c < where.channels; ++c)
              if (t != resets.step_without_reset)
                REQUIRE(value_at(resets.reset_mask, t - where.begin + shift, c) ==
                        *mark(1 + t + shift, where.channel + c));
        }
      }
}

TEST_CASE("pieces cover every element once, and contiguous layouts are not staged", "[stage]") {
  table input(1, true, 1, false), state(2, true, 1, false);
  float gate = 0;
  scan r;
  r.gate = {&gate, {}}, r.input = input.input(), r.state = state.output();
  const auto check = [&](const detail::lane_layout& layout, const block& where) {
    INFO("channels " << where.channels << ", whole " << layout.whole);
    std::vector<int> seen(static_cast<std::size_t>(state.steps * state.channels));
    const auto count = [&](const scan& here, const block& piece) {
      if (layout.along == lane_axis::channel && !layout.whole) {
        CHECK(piece.channels <= lanes);
        CHECK(piece.end - piece.begin <= rows);
      }
      if (layout.whole) CHECK(here.input.data == &input.at(piece.begin, piece.channel));
      for (std::int64_t t = piece.begin; t < piece.end; ++t)
        for (std::int64_t c = 0; c < piece.channels; ++c) {
          REQUIRE(value_at(here.input, t - piece.begin, c) == input.at(t, piece.channel + c));
          ++seen[static_cast<std::size_t>(t * state.channels + piece.channel + c)];
        }
    };
    if (layout.along == lane_axis::time)
      detail::for_time_pieces<lanes>(r, where, layout, state.steps, true, count);
    else
      detail::for_channel_pieces<lanes>(r, where, layout, state.steps, true, count);
    for (std::int64_t t = 0; t < state.steps; ++t)
      for (std::int64_t c = 0; c < state.channels; ++c)
        REQUIRE(seen[static_cast<std::size_t>(t * state.channels + c)] ==
                (t >= where.begin && t < where.end && c >= where.channel &&
                 c < where.channel + where.channels));
  };
  for (const bool whole : {false, true})
    for (const std::int64_t channels : {1, lanes - 1, lanes, lanes + 1, 2 * lanes + 3})
      for (const std::int64_t end : {2, 18, 35}) {
        check({lane_axis::channel, false, whole}, {2, end, 1, channels});
        check({lane_axis::time, false, whole}, {2, end, 1, channels});
      }
}

TEST_CASE("the step whose neighbour is outside the sequence is a separate part", "[stage]") {
  table state(1, true, 1, false);
  adjoint r;
  r.state = state.input();
  for (std::int64_t begin = 0; begin < 4; ++begin)
    for (std::int64_t end = begin; end < 8; ++end) {
      const block piece{begin, end, 2, 3};
      std::int64_t next = begin;
      detail::for_edges(detail::standing_at(r, begin, 2), piece, 7,
                        [&](const adjoint& here, const block& part, bool within) {
                          CHECK(part.begin == next);
                          CHECK(part.end > part.begin);
                          CHECK((part.channel == 2 && part.channels == 3));
                          CHECK(here.state.data == &state.at(part.begin, 2));
                          CHECK(within == (part.end < 7));
                          if (!within) CHECK(part.end - part.begin == 1);
                          next = part.end;
                        });
      CHECK(next == end);
    }
}
