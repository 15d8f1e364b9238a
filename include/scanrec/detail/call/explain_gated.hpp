// SPDX-License-Identifier: BSD-3-Clause
// What is told of calls of gated_scan and gated_scan_vjp, of plans of the first and of packed()
// that do not fit.
#pragma once

#include <type_traits>

#include <scanrec/cells/cell.hpp>
#include <scanrec/detail/call/explain.hpp>
#include <scanrec/detail/call/explain_options.hpp>
#include <scanrec/detail/call/gated.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

template <class A>
concept may_begin_a_gated_call = gated_cell<A> || may_begin_a_call<A>;

template <class Cell, class Arrays>
struct gated_asked : option_views<void> {
  using arrays = void;
  using initial = void;
};
template <class Cell, arrays_of_cell<Cell> Arrays>
requires requires {
  typename Cell::template arrays<sequence_view<float>>;  // what lacks them is told elsewhere
}
struct gated_asked<Cell, Arrays> : option_views<compute_t<stored_in<Cell, Arrays>>> {
  using all = gated_gradients<Cell, stored_in<Cell, Arrays>>;
  using arrays = decltype(all::arrays);
  using initial = decltype(all::initial_grad);
};
template <class Given>
using gated_asked_of = gated_asked<typename Given::template at<0>, typename Given::template at<1>>;

template <class Given>
struct given_gated_options {
  using views = gated_asked_of<Given>;
  given_order order{};
  given_initial_state<typename views::states_to_read> initial_state{};
  given_final_state<typename views::states_to_write> final_state{};
  given_resets<sequence_view<const bool>> resets{};
  given_zoneout<sequence_view<const bool>> zoneout{};
  given_reverse reverse{};
};
template <class Given>
struct given_gated_vjp_options {
  using views = gated_asked_of<Given>;
  given_order order{};
  given_initial_state<typename views::states_to_read> initial_state{};
  given_final_grad<typename views::states_to_read> final_grad{};
  given_resets<sequence_view<const bool>> resets{};
  given_zoneout<sequence_view<const bool>> zoneout{};
  given_reverse reverse{};
};
/// The gradients of the arrays are a struct of views, which braces may stand for.
template <class Asked>
struct given_arrays_grad {
  constexpr given_arrays_grad() = default;
  template <class Given>
  constexpr given_arrays_grad(const Given&) {  // NOLINT(google-explicit-constructor)
    static_assert(fits_option<Given, Asked>,
                  "scanrec: option 'arrays': expected the gradients of the cell's arrays, as "
                  "packed<Cell>(view of elements to write), got something else");
  }
};
template <class Given>
struct given_gated_gradients {
  using asked = gated_asked_of<Given>;
  given_arrays_grad<typename asked::arrays> arrays{};
  given_initial_grad<typename asked::initial> initial_grad{};
  given_update update{};
};
/// Views in braces, where the type of a cell's arrays is wanted.
struct given_braces {
  struct anything {
    anything() = default;
    template <class Given>
    constexpr anything(const Given&) {}  // NOLINT(google-explicit-constructor)
  };
  anything first, second{}, third{}, fourth{};
};

template <class Given>
inline constexpr bool begins_a_gated_scan = gated_cell<typename Given::template at<0>>&&
    arrays_of_cell<typename Given::template at<1>, typename Given::template at<0>>;
template <class Given>
inline constexpr bool arrays_of_a_gated_scan = begins_a_gated_scan<Given>&& output_of_cell<
    typename Given::template at<2>, typename Given::template at<0>, typename Given::template at<1>>;
template <class Given>
inline constexpr bool arrays_of_a_gated_adjoint = begins_a_gated_scan<Given>&&
    kept_states<typename Given::template at<2>>&& sequence_argument<typename Given::template at<3>>;

}  // namespace scanrec::detail::inline SCANREC_ABI

#define SCANREC_EXPLAIN_CELL_(given, call)                                                         \
  using cell = typename given::template at<0>;                                                     \
  using arrays [[maybe_unused]] = typename given::template at<1>;                                  \
  static_assert(gated_cell<cell>, "scanrec: " call                                                 \
                                  ": argument 'cell': expected one of cells/, as fo_pooling<>{}, " \
                                  "or your own (docs/qrnn.md), got something else");               \
  static_assert(!gated_cell<cell> || detail::begins_a_gated_scan<given>,                           \
                "scanrec: " call                                                                   \
                ": argument 'arrays': expected the arrays of the cell, as "                        \
                "packed<Cell>(sequence_view(x, extents)) or Cell::arrays<sequence_view<T>>{...}, " \
                "of float, double, bfloat16 or float16, got something else")
