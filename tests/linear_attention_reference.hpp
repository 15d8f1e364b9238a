// SPDX-License-Identifier: BSD-3-Clause
// The reference of linear attention: a loop over the steps of each head, and its adjoint, in any
// floating-point type.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <scanrec/linear_attention_arrays.hpp>

namespace attention_reference {

using namespace scanrec;  // tests only

/// A contiguous array of numbers. Heads are on the `group` axis.
template <class R>
struct tensor {
  extents shape{0, 0, 0, 0};
  std::vector<R> numbers;

  tensor() = default;
  explicit tensor(const extents& s)
      : shape(s), numbers(static_cast<std::size_t>(s.batch * s.time * s.channel * s.group)) {}

  [[nodiscard]] bool absent() const { return shape == extents{0, 0, 0, 0}; }
  [[nodiscard]] std::size_t index(std::int64_t b, std::int64_t t, std::int64_t c,
                                  std::int64_t head) const {
    return static_cast<std::size_t>(((b * shape.time + t) * shape.group + head) * shape.channel +
                                    c);
  }
  R& operator()(std::int64_t b, std::int64_t t, std::int64_t c, std::int64_t head) {
    return numbers[index(b, t, c, head)];
  }
  const R& operator()(std::int64_t b, std::int64_t t, std::int64_t c, std::int64_t head) const {
    return numbers[index(b, t, c, head)];
  }
};

/// The shapes and options of a call.
struct problem {
  std::int64_t batch = 1, time = 1, dk = 1, dv = 1;
  std::int64_t heads = 1, key_heads = 1, query_heads = 1;
  bool gate = false, key_gates = false, factors = false, beta = false;
  bool normalise = false, initial = false;
  double scale = 1;
  int resets = 0;  // 0: none; 1: a mask of `time` steps; 2: of one step more
  direction order = direction::forward;
  std::int64_t interval = 0;  // of stored states; 0: none are stored

  [[nodiscard]] std::int64_t out_heads() const { return std::max(heads, query_heads); }
  [[nodiscard]] std::int64_t gate_channels() const { return key_gates ? dk : 1; }
  [[nodiscard]] extents steps_of(std::int64_t channels, std::int64_t of_heads) const {
    return {.batch = batch, .time = time, .channel = channels, .group = of_heads};
  }
  [[nodiscard]] extents states_of(std::int64_t count = 1) const {
    return {.batch = batch * count, .time = dk, .channel = dv, .group = heads};
  }
  [[nodiscard]] std::int64_t intervals() const { return interval > 0 ? time / interval : 0; }
};

inline std::string to_string(const problem& p) {
  std::ostringstream text;
  text << p.batch << " sequences of " << p.time << " steps, dk " << p.dk << ", dv " << p.dv
       << ", heads " << p.heads << " (keys " << p.key_heads << ", queries " << p.query_heads << ")"
       << (p.gate ? p.key_gates ? ", gates of keys" : ", gates" : "")
       << (p.factors ? ", factors" : "") << (p.beta ? ", beta" : "")
       << (p.normalise ? ", normalise" : "") << (p.initial ? ", initial state" : "") << ", scale "
       << p.scale << ", resets " << p.resets << (p.order == direction::reverse ? ", reverse" : "")
       << ", interval " << p.interval;
  return text.str();
}

/// The arrays that a call and its adjoint read, in time order.
struct inputs {
  tensor<double> q, k, v, gate, beta, initial;
  tensor<double> out_grad, final_grad;
  std::vector<char> resets;  // (batch, time + 1)

  [[nodiscard]] bool reset(const problem& p, std::int64_t b, std::int64_t t) const {
    return resets[static_cast<std::size_t>(b * (p.time + 1) + t)] != 0;
  }
};

template <class R>
struct results {
  tensor<R> out, final_state, states;
  /// Largest |q| |S| of each output head, and largest |S| of each state: norms to which the
  /// rounding errors of a head are proportional.
  tensor<R> out_size, state_size;
};
/// Gradients. An absent gate or beta has none.
template <class R>
struct gradients {
  tensor<R> q, k, v, gate, beta, initial;
};
template <class R>
struct adjoints {
  gradients<R> of;
  /// For each head, the largest product of the norms of the arrays that a gradient is a product of.
  gradients<R> size;
};

/// Runs a problem step by step, in the type R.
template <class R>
class loop {
 public:
  loop(const problem& p, const inputs& in) : p_(p), in_(in) {}

