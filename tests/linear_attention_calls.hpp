// SPDX-License-Identifier: BSD-3-Clause
// Calls of linear attention for tests: random problems, arrays of any element type at random
// strides, and comparisons with the reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <scanrec/linear_attention.hpp>

#include "catch.hpp"
#include "guarded.hpp"
#include "linear_attention_kernels.hpp"
#include "linear_attention_reference.hpp"
#include "reference.hpp"

namespace attention_calls {

using namespace scanrec;  // tests only
using attention_reference::inputs;
using attention_reference::loop;
using attention_reference::problem;
using attention_reference::tensor;
using reference::generator;
using tested::guarded;

/// Element types of arrays. `own` is the compute type; the others are for V = float. `mixed`
/// chooses one for each array of a call at random.
enum class element { own, bfloat, half, mixed };

/// How arrays lie in memory.
enum class layout { heads_inside, heads_outside, random };

inline double uniform(generator& bits, double low, double high) {
  return low + (high - low) * (bits() * 0x1p-32);
}

/// An array of linear attention whose element type is chosen at run time. It lies next to an
/// inaccessible page.
template <class V>
class stored_array {
  using single = std::variant<std::monostate, guarded<float>, guarded<bfloat16>, guarded<float16>>;
  using any = std::conditional_t<std::is_same_v<V, float>, single,
                                 std::variant<std::monostate, guarded<double>>>;

 public:
  stored_array() = default;  // absent
  stored_array(const extents& shape, const strides& by, element type, generator& bits)
      : shape_(shape) {
    of_ = guarded<V>();
    if constexpr (std::is_same_v<V, float>) {
      if (type == element::bfloat) of_ = guarded<bfloat16>();
      if (type == element::half) of_ = guarded<float16>();
    }
    visit([&]<class S>(guarded<S>& of) { of = guarded<S>(shape, by, bits); });
  }

  [[nodiscard]] bool absent() const { return of_.index() == 0; }
  [[nodiscard]] const extents& shape() const { return shape_; }
  /// A view of all steps, or of steps [first, last). E is V or const V.
  template <class E = V>
  [[nodiscard]] stored_sequence<E> view() const {
    return view<E>(0, shape_.time);
  }
  template <class E = V>
  [[nodiscard]] stored_sequence<E> view(std::int64_t first, std::int64_t last) const {
    stored_sequence<E> to;
    visit([&](auto& of) { to = of.view().steps(first, last); });
    return to;
  }
  [[nodiscard]] double get(std::int64_t b, std::int64_t t, std::int64_t c, std::int64_t h) const {
    double x = 0;
    visit([&](auto& of) { x = static_cast<double>(reference::widened(of.view().at(b, t, c, h))); });
    return x;
  }
  void set(std::int64_t b, std::int64_t t, std::int64_t c, std::int64_t h, double x) {
    visit([&]<class S>(guarded<S>& of) { of.view().at(b, t, c, h) = rounded<S>(x); });
  }
  /// Sets all elements to f(b, t, c, h), and returns them as stored.
  template <class F>
  tensor<double> fill(F f) {
    for_all([&](auto... at) { set(at..., f(at...)); });
    return values();
  }
  [[nodiscard]] tensor<double> values() const {
    tensor<double> to(shape_);
    for_all([&](auto... at) { to(at...) = get(at...); });
    return to;
  }
  template <class F>
  void for_all(F f) const {
    for (std::int64_t b = 0; b < shape_.batch; ++b)
      for (std::int64_t t = 0; t < shape_.time; ++t)
        for (std::int64_t c = 0; c < shape_.channel; ++c)
          for (std::int64_t h = 0; h < shape_.group; ++h) f(b, t, c, h);
  }
  /// The bytes of the elements.
  [[nodiscard]] std::string elements() const {
    std::string bytes;
    visit([&](auto& of) { bytes = of.elements(); });
    return bytes;
  }
  [[nodiscard]] bool gaps_untouched() const {
    bool untouched = true;
    visit([&](auto& of) { untouched = of.gaps_untouched(); });
    return untouched;
  }
  [[nodiscard]] double storage_roundoff() const {
    double u = 0;
    visit([&]<class S>(const guarded<S>&) {
      u = static_cast<double>(reference::storage_roundoff<S>());
    });
    return u;
  }