#define SCANREC_EXPLAIN_GATED_(given, call)                                                    \
  static_assert(given::count >= 3,                                                             \
                "scanrec: " call                                                               \
                ": expected cell, arrays, output (a backend before, what is kept and options " \
                "behind), got fewer arguments");                                               \
  SCANREC_EXPLAIN_CELL_(given, call);                                                          \
  using output = typename given::template at<2>;                                               \
  SCANREC_EXPECT_TO_WRITE(output, call, "output");                                             \
  static_assert(!detail::begins_a_gated_scan<given> || !writable_sequence_argument<output> ||  \
                    detail::a_view_of_no_elements<output> ||                                   \
                    detail::arrays_of_a_gated_scan<given>,                                     \
                "scanrec: " call                                                               \
                ": argument 'output': expected the compute type of the cell's arrays (float "  \
                "for bfloat16 and float16), got another")
#define SCANREC_EXPLAIN_GATED_VJP_(given, call)                                                 \
  static_assert(given::count >= 5,                                                              \
                "scanrec: " call                                                                \
                ": expected cell, arrays, kept, output_grad, gradients (a backend before, "     \
                "options behind), got fewer arguments");                                        \
  SCANREC_EXPLAIN_CELL_(given, call);                                                           \
  using kept = typename given::template at<2>;                                                  \
  using output_grad = typename given::template at<3>;                                           \
  static_assert(detail::kept_states<kept>,                                                      \
                "scanrec: " call                                                                \
                ": argument 'kept': expected memory::store{states} or "                         \
                "memory::recompute{checkpoints}, as the forward call had, got something else"); \
  SCANREC_EXPECT_IF_ANY(output_grad, call, "output_grad")