  [[nodiscard]] results<R> forward() const {
    results<R> r;
    r.out = tensor<R>(p_.steps_of(p_.dv, p_.out_heads())),
    r.final_state = tensor<R>(p_.states_of());
    if (p_.interval > 0) r.states = tensor<R>(p_.states_of(p_.intervals()));
    r.out_size = tensor<R>({.batch = p_.batch, .group = p_.out_heads()});
    r.state_size = tensor<R>({.batch = p_.batch, .group = p_.heads});
    for (std::int64_t b = 0; b < p_.batch; ++b)
      for (std::int64_t h = 0; h < p_.heads; ++h) {
        std::vector<R> s = first_state(b, h);
        R& size = r.state_size(b, 0, 0, h);
        size = norm(s);
        for (std::int64_t n = 0; n < p_.time; ++n) {
          const step at = load(b, h, n);
          advance(at, s);
          size = std::max(size, norm(s));
          for (std::int64_t o = h * queries(); o < (h + 1) * queries(); ++o) {
            const std::vector<R> q = query(b, at.t, o), out = times(q, s);
            for (std::int64_t j = 0; j < p_.dv; ++j) r.out(b, at.t, j, o) = out[j];
            r.out_size(b, 0, 0, o) = std::max(r.out_size(b, 0, 0, o), norm(q) * norm(s));
          }
          if (p_.interval > 0 && (n + 1) % p_.interval == 0)
            store(s, r.states, b * p_.intervals() + n / p_.interval, h);
        }
        store(s, r.final_state, b, h);
      }
    return r;
  }
  /// Whether the state is cleared before step n of the scan.
  [[nodiscard]] bool reset_before(std::int64_t b, std::int64_t n) const {
    // In both directions, a reset at step t in time separates steps t - 1 and t.
    const std::int64_t t = p_.order == direction::reverse ? p_.time - n : n;
    return p_.resets > 0 && t < p_.time + p_.resets - 1 && in_.reset(p_, b, t);
  }
  /// The index in time of step n of the scan, and the reverse.
  [[nodiscard]] std::int64_t time_of(std::int64_t n) const {
    return p_.order == direction::reverse ? p_.time - 1 - n : n;
  }

  /// The gradients for in.out_grad and in.final_grad. Absent ones count as 0.
  [[nodiscard]] adjoints<R> adjoint() const {
    const auto by_head = [&](std::int64_t heads) {
      return tensor<R>({.batch = p_.batch, .group = heads});
    };
    adjoints<R> to;
    to.of = {tensor<R>(in_.q.shape), tensor<R>(in_.k.shape), tensor<R>(in_.v.shape), {}, {}, {}};
    if (p_.gate) to.of.gate = tensor<R>(p_.steps_of(p_.gate_channels(), p_.heads));
    if (p_.beta) to.of.beta = tensor<R>(p_.steps_of(1, p_.heads));
    to.of.initial = tensor<R>(p_.states_of());
    to.size = {by_head(p_.query_heads), by_head(p_.key_heads), by_head(p_.heads),
               by_head(p_.heads),       by_head(p_.heads),     by_head(p_.heads)};
    for (std::int64_t b = 0; b < p_.batch; ++b)
      for (std::int64_t h = 0; h < p_.heads; ++h) add_gradients(b, h, to);
    return to;
  }

 private:
  // A step of a head: the index in time, and the numbers that multiply the state.
  struct step {
    std::int64_t t = 0;
    bool reset = false;
    std::vector<R> gate, key, value;  // one gate per key
    R beta = 1;
  };

  [[nodiscard]] std::int64_t queries() const {
    return std::max<std::int64_t>(1, p_.query_heads / p_.heads);
  }
  [[nodiscard]] std::int64_t key_head(std::int64_t h) const {
    return h / (p_.heads / p_.key_heads);
  }
  [[nodiscard]] std::int64_t query_head(std::int64_t out_head) const {
    return out_head / (p_.out_heads() / p_.query_heads);
  }