 private:
  template <class S>
  static S rounded(double x) {
    if constexpr (std::is_same_v<S, double>)
      return x;
    else
      return S(static_cast<float>(x));
  }
  template <class F>
  void visit(F f) const {
    std::visit(
        [&]<class A>(A& of) {
          if constexpr (!std::is_same_v<std::remove_const_t<A>, std::monostate>)
            f(const_cast<std::remove_const_t<A>&>(of));
        },
        of_);
  }

  extents shape_{0, 0, 0, 0};
  any of_;
};

/// A random problem of at most `most` multiply-adds per state update.
inline problem random_problem(generator& bits, double most) {
  const auto any = [&](const auto& of) { return of[bits() % std::size(of)]; };
  const std::int64_t steps[]{0, 1, 2, 3, 7, 31, 32, 33, 50, 63, 64, 65, 96, 97, 100, 130};
  const std::int64_t widths[]{1,  2,  3,  4,  5,  7,  8,  15,  16,  17,  19,  31,  32, 33,
                              37, 47, 48, 49, 63, 64, 65, 101, 127, 128, 131, 192, 256};
  const std::int64_t heads[]{1, 1, 1, 2, 3, 4, 6};
  problem p;
  do {
    const std::int64_t batches[]{1, 1, 2, 3, 0};
    p.batch = any(batches), p.time = any(steps), p.dk = any(widths), p.dv = any(widths);
    p.heads = any(heads);
  } while (static_cast<double>(p.batch * p.heads * p.time * p.dk * p.dv) > most);
  do p.key_heads = 1 + bits() % p.heads;
  while (p.heads % p.key_heads != 0);
  if (bits() % 3 == 0)
    p.query_heads = p.heads * (1 + bits() % 3);
  else
    do p.query_heads = 1 + bits() % p.heads;
    while (p.heads % p.query_heads != 0);
  p.gate = bits() % 4 != 0, p.factors = bits() % 2 == 0, p.beta = bits() % 2 == 0;
  p.key_gates = p.gate && bits() % 2 == 0;
  p.normalise = bits() % 3 == 0, p.initial = bits() % 3 != 0;
  if (bits() % 2 == 0) p.scale = 1 / std::sqrt(static_cast<double>(p.dk));
  if (bits() % 2 == 0) p.resets = 1 + bits() % 2;
  if (bits() % 2 == 0) p.order = direction::reverse;
  if (bits() % 3 == 0) p.interval = 32 * (1 + bits() % 3);
  return p;
}

/// The type of the reference.
template <class V>
using wide = std::conditional_t<std::is_same_v<V, float>, double, long double>;

/// The largest and the root mean square of some numbers.
struct norms {
  double largest = 0, mean = 0;
  int count = 0;