/// The overloads that explain a call with a cell, its arrays and an output; `kept` of those that
/// keep states.
#define SCANREC_EXPLAIN_GATED_SCAN(call, kept_too)                                          \
  template <detail::may_begin_a_gated_call First, class... Rest>                            \
  void call(const First&, const Rest&...) {                                                 \
    using given = detail::given_arrays<First, Rest...>;                                     \
    SCANREC_EXPLAIN_GATED_(given, #call);                                                   \
    static_assert(!detail::arrays_of_a_gated_scan<given>, "scanrec: " #call kept_too);      \
  }                                                                                         \
  template <detail::may_begin_a_gated_call First, class Third, class... Rest>               \
  void call(const First&, const std::type_identity_t<detail::given_braces>&, const Third&,  \
            const Rest&...) {                                                               \
    static_assert(std::is_void_v<First>,                                                    \
                  "scanrec: " #call                                                         \
                  ": argument 'arrays': expected the type before the braces, as "           \
                  "fo_pooling<>::arrays<sequence_view<const float>>{x, f, o}, got braces"); \
  }

#if !defined(__CUDACC__)  // see explain.hpp
namespace scanrec::inline SCANREC_ABI {

template <gated_cell Cell, class Given>
requires detail::no_view<Given>
typename Cell::template arrays<sequence_view<float>> packed(const Given&) {
  SCANREC_EXPECT_VIEW_(Given, "packed", "all");
  return {};
}

SCANREC_EXPLAIN_GATED_SCAN(
    gated_scan,
    ": argument 'kept' or 'options': expected none, memory::store{states to write} or "
    "memory::recompute{checkpoints to write}, and gated_options behind, got something else")
template <detail::may_begin_a_gated_call First, class Second, class Third, class Fourth,
          class... Rest>
requires(!backend<First>) void gated_scan(
    const First&, const Second&, const Third&, const Fourth&,
    const std::type_identity_t<detail::given_gated_options<detail::given_arrays<First, Second>>>&,
    const Rest&...) {
  using given = detail::given_arrays<First, Second, Third, Fourth>;
  SCANREC_EXPLAIN_GATED_(given, "gated_scan");
  SCANREC_EXPLAIN_BRACES_("gated_scan", "options", "gated_options", arrays_of_a_gated_scan<given>);
}
template <backend First, class Second, class Third, class Fourth, class Fifth, class... Rest>
void gated_scan(
    const First&, const Second&, const Third&, const Fourth&, const Fifth&,
    const std::type_identity_t<detail::given_gated_options<detail::given_arrays<Second, Third>>>&,
    const Rest&...) {
  using given = detail::given_arrays<Second, Third, Fourth, Fifth>;
  SCANREC_EXPLAIN_GATED_(given, "gated_scan");
  SCANREC_EXPLAIN_BRACES_("gated_scan", "options", "gated_options", arrays_of_a_gated_scan<given>);
}
/// Options where what is kept should be.
template <gated_cell First, class Second, class Third, class... Rest>
void gated_scan(
    const First&, const Second&, const Third&,
    const std::type_identity_t<detail::given_gated_options<detail::given_arrays<First, Second>>>&,
    const Rest&...) {
  static_assert(std::is_void_v<First>,
                "scanrec: gated_scan: argument 'kept': expected none, memory::store{states} or "
                "memory::recompute{checkpoints} before the options, got options");
}
template <backend First, gated_cell Second, class Third, class Fourth, class... Rest>
void gated_scan(
    const First&, const Second&, const Third&, const Fourth&,
    const std::type_identity_t<detail::given_gated_options<detail::given_arrays<Second, Third>>>&,
    const Rest&...) {
  static_assert(std::is_void_v<First>,
                "scanrec: gated_scan: argument 'kept': expected none, memory::store{states} or "
                "memory::recompute{checkpoints} before the options, got options");
}

// ---- gated_scan_vjp: gradients in braces, and options in braces behind them --------------------

template <detail::may_begin_a_gated_call First, class... Rest>
void gated_scan_vjp(const First&, const Rest&...) {
  using given = detail::given_arrays<First, Rest...>;
  SCANREC_EXPLAIN_GATED_VJP_(given, "gated_scan_vjp");
  static_assert(!detail::arrays_of_a_gated_adjoint<given>,
                "scanrec: gated_scan_vjp: argument 'gradients' or 'options': expected "
                "{.arrays = packed<Cell>(view), .initial_grad = view}, and gated_vjp_options "
                "behind, got something else");
}
template <detail::may_begin_a_gated_call First, class Second, class Third, class Fourth,
          class... Rest>
requires(!backend<First>) void gated_scan_vjp(
    const First&, const Second&, const Third&, const Fourth&,
    const std::type_identity_t<detail::given_gated_gradients<detail::given_arrays<First, Second>>>&,
    const Rest&...) {
  using given = detail::given_arrays<First, Second, Third, Fourth, void>;
  SCANREC_EXPLAIN_GATED_VJP_(given, "gated_scan_vjp");
  SCANREC_EXPLAIN_BRACES_("gated_scan_vjp", "gradients", "gated_gradients",
                          arrays_of_a_gated_adjoint<given>);
}
template <backend First, class Second, class Third, class Fourth, class Fifth, class... Rest>
void gated_scan_vjp(
    const First&, const Second&, const Third&, const Fourth&, const Fifth&,
    const std::type_identity_t<detail::given_gated_gradients<detail::given_arrays<Second, Third>>>&,
    const Rest&...) {
  using given = detail::given_arrays<Second, Third, Fourth, Fifth, void>;
  SCANREC_EXPLAIN_GATED_VJP_(given, "gated_scan_vjp");
  SCANREC_EXPLAIN_BRACES_("gated_scan_vjp", "gradients", "gated_gradients",
                          arrays_of_a_gated_adjoint<given>);
}
template <detail::may_begin_a_gated_call First, class Second, class Third, class Fourth,
          class... Rest>
requires(!backend<First>) void gated_scan_vjp(
    const First&, const Second&, const Third&, const Fourth&,
    const std::type_identity_t<detail::given_gated_gradients<detail::given_arrays<First, Second>>>&,
    const std::type_identity_t<
        detail::given_gated_vjp_options<detail::given_arrays<First, Second>>>&,
    const Rest&...) {
  using given = detail::given_arrays<First, Second, Third, Fourth, void>;
  SCANREC_EXPLAIN_GATED_VJP_(given, "gated_scan_vjp");
  SCANREC_EXPLAIN_BRACES_("gated_scan_vjp", "options", "gated_vjp_options",
                          arrays_of_a_gated_adjoint<given>);
}

}  // namespace scanrec::inline SCANREC_ABI
#endif
