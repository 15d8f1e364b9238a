// SPDX-License-Identifier: BSD-3-Clause
// Prints a hash of the bits of every kind of result, a line each: contraction.sh compares what
// differently compiled programs print. CONTRACTION_ALL adds element types and cells on `tiled`,
// which take minutes to compile.
#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include <scanrec/cells/log_space.hpp>
#include <scanrec/cells/min_gru.hpp>
#include <scanrec/cells/qrnn.hpp>
#include <scanrec/cells/rg_lru.hpp>
#include <scanrec/discretise.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/inclusive_scan.hpp>
#include <scanrec/linear_scan.hpp>
#include <scanrec/scan.hpp>
#include <scanrec/selective_scan.hpp>
#include <scanrec/sensitivity.hpp>
#include <scanrec/variants.hpp>

#if !defined(CONTRACTION_ALL)
#define CONTRACTION_ALL 0
#endif

namespace {

using namespace scanrec;

// ---- numbers and hashes -------------------------------------------------------------------------

class numbers {
 public:
  double next() {  // in (-1, 1), of few enough bits for a float
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (static_cast<double>(state_ >> 41) + 0.5) * 0x1p-22 - 1;
  }
  template <class T>
  void fill(T& x, double low, double high) {
    if constexpr (requires { x.imag(); }) {
      using R = typename T::value_type;
      const R re = static_cast<R>(middle(low, high)), im = static_cast<R>(next());
      x = {re, im};
    } else {
      x = static_cast<T>(static_cast<float>(middle(low, high)));
    }
  }