  void add(double x) {
    if (!std::isnan(largest) && !(std::abs(x) <= largest)) largest = std::abs(x);
    mean += x * x, ++count;
  }
  [[nodiscard]] double root() const { return count == 0 ? 0 : std::sqrt(mean / count); }
};

/// Compares an array with the reference, for each head of each element of the batch axis. Errors
/// may be `factor` times those of a loop in V, plus the error of rounding to the stored type, plus
/// roundoff times `size`.
template <class V>
void check_array(const char* name, const stored_array<V>& got, const tensor<wide<V>>& want,
                 const tensor<V>& by_loop, double roundoffs, const tensor<wide<V>>& size) {
  const extents& shape = want.shape;
  const auto u = static_cast<double>(reference::roundoff<V>());
  for (std::int64_t b = 0; b < shape.batch; ++b)
    for (std::int64_t h = 0; h < shape.group; ++h) {
      norms error, of_loop, value;
      for (std::int64_t t = 0; t < shape.time; ++t)
        for (std::int64_t c = 0; c < shape.channel; ++c) {
          const wide<V> x = want(b, t, c, h);
          error.add(static_cast<double>(got.get(b, t, c, h) - x));
          of_loop.add(static_cast<double>(by_loop(b, t, c, h) - x));
          value.add(static_cast<double>(x));
        }
      const double stored = got.storage_roundoff();
      // Half of the spacing of subnormal numbers of float16.
      const double spacing = stored == 0x1p-11 ? 0x1p-25 : 0;
      const std::int64_t sequence = b * size.shape.batch / shape.batch;
      const double least = roundoffs * u * static_cast<double>(size(sequence, 0, 0, h)) + spacing;
      INFO(name << " of batch element " << b << ", head " << h << ": errors " << error.largest
                << ", " << error.root() << "; of the loop " << of_loop.largest << ", "
                << of_loop.root() << "; values " << value.largest << ", " << value.root());
      CHECK(error.largest <= 2 * of_loop.largest + stored * value.largest + least);
      CHECK(error.root() <= 2 * of_loop.root() + stored * value.root() + least);
    }
}

/// Gives a backend a workspace of NaNs next to an inaccessible page. The bytes end at a multiple of
/// 64 before that page.
template <class Backend>
std::shared_ptr<tested::guarded_memory> add_workspace(Backend& on, std::int64_t needed) {
  generator bits{static_cast<std::uint64_t>(needed)};
  const auto bytes = static_cast<std::size_t>(needed);
  auto memory = std::make_shared<tested::guarded_memory>((bytes + 63) / 64 * 64, bits);
  on.workspace = {memory->data(), bytes};
  return memory;
}

/// A factor of error bounds. A product of gates per key has up to 31 roundings, and the size of a
/// head is a mean over its channels, of which only few may have slow decay.
inline double key_factor(const problem& p) { return p.key_gates ? 2 : 1; }

/// A call of linear attention and its arrays.
template <class V>
struct call {
  problem p;
  inputs in;
  stored_array<V> q, k, v, gate, beta, initial, out_grad, final_grad;
  stored_array<V> out, final_state, states;
  guarded<bool> reset_mask;

  /// Random arrays.
  call(const problem& of, layout lies, element types, generator& bits) : p(of) {
    const auto make = [&](const extents& shape, bool state = false, bool may_broadcast = false) {
      return make_array(shape, lies, types, state, may_broadcast, bits);
    };
    const auto numbers = [&](double size) {
      return [&bits, size](auto...) { return uniform(bits, -size, size); };
    };
    const auto width = static_cast<double>(p.dk);
    // Norms of keys are at most 1, so that beta = 2 is stable.
    const double of_key = p.normalise ? (bits() % 3 == 0 ? 0.01 : 1) : 1 / std::sqrt(width);
    q = make(p.steps_of(p.dk, p.query_heads)), in.q = q.fill(numbers(of_key));
    k = make(p.steps_of(p.dk, p.key_heads));
    if (bits() % 5 == 0)
      in.k = k.fill([&](auto, auto, auto c, auto h) {  // equal keys
        return of_key * std::cos(static_cast<double>(3 * c + h));
      });
    else
      in.k = k.fill(numbers(of_key));
    v = make(p.steps_of(p.dv, p.heads)), in.v = v.fill(numbers(1));
    if (p.gate) {
      gate = make(p.steps_of(p.gate_channels(), p.heads), false, true);
      const unsigned kind = bits() % 3;
      in.gate = gate.fill([&](auto...) { return random_gate(kind, bits); });
    }
    if (p.beta) {
      beta = make(p.steps_of(1, p.heads), false, true);
      in.beta = beta.fill([&](auto...) {
        return bits() % 4 == 0 ? static_cast<double>(bits() % 3) : uniform(bits, 0, 1);
      });
    }
    if (p.initial) initial = make(p.states_of(), true), in.initial = initial.fill(numbers(1));
    in.resets.assign(static_cast<std::size_t>(p.batch * (p.time + 1)), 0);
    const unsigned rarely = bits() % 2 == 0 ? 7 : 40;
    for (char& reset : in.resets) reset = bits() % rarely == 0;
    if (p.resets > 0) {
      const extents shape{.batch = p.batch, .time = p.time + p.resets - 1};
      reset_mask = {shape, tested::random_strides(shape, tested::broadcasts::never, bits), bits};
      copy_resets();
    }
    out = make(p.steps_of(p.dv, p.out_heads())), final_state = make(p.states_of(), true);
    if (p.interval > 0) states = make(p.states_of(p.intervals()), true);
    out_grad = make(p.steps_of(p.dv, p.out_heads())), in.out_grad = out_grad.fill(numbers(1));
    final_grad = make(p.states_of(), true), in.final_grad = final_grad.fill(numbers(1));
  }