  // 1 / sqrt(sum of squares + 1e-6), or 1.
  [[nodiscard]] R shrink(const tensor<double>& of, std::int64_t b, std::int64_t t,
                         std::int64_t head) const {
    if (!p_.normalise) return 1;
    R sum = 0;
    for (std::int64_t i = 0; i < p_.dk; ++i) {
      const R x = static_cast<R>(of(b, t, i, head));
      sum += x * x;
    }
    return 1 / std::sqrt(sum + R(1e-6L));
  }
  [[nodiscard]] std::vector<R> row(const tensor<double>& of, std::int64_t b, std::int64_t t,
                                   std::int64_t head, R by = 1) const {
    std::vector<R> x(static_cast<std::size_t>(of.shape.channel));
    for (std::int64_t i = 0; i < of.shape.channel; ++i)
      x[i] = by * static_cast<R>(of(b, t, i, head));
    return x;
  }
  [[nodiscard]] std::vector<R> query(std::int64_t b, std::int64_t t, std::int64_t out_head) const {
    const std::int64_t head = query_head(out_head);
    return row(in_.q, b, t, head, static_cast<R>(p_.scale) * shrink(in_.q, b, t, head));
  }
  // Step n of the scan.
  [[nodiscard]] step load(std::int64_t b, std::int64_t h, std::int64_t n) const {
    step s;
    s.t = time_of(n), s.reset = reset_before(b, n);
    s.key = row(in_.k, b, s.t, key_head(h), shrink(in_.k, b, s.t, key_head(h)));
    s.value = row(in_.v, b, s.t, h);
    s.gate.assign(static_cast<std::size_t>(p_.dk), R(1));
    for (std::int64_t i = 0; p_.gate && i < p_.dk; ++i) {
      const R g = static_cast<R>(in_.gate(b, s.t, p_.key_gates ? i : 0, h));
      s.gate[i] = p_.factors ? g : std::exp(g);
    }
    if (p_.beta) s.beta = static_cast<R>(in_.beta(b, s.t, 0, h));
    return s;
  }

  [[nodiscard]] std::vector<R> first_state(std::int64_t b, std::int64_t h) const {
    std::vector<R> s(static_cast<std::size_t>(p_.dk * p_.dv));
    for (std::int64_t i = 0; p_.initial && i < p_.dk; ++i)
      for (std::int64_t j = 0; j < p_.dv; ++j)
        s[i * p_.dv + j] = static_cast<R>(in_.initial(b, i, j, h));
    return s;
  }
  void store(const std::vector<R>& s, tensor<R>& to, std::int64_t element, std::int64_t h) const {
    for (std::int64_t i = 0; i < p_.dk; ++i)
      for (std::int64_t j = 0; j < p_.dv; ++j) to(element, i, j, h) = s[i * p_.dv + j];
  }
  static R norm(const std::vector<R>& x) {
    R sum = 0;
    for (const R y : x) sum += y * y;
    return std::sqrt(sum);
  }
  // S^T x
  [[nodiscard]] std::vector<R> times(const std::vector<R>& x, const std::vector<R>& s) const {
    std::vector<R> out(static_cast<std::size_t>(p_.dv));
    for (std::int64_t i = 0; i < p_.dk; ++i)
      for (std::int64_t j = 0; j < p_.dv; ++j) out[j] += x[i] * s[i * p_.dv + j];
    return out;
  }
  // S x
  [[nodiscard]] std::vector<R> times_rows(const std::vector<R>& s, const std::vector<R>& x) const {
    std::vector<R> out(static_cast<std::size_t>(p_.dk));
    for (std::int64_t i = 0; i < p_.dk; ++i)
      for (std::int64_t j = 0; j < p_.dv; ++j) out[i] += s[i * p_.dv + j] * x[j];
    return out;
  }
  // S += x y^T
  void add_outer(const std::vector<R>& x, const std::vector<R>& y, std::vector<R>& s) const {
    for (std::int64_t i = 0; i < p_.dk; ++i)
      for (std::int64_t j = 0; j < p_.dv; ++j) s[i * p_.dv + j] += x[i] * y[j];
  }
  // Subnormal numbers become 0, because CPUs compute slowly with them.
  void decay(const step& at, std::vector<R>& s) const {
    for (std::int64_t i = 0; p_.gate && i < p_.dk; ++i)
      for (std::int64_t j = 0; j < p_.dv; ++j) {
        R& x = s[i * p_.dv + j];
        x *= at.gate[i];
        if (std::abs(x) < std::numeric_limits<R>::min()) x = 0;
      }
  }
  // The value that is missing from the state, without beta: v - S^T k.
  [[nodiscard]] std::vector<R> missing(const step& at, const std::vector<R>& decayed) const {
    std::vector<R> u = at.value;
    if (!p_.beta) return u;
    const std::vector<R> known = times(at.key, decayed);
    for (std::int64_t j = 0; j < p_.dv; ++j) u[j] -= known[j];
    return u;
  }
  void advance(const step& at, std::vector<R>& s) const {
    if (at.reset) s.assign(s.size(), R(0));
    decay(at, s);
    std::vector<R> u = missing(at, s);
    for (R& x : u) x *= at.beta;
    add_outer(at.key, u, s);
  }