 private:
  double middle(double low, double high) { return low + (high - low) * 0.5 * (next() + 1); }
  std::uint64_t state_ = 20240229;
};

struct hash {
  std::uint64_t value = 14695981039346656037u;
  void add(const void* data, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
      value = (value ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211u;
  }
};
void print(const char* call, const char* of, const char* layout, const hash& h) {
  std::printf("%s %s, %s: %016llx\n", call, of, layout, static_cast<unsigned long long>(h.value));
}

constexpr extents all{.batch = 2, .time = 203, .channel = 19};
constexpr strides by_channel{.channel = 1};
struct layout {
  const char* name;
  scanrec::strides strides;
};
const layout layouts[]{{"channels last", channels_last(all)},
                       {"time contiguous", time_contiguous(all)}};

template <class T>
struct array {
  std::vector<T> values;
  array(numbers& from, double low, double high) : values(2 * 203 * 19) {
    for (T& x : values) from.fill(x, low, high);
  }
  array() : values(2 * 203 * 19) {}
  sequence_view<T> in(const layout& l) { return {values.data(), all, l.strides}; }
  // One value per channel.
  sequence_view<T> spread() { return {values.data(), all, by_channel}; }
  void add_to(hash& h) const { h.add(values.data(), values.size() * sizeof(T)); }
};
struct marks {
  std::unique_ptr<bool[]> values{new bool[2 * 203 * 19]};
  marks() {
    for (int i = 0; i < 2 * 203 * 19; ++i) values[i] = i < 1900 && i % 61 == 7;
  }
  sequence_view<const bool> in(const layout& l) { return {values.get(), all, l.strides}; }
};

// ---- the calls ----------------------------------------------------------------------------------

template <class T, class Backend>
void linear(const Backend& on, const char* name) {
  for (const layout& l : layouts) {
    numbers from;
    array<T> gate(from, -1, 1), input(from, -1, 1), state, grad(from, -1, 1), one, other;
    array<T> gate_tangent(from, -1, 1), input_tangent(from, -1, 1);
    marks cuts;
    hash forward, backward, sums, added, tangent;
    linear_scan(on, gate.in(l), input.in(l), state.in(l), {.resets = cuts.in(l)});
    state.add_to(forward);
    print("linear_scan", name, l.name, forward);

    linear_scan_vjp(on, gate.in(l), state.in(l), grad.in(l),
                    {.gate_grad = one.in(l), .input_grad = other.in(l)}, {.resets = cuts.in(l)});
    one.add_to(backward), other.add_to(backward);
    print("linear_scan_vjp", name, l.name, backward);
    linear_scan_vjp(on, gate.in(l), state.in(l), grad.in(l),
                    {.gate_grad = one.in(l), .update = update::accumulate});
    one.add_to(added);
    print("linear_scan_vjp, added", name, l.name, added);
    linear_scan_vjp(on, gate.spread(), state.in(l), grad.in(l),
                    {.gate_grad = one.spread(), .input_grad = other.in(l)});
    one.add_to(sums), other.add_to(sums);
    print("linear_scan_vjp, sums", name, l.name, sums);

    linear_scan_jvp(on, gate.in(l), state.in(l), gate_tangent.in(l), input_tangent.in(l),
                    other.in(l));
    other.add_to(tangent);
    print("linear_scan_jvp", name, l.name, tangent);
  }
}

template <class Cell, class Backend>
void gated(const Backend& on, Cell cell, const char* name) {
  for (const layout& l : layouts) {
    numbers from;
    constexpr std::size_t count = Cell::names.size();
    constexpr bool logarithms = std::is_same_v<Cell, log_space<>>;  // whose gates are 1 at most
    array<float> pre[4]{
        {from, -4, logarithms ? 0 : 4}, {from, -4, 4}, {from, -4, 4}, {from, -4, 0}};
    array<float> output, state, output_grad(from, -1, 1), grads[4];
    marks cuts;
    constexpr bool last_spread = std::is_same_v<Cell, rg_lru>;
    const auto arrays = [&](array<float>* of) {
      typename Cell::template arrays<sequence_view<float>> views;
      if constexpr (count == 2)
        views = {of[0].in(l), of[1].in(l)};
      else if constexpr (count == 3)
        views = {of[0].in(l), of[1].in(l), of[2].in(l)};
      else
        views = {of[0].in(l), of[1].in(l), of[2].in(l), last_spread ? of[3].spread() : of[3].in(l)};
      return views;
    };
    hash forward, backward;
    const memory::store kept{state.in(l)};
    gated_scan(on, cell, arrays(pre), output.in(l), kept, {.resets = cuts.in(l)});
    output.add_to(forward), state.add_to(forward);
    print("gated_scan", name, l.name, forward);
    gated_scan_vjp(on, cell, arrays(pre), kept, output_grad.in(l), {.arrays = arrays(grads)},
                   {.resets = cuts.in(l)});
    for (std::size_t i = 0; i < count; ++i) grads[i].add_to(backward);
    print("gated_scan_vjp", name, l.name, backward);
  }
}

template <class V, class S, class Backend>
void selective(const Backend& on, const char* name) {
  constexpr extents per_step{.batch = 2, .time = 203, .group = 6}, own{.channel = 19, .group = 6};
  for (const layout& l : layouts) {
    numbers from;
    array<S> u(from, -1, 1), delta(from, -3, 1), z(from, -2, 2), grad(from, -1, 1), out;
    array<S> b(from, -1, 1), c(from, -1, 1), of_u, of_delta, of_z, of_b, of_c;
    array<V> a(from, -4, 0), bias(from, -1, 1), of_a, of_bias;
    marks cuts;
    const auto mixing = [&](array<S>& x) {
      return sequence_view<S>(x.values.data(), per_step, states_last(per_step));
    };
    const auto channels = [](array<V>& x, const extents& e) {
      return state_view<V>(x.values.data(), e);
    };
    const selective_arrays<V> arrays{.u = u.in(l),
                                     .delta = delta.in(l),
                                     .a = channels(a, own),
                                     .b = mixing(b),
                                     .c = mixing(c),
                                     .skip = channels(bias, {.channel = 19}),
                                     .z = z.in(l),
                                     .delta_bias = channels(bias, {.channel = 19}),
                                     .softplus = true};
    hash forward, backward;
    selective_scan(on, arrays, out.in(l), {.resets = cuts.in(l)});
    out.add_to(forward);
    print("selective_scan", name, l.name, forward);
    selective_scan_vjp(on, arrays, grad.in(l),
                       {.u = of_u.in(l),
                        .delta = of_delta.in(l),
                        .a = channels(of_a, own),
                        .b = mixing(of_b),
                        .c = mixing(of_c),
                        .z = of_z.in(l),
                        .delta_bias = channels(of_bias, {.channel = 19})},
                       {.resets = cuts.in(l)});
    for (const auto* const of : {&of_u, &of_delta, &of_z, &of_b, &of_c}) of->add_to(backward);
    of_a.add_to(backward), of_bias.add_to(backward);
    print("selective_scan_vjp", name, l.name, backward);
  }
}

template <class R>
void discretised_systems(const char* name) {
  numbers from;
  hash forward, backward;
  const auto add = [](hash& h, auto x) { h.add(&x, sizeof x); };
  for (const auto method :
       {discretisation::zero_order_hold, discretisation::bilinear, discretisation::ring})
    for (int i = 0; i < 500; ++i) {
      std::complex<R> lambda, gate_grad, scale_grad;
      R step;
      from.fill(lambda, -2, 0), from.fill(step, 0, 1);
      from.fill(gate_grad, -1, 1), from.fill(scale_grad, -1, 1);
      const auto d = discretise<R>(method, lambda, step);
      add(forward, d.gate), add(forward, d.scale);
      const auto g = discretise_vjp<R>(method, lambda, step, gate_grad, scale_grad);
      add(backward, g.lambda), add(backward, g.step);
    }
  print("discretise", name, "", forward);
  print("discretise_vjp", name, "", backward);
}

template <class Backend>
void others(const Backend& on) {
  for (const layout& l : layouts) {
    numbers from;
    array<float> gate(from, -1, 1), x(from, -1, 1), y, z;
    hash h;
    inclusive_scan(on, op::sum{}, x.in(l), y.in(l));
    inclusive_scan(on, op::product{}, x.in(l), z.in(l));
    y.add_to(h), z.add_to(h);
    print("inclusive_scan", "float", l.name, h);
    hash s;
    linear_scan_sensitivity(on, gate.in(l), x.in(l), y.in(l), z.in(l));
    y.add_to(s), z.add_to(s);
    print("linear_scan_sensitivity", "float", l.name, s);
  }
}

}  // namespace

int main() {
  const sequential loop;
  const tiled tiles{.threads = 1, .tile_steps = 64};
  linear<float>(tiles, "float");
  gated(tiles, rg_lru{}, "rg_lru");

  using namespace activation;
  linear<double>(loop, "double, loop");
  linear<std::complex<float>>(loop, "complex<float>, loop");
  linear<bfloat16>(loop, "bfloat16, loop");
  gated(loop, rg_lru{}, "rg_lru, loop");
  gated(loop, min_gru<>{}, "min_gru, loop");
  gated(loop, min_gru<positive>{}, "min_gru<positive>, loop");
  gated(loop, f_pooling<>{.forget_bias = 0.3}, "f_pooling, loop");
  gated(loop, fo_pooling<gelu, hard_sigmoid>{}, "fo_pooling<gelu, hard_sigmoid>, loop");
  gated(loop, ifo_pooling<relu, sigmoid>{}, "ifo_pooling<relu, sigmoid>, loop");
  gated(loop, gated_accumulation<>{}, "gated_accumulation, loop");
  gated(loop, log_space<>{}, "log_space, loop");
  others(loop);
  selective<float, float>(tiles, "float");
  selective<double, double>(loop, "double, loop");
  discretised_systems<float>("float");
  discretised_systems<double>("double");
#if CONTRACTION_ALL
  selective<double, double>(tiles, "double");
  selective<float, bfloat16>(tiles, "bfloat16");
  linear<double>(tiles, "double");
  linear<std::complex<float>>(tiles, "complex<float>");
  linear<std::complex<double>>(tiles, "complex<double>");
  linear<bfloat16>(tiles, "bfloat16");
  linear<float16>(tiles, "float16");
  gated(tiles, min_gru<positive>{}, "min_gru<positive>");
  gated(tiles, f_pooling<>{.forget_bias = 0.3}, "f_pooling");
  gated(tiles, fo_pooling<gelu, hard_sigmoid>{}, "fo_pooling<gelu, hard_sigmoid>");
  gated(tiles, ifo_pooling<relu, sigmoid>{}, "ifo_pooling<relu, sigmoid>");
  gated(tiles, gated_accumulation<>{}, "gated_accumulation");
  gated(tiles, log_space<>{}, "log_space");
  others(tiles);
  linear<float>(blelloch{}, "float, blelloch");
  gated(blelloch{}, rg_lru{}, "rg_lru, blelloch");
#endif
}