  static stored_array<V> make_array(const extents& shape, layout lies, element types, bool state,
                                    bool may_broadcast, generator& bits) {
    const auto type = types == element::mixed ? static_cast<element>(bits() % 3) : types;
    const bool outside = lies == layout::heads_outside || state;
    const auto allowed = may_broadcast ? tested::broadcasts::sometimes : tested::broadcasts::never;
    const strides by = lies == layout::random ? tested::random_strides(shape, allowed, bits)
                       : outside              ? heads_outside(shape)
                                              : heads_inside(shape);
    return stored_array<V>(shape, by, type, bits);
  }
  double random_gate(unsigned kind, generator& bits) const {
    double log = uniform(bits, kind == 0 ? -8 : kind == 1 ? -0.3 : -0.01, 0);
    if (kind == 0 && bits() % 6 == 0) {
      const double special[]{0, -1e4, -std::numeric_limits<double>::infinity(), -1e-4, 0.05};
      log = special[bits() % 5];
      if (p.factors && bits() % 2 == 0) return -std::exp(log);
    }
    return p.factors ? std::exp(log) : log;
  }
  /// Copies the inputs of another call of the same problem.
  void copy_inputs(const call& from) {
    const auto copy = [](const tensor<double>& x, stored_array<V>& to) {
      if (!to.absent()) to.fill([&](auto... at) { return x(at...); });
    };
    in = from.in;
    copy(in.q, q), copy(in.k, k), copy(in.v, v), copy(in.gate, gate), copy(in.beta, beta);
    copy(in.initial, initial), copy(in.out_grad, out_grad), copy(in.final_grad, final_grad);
    if (p.resets > 0) copy_resets();
  }
  /// Copies in.resets to the mask.
  void copy_resets() const {
    const auto mask = reset_mask.view();
    for (std::int64_t b = 0; b < mask.shape.batch; ++b)
      for (std::int64_t t = 0; t < mask.shape.time; ++t) mask.at(b, t, 0) = in.reset(p, b, t);
  }

  [[nodiscard]] linear_attention_arrays<V> arrays(std::int64_t first, std::int64_t last) const {
    const auto part = [&](const stored_array<V>& of) {
      return of.template view<const V>(first, last);
    };
    return {.query = part(q),
            .key = part(k),
            .value = part(v),
            .gate = part(gate),
            .beta = part(beta),
            .gates = p.factors ? gate_form::factor : gate_form::logarithm,
            .scale = static_cast<V>(p.scale),
            .normalise = p.normalise};
  }
  [[nodiscard]] linear_attention_arrays<V> arrays() const { return arrays(0, p.time); }
  [[nodiscard]] linear_attention_options<V> options() const {
    return {.order = p.order,
            .initial_state = initial.template view<const V>(),
            .final_state = final_state.view(),
            .resets = reset_mask.view(),
            .states = states.view(),
            .interval = p.interval};
  }
  template <class Backend>
  void run(Backend on) const {
    const auto memory =
        add_workspace(on, linear_attention_workspace_bytes(on, arrays(), out.view(), options()));
    linear_attention(on, arrays(), out.view(), options());
  }
  /// Compares the results with the reference.
  void check() const {
    const auto want = loop<wide<V>>(p, in).forward();
    const auto by_loop = loop<V>(p, in).forward();
    // A state is the sum of up to 32 terms and the state before them. With the delta rule, the
    // terms may cancel, and the loop may forget its own errors.
    const double u = (p.beta ? 12 : 6) * key_factor(p);
    check_array("out", out, want.out, by_loop.out, u, want.out_size);
    check_array("final_state", final_state, want.final_state, by_loop.final_state, u,
                want.state_size);
    if (p.interval > 0)
      check_array("states", states, want.states, by_loop.states, u, want.state_size);
    CHECK((out.gaps_untouched() && final_state.gaps_untouched() && states.gaps_untouched()));
  }
  /// The bytes of all results.
  [[nodiscard]] std::string results() const {
    return out.elements() + final_state.elements() + states.elements();
  }
};

/// A call of the adjoint. The inherited arrays are those of the forward call.
template <class V>
struct adjoint_call : call<V> {
  using call<V>::p;
  using call<V>::in;
  bool has_out_grad = true, has_final_grad = true;
  bool passes_states = false;  // those of the forward call
  stored_array<V> q_grad, k_grad, v_grad, gate_grad, beta_grad, initial_grad;