  // Adds to the gradients of row x of an array. g is the gradient of scale * x / |x| or, without
  // normalise, of scale * x.
  void add_row(const tensor<double>& of, std::int64_t b, std::int64_t t, std::int64_t head, R scale,
               const std::vector<R>& g, R g_size, tensor<R>& to, tensor<R>& size) const {
    const R r = shrink(of, b, t, head);
    R dot = 0;
    for (std::int64_t i = 0; i < p_.dk; ++i) dot += static_cast<R>(of(b, t, i, head)) * g[i];
    for (std::int64_t i = 0; i < p_.dk; ++i) {
      const R along = p_.normalise ? r * r * dot * static_cast<R>(of(b, t, i, head)) : R(0);
      to(b, t, i, head) += scale * r * (g[i] - along);
    }
    raise(size(b, 0, 0, head), std::abs(scale) * r * g_size);
  }
  static void raise(R& size, R by) { size = std::max(size, by); }

  void add_gradients(std::int64_t b, std::int64_t h, adjoints<R>& to) const {
    const std::vector<R> first = first_state(b, h), zeros(first.size());
    std::vector<std::vector<R>> after;  // the state after each step
    std::vector<R> decays;              // of the initial state until each step, by gates
    std::vector<R> s = first, ds = zeros;
    R decay_until = 1;
    for (std::int64_t n = 0; n < p_.time; ++n) {
      const step at = load(b, h, n);
      advance(at, s);
      after.push_back(s);
      decay_until *= at.reset ? 0 : std::abs(*std::max_element(at.gate.begin(), at.gate.end()));
      decays.push_back(decay_until);
    }
    for (std::int64_t i = 0; !in_.final_grad.absent() && i < p_.dk; ++i)
      for (std::int64_t j = 0; j < p_.dv; ++j)
        ds[i * p_.dv + j] = static_cast<R>(in_.final_grad(b, i, j, h));
    for (std::int64_t n = p_.time - 1; n >= 0; --n) {
      const step at = load(b, h, n);
      const std::vector<R>& before = at.reset ? zeros : n > 0 ? after[n - 1] : first;
      for (std::int64_t o = 0; !in_.out_grad.absent() && o < queries(); ++o) {
        const std::int64_t out_head = h * queries() + o;
        const std::vector<R> dout = row(in_.out_grad, b, at.t, out_head);
        add_outer(query(b, at.t, out_head), dout, ds);
        add_row(in_.q, b, at.t, query_head(out_head), static_cast<R>(p_.scale),
                times_rows(after[n], dout), norm(after[n]) * norm(dout), to.of.q, to.size.q);
      }
      std::vector<R> decayed = before;
      decay(at, decayed);
      const std::vector<R> without_beta = missing(at, decayed), du = times(at.key, ds);
      std::vector<R> u = without_beta, dv = du;
      for (R& x : u) x *= at.beta;
      for (R& x : dv) x *= at.beta;
      std::vector<R> dk = times_rows(ds, u);
      const R size = norm(ds);
      raise(to.size.initial(b, 0, 0, h), decays[n] * size);
      R dk_size = size * norm(u);
      raise(to.size.v(b, 0, 0, h), at.beta * norm(at.key) * size);
      if (p_.beta) {
        R dbeta = 0;
        for (std::int64_t j = 0; j < p_.dv; ++j) dbeta += du[j] * without_beta[j];
        to.of.beta(b, at.t, 0, h) += dbeta;
        raise(to.size.beta(b, 0, 0, h), norm(at.key) * size * norm(without_beta));
        std::vector<R> minus = dv;
        for (R& x : minus) x = -x;
        add_outer(at.key, minus, ds);
        const std::vector<R> more = times_rows(decayed, minus);
        for (std::int64_t i = 0; i < p_.dk; ++i) dk[i] += more[i];
        dk_size += norm(decayed) * norm(dv);
      }
      add_row(in_.k, b, at.t, key_head(h), R(1), dk, dk_size, to.of.k, to.size.k);
      for (std::int64_t j = 0; j < p_.dv; ++j) to.of.v(b, at.t, j, h) += dv[j];
      // `size` is that of the gradient before the delta rule removes a part of it.
      const R gate_size = size * norm(before);
      for (std::int64_t i = 0; p_.gate && i < p_.dk; ++i) {
        R da = 0;
        for (std::int64_t j = 0; j < p_.dv; ++j) da += ds[i * p_.dv + j] * before[i * p_.dv + j];
        const R by = p_.factors ? 1 : at.gate[i];
        to.of.gate(b, at.t, p_.key_gates ? i : 0, h) += by * da;
        raise(to.size.gate(b, 0, 0, h), by * gate_size);
      }
      decay(at, ds);
      if (at.reset) ds = zeros;
    }
    for (std::int64_t i = 0; i < p_.dk; ++i)
      for (std::int64_t j = 0; j < p_.dv; ++j) to.of.initial(b, i, j, h) += ds[i * p_.dv + j];
  }

  const problem& p_;
  const inputs& in_;
};

}  // namespace attention_reference
