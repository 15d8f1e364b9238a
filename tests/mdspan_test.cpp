// SPDX-License-Identifier: BSD-3-Clause
// Tests of views of a minimal mdspan-like type, and of std::mdspan if the standard library has it.
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>
#include <version>

#ifdef __cpp_lib_mdspan
#include <mdspan>
#endif

#include <scanrec/mdspan.hpp>
#include <scanrec/scan.hpp>

#include "catch.hpp"

namespace {

using namespace scanrec;

/// The minimal interface that view_of needs, with the strides of layout_right, layout_left or
/// layout_stride. Extents are unsigned, as is common for std::mdspan.
template <class T, std::size_t Rank, class Index = unsigned>
class array_of {
 public:
  using element_type = T;
  using sizes = std::array<Index, Rank>;

  array_of(T* data, const sizes& shape, const sizes& apart)
      : data_(data), shape_(shape), strides_(apart) {}
  static array_of right(T* data, const sizes& shape) {
    sizes apart{};
    Index next = 1;
    for (std::size_t i = Rank; i-- > 0; next *= shape[i]) apart[i] = next;
    return {data, shape, apart};
  }
  static array_of left(T* data, const sizes& shape) {
    sizes apart{};
    Index next = 1;
    for (std::size_t i = 0; i < Rank; next *= shape[i++]) apart[i] = next;
    return {data, shape, apart};
  }

  static constexpr std::size_t rank() { return Rank; }
  static constexpr bool is_always_strided() { return true; }
  [[nodiscard]] Index extent(std::size_t i) const { return shape_[i]; }
  [[nodiscard]] Index stride(std::size_t i) const { return strides_[i]; }
  [[nodiscard]] T* data_handle() const { return data_; }

 private:
  T* data_;
  sizes shape_, strides_;
};

/// Types that view_of rejects: without strides, not always strided, or with an accessor that
/// returns values.
struct unstrided {
  using element_type = float;
  static constexpr std::size_t rank() { return 1; }
  [[nodiscard]] std::size_t extent(std::size_t) const { return 1; }
  [[nodiscard]] float* data_handle() const { return nullptr; }
};
struct maybe_strided : unstrided {
  static constexpr bool is_always_strided() { return false; }
  [[nodiscard]] std::size_t stride(std::size_t) const { return 1; }
};
struct scaled : array_of<float, 1> {
  using reference = float;
};
static_assert(!detail::always_strided<unstrided>() && !detail::always_strided<maybe_strided>());
static_assert(detail::always_strided<scaled>() && !detail::elements_in_memory<scaled>());
static_assert(detail::elements_in_memory<array_of<float, 1>>());
static_assert(!detail::mdspan_like<std::vector<float>>);

template <class View>
void check(const View& v, const void* data, const extents& shape, const strides& apart) {
  CHECK(v.data == data);
  CHECK(v.shape == shape);
  CHECK(v.strides == apart);
}

}  // namespace

TEST_CASE("the rank of an mdspan determines the axes of its view", "[mdspan]") {
  float x[1] = {};
  check(view_of(array_of<float, 1>::right(x, {7})), x, {.time = 7}, {.time = 1});
  check(view_of(array_of<float, 2>::right(x, {7, 3})), x, {.time = 7, .channel = 3},
        {.time = 3, .channel = 1});
  check(view_of(array_of<float, 2>::left(x, {7, 3})), x, {.time = 7, .channel = 3},
        {.time = 1, .channel = 7});
  check(view_of(array_of<float, 3>::right(x, {2, 7, 3})), x, {2, 7, 3}, {21, 3, 1});
  check(view_of(array_of<float, 3>::left(x, {2, 7, 3})), x, {2, 7, 3}, {1, 2, 14});
  check(view_of(array_of<float, 4>::right(x, {5, 2, 7, 3})), x, {2, 7, 3, 5}, {21, 3, 1, 42});
  check(view_of(array_of<float, 2, long>(x, {7, 3}, {-6, 0})), x, {.time = 7, .channel = 3},
        {.time = -6});
  check(view_of(array_of<float, 3>::right(nullptr, {2, 0, 3})), nullptr, {2, 0, 3}, {0, 3, 1});
  check(state_view_of(array_of<float, 1>::right(x, {3})), x, {.channel = 3}, {.channel = 1});
  check(state_view_of(array_of<float, 2>::left(x, {2, 3})), x, {.batch = 2, .channel = 3},
        {.batch = 1, .channel = 2});
  check(state_view_of(array_of<float, 3>::right(x, {5, 2, 3})), x,
        {.batch = 2, .channel = 3, .group = 5}, {.batch = 3, .channel = 1, .group = 6});
  const auto fixed = view_of(array_of<const float, 1>::right(x, {1}));
  static_assert(std::is_same_v<decltype(fixed), const sequence_view<const float>>);
}

TEST_CASE("linear_scan runs on views of mdspans of both layouts", "[mdspan]") {
  std::vector<float> gate(21, 0.5f), input(21, 1), state(21), last(3);
  linear_scan(view_of(array_of<float, 2>::right(gate.data(), {7, 3})),
              view_of(array_of<float, 2>::left(input.data(), {7, 3})),
              view_of(array_of<float, 2>::right(state.data(), {7, 3})),
              {.final_state = state_view_of(array_of<float, 1>::right(last.data(), {3}))});
  CHECK(state[3] == 1.5f);
  CHECK(last[2] == state[20]);
}

#ifdef __cpp_lib_mdspan
TEST_CASE("views of std::mdspan have its extents and strides", "[mdspan]") {
  std::vector<float> x(42);
  const std::mdspan rows(x.data(), 2, 7, 3);
  check(view_of(rows), x.data(), {2, 7, 3}, {21, 3, 1});
  const std::mdspan<float, std::dextents<int, 2>, std::layout_left> columns(x.data(), 14, 3);
  check(view_of(columns), x.data(), {.time = 14, .channel = 3}, {.time = 1, .channel = 14});
  using apart = std::layout_stride::mapping<std::dextents<int, 2>>;
  const std::mdspan every_other(x.data(), apart({7, 3}, std::array{6, 1}));
  check(view_of(every_other), x.data(), {.time = 7, .channel = 3}, {.time = 6, .channel = 1});
  check(state_view_of(columns), x.data(), {.batch = 14, .channel = 3}, {.batch = 1, .channel = 14});
}
#endif
