// SPDX-License-Identifier: BSD-3-Clause
// Learn associative recall: the delta rule replaces a stored value, plain linear attention cannot.
//
//   S[t] = S[t-1] + key[t] (value[t] - S[t-1]^T key[t])^T     delta rule
//   S[t] = S[t-1] + key[t] value[t]^T                         linear attention
//   out[t] = S[t]^T query[t]
//
// A sequence gives a random value to each of 16 keys, and later a second one, in random order. Then
// it asks for the last value of every key. Values are one-hot, so the outputs are scores of the
// answers. Adam learns the vectors of the keys. They start at random and must become orthogonal.
// Linear attention adds the two values of a key and cannot know which of them is newer. At best it
// gives the right answer in 1/16 + 15/16 * 1/2 = 53 % of the cases.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <utility>
#include <vector>

#include <scanrec/linear_attention.hpp>

#include "adam.hpp"

using floats = std::vector<float>;
using view = scanrec::sequence_view<float>;
constexpr int size = 16;  // number of keys and of values, and length of their vectors
constexpr int sequences = 32, writes = 2 * size, steps = writes + size;
constexpr scanrec::extents shape{.batch = sequences, .time = steps, .channel = size};

/// Answers the queries of random sequences. Returns the share of right answers, and adds the
/// gradient of the mean cross entropy to `gradient`.
double run(bool delta, const floats& keys, std::mt19937& random, floats& gradient) {
  int key[sequences * steps], answer[sequences * steps];
  floats k(sequences * steps * size), v(k.size()), out(k.size()), beta(sequences * steps);
  for (int i = 0; i < sequences * steps; i += steps) {
    int last[size];  // value of each key
    for (int t = 0; t < steps; ++t) key[i + t] = t % size;
    for (int t = writes - 1; t > 0; --t) std::swap(key[i + t], key[i + random() % (t + 1)]);
    for (int t = i; t < i + steps; ++t) {
      std::copy_n(&keys[key[t] * size], size, &k[t * size]);
      if (t < i + writes) {  // a query writes nothing: its value and beta are 0
        last[key[t]] = static_cast<int>(random() % size);
        v[t * size + last[key[t]]] = beta[t] = 1;
      }
      answer[t] = last[key[t]];
    }
  }
  const scanrec::tiled one_thread{.threads = 1};  // the calls are small
  scanrec::linear_attention_arrays<float> arrays{.query = view(k, shape),
                                                 .key = view(k, shape),
                                                 .value = view(v, shape),
                                                 .scale = 8,  // makes a right answer probable
                                                 .normalise = true};
  if (delta) arrays.beta = view(beta, {.batch = sequences, .time = steps});
  scanrec::linear_attention(one_thread, arrays, view(out, shape));

  int right = 0;
  floats out_grad(k.size()), query_grad(k.size()), key_grad(k.size());
  for (int i = 0; i < sequences * steps; ++i) {
    if (i % steps < writes) continue;
    const float* const score = &out[i * size];
    right += std::max_element(score, score + size) - score == answer[i];
    float total = 0;
    for (int a = 0; a < size; ++a) total += std::exp(score[a]);
    for (int a = 0; a < size; ++a)  // gradient of the cross entropy of softmax(score)
      out_grad[i * size + a] =
          (std::exp(score[a]) / total - float(a == answer[i])) / (sequences * size);
  }
  scanrec::linear_attention_vjp(one_thread, arrays, view(out_grad, shape),
                                {.query = view(query_grad, shape), .key = view(key_grad, shape)});
  for (int i = 0; i < sequences * steps * size; ++i)
    gradient[key[i / size] * size + i % size] += query_grad[i] + key_grad[i];
  return right / double(sequences * size);
}

int main() {
  double after[2]{};
  for (const bool delta : {false, true}) {
    std::mt19937 random(1);
    floats keys(size * size), gradient(size * size);
    for (float& x : keys) x = float(double(random()) / 4294967296.0 - 0.5);
    basic_adam<float> optimiser(keys.size(), 0.01);
    const auto accuracy = [&] {
      double sum = 0;
      for (int i = 0; i < 20; ++i) sum += run(delta, keys, random, gradient) / 20;
      return sum;
    };
    const double before = accuracy();
    for (int iteration = 0; iteration < 300; ++iteration) {
      std::fill(gradient.begin(), gradient.end(), 0.0f);
      run(delta, keys, random, gradient);
      optimiser.step(keys, gradient);
    }
    after[delta] = accuracy();
    std::printf("%-16s  %5.1f %% right before training, %5.1f %% after\n",
                delta ? "delta rule" : "linear attention", 100 * before, 100 * after[delta]);
  }
  return after[true] > 0.95 && after[false] < 0.6 ? 0 : 1;
}