  adjoint_call(const problem& of, layout lies, element types, generator& bits)
      : call<V>(of, lies, types, bits) {
    const auto make = [&](const extents& shape, bool state = false) {
      return this->make_array(shape, lies, types, state, false, bits);
    };
    q_grad = make(p.steps_of(p.dk, p.query_heads)), k_grad = make(p.steps_of(p.dk, p.key_heads));
    v_grad = make(p.steps_of(p.dv, p.heads));
    if (p.gate) gate_grad = make(p.steps_of(p.gate_channels(), p.heads));
    if (p.beta) beta_grad = make(p.steps_of(1, p.heads));
    initial_grad = make(p.states_of(), true);
  }
  /// Makes out_grad or final_grad absent.
  void drop(bool of_out, bool of_final_state) {
    has_out_grad = !of_out, has_final_grad = !of_final_state;
    if (of_out) in.out_grad = {};
    if (of_final_state) in.final_grad = {};
  }
  /// Calls f(name, gradient, tensors...) for each array, with the same member of each `of`.
  template <class F, class... Of>
  void each(F f, Of&... of) {
    f("query_grad", q_grad, of.q...), f("key_grad", k_grad, of.k...);
    f("value_grad", v_grad, of.v...), f("gate_grad", gate_grad, of.gate...);
    f("beta_grad", beta_grad, of.beta...), f("initial_grad", initial_grad, of.initial...);
  }
  [[nodiscard]] linear_attention_gradients<V> gradients(unsigned mask = 63) const {
    const auto one = [&](int bit, const stored_array<V>& of) {
      return (mask >> bit & 1) != 0 ? of.view() : stored_sequence<V>();
    };
    return {.query = one(0, q_grad),
            .key = one(1, k_grad),
            .value = one(2, v_grad),
            .gate = one(3, gate_grad),
            .beta = one(4, beta_grad),
            .initial_state = one(5, initial_grad)};
  }
  [[nodiscard]] linear_attention_vjp_options<V> vjp_options() const {
    linear_attention_vjp_options<V> options{.order = p.order,
                                            .initial_state = this->initial.template view<const V>(),
                                            .resets = this->reset_mask.view()};
    if (has_final_grad) options.final_grad = this->final_grad.template view<const V>();
    if (passes_states)
      options.states = this->states.template view<const V>(), options.interval = p.interval;
    return options;
  }
  template <class Backend>
  void run_vjp(Backend on, update how = update::overwrite, unsigned mask = 63) const {
    auto to = gradients(mask);
    to.update = how;
    stored_sequence<const V> of_out;
    if (has_out_grad) of_out = this->out_grad.template view<const V>();
    const auto memory = add_workspace(
        on, linear_attention_vjp_workspace_bytes(on, this->arrays(), of_out, to, vjp_options()));
    linear_attention_vjp(on, this->arrays(), of_out, to, vjp_options());
  }
  /// Compares the gradients with the reference.
  void check_vjp() {
    const auto want = loop<wide<V>>(p, in).adjoint();
    const auto by_loop = loop<V>(p, in).adjoint();
    each(
        [&](const char* name, const stored_array<V>& got, const auto& is, const auto& in_loop,
            const auto& size) {
          if (got.absent()) return;
          check_array(name, got, is, in_loop, (p.beta ? 16 : 8) * key_factor(p), size);
          CHECK(got.gaps_untouched());
        },
        want.of, by_loop.of, want.size);
  }
  /// The bytes of all gradients.
  [[nodiscard]] std::string all_gradients() {
    std::string all;
    each([&](const char*, const stored_array<V>& of) { all += of.elements(); });
    return all;
  }
};

}  // namespace attention_calls
