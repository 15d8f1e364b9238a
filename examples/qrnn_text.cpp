// SPDX-License-Identifier: BSD-3-Clause
// A character language model of QRNN layers, or of Mamba blocks, trained on any text.
//
// The end of the text is held out. The rest is divided into equal parts, whose chunks are processed
// side by side. States carry over from chunk to chunk, gradients do not (truncated
// backpropagation). The program prints how many bits per character the model, gzip and xz need for
// the held-out text. The compressors have seen no other text; the model was trained on the rest.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <Eigen/Core>

#include "adam.hpp"
#include "model_file.hpp"
#include "text_model.hpp"

namespace fs = std::filesystem;
using clock_type = std::chrono::steady_clock;
constexpr double bits_per_nat = 1.4426950408889634;

struct settings {
  fs::path text, out = ".", load;
  double minutes = 4, rate = 4e-3;
  std::string layer = "qrnn";
  std::int64_t channels = 0, layers = 2, window = 0;  // 0: a default that depends on the layer
  std::int64_t batch = 16, steps = 128, held_out = 200000, sample = 600;
  unsigned seed = 1;
  scanrec::keep keep = scanrec::keep::states;
};

using qrnn = scanrec::qrnn_layer<float>;
using mamba = mamba_block<float>;
template <class Layer>
constexpr const char* name_of = is_mamba<Layer> ? "Mamba" : "QRNN";
/// Files of Mamba blocks have a suffix.
template <class Layer>
constexpr const char* suffix_of = is_mamba<Layer> ? "_mamba" : "";

/// The sizes of a model. With the defaults, both kinds of layer take about the same time per
/// character.
template <class Layer>
text_sizes sizes_of(const settings& s, const std::string& alphabet) {
  constexpr bool blocks = is_mamba<Layer>;
  const std::int64_t channels = s.channels > 0 ? s.channels : (blocks ? 128 : 256);
  return {.characters = static_cast<std::int64_t>(alphabet.size()),
          .embedding = blocks ? channels : 48,
          .channels = channels,
          .layers = s.layers,
          .window = s.window > 0 ? s.window : (blocks ? 4 : 2)};
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path.string() + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The characters of a text as indices into an alphabet.
std::vector<int> numbers_of(const std::string& text, const std::string& alphabet) {
  std::vector<int> numbers;
  numbers.reserve(text.size());
  for (const char c : text) {
    const std::size_t at = alphabet.find(c);
    if (at == std::string::npos)
      throw std::runtime_error("the text has a character that the model lacks: number " +
                               std::to_string(static_cast<unsigned char>(c)));
    numbers.push_back(static_cast<int>(at));
  }
  return numbers;
}

/// Bits per character that the model needs for a text. The states before the text are 0.
template <class Layer>
double bits_of(text_model<float, Layer>& model, const std::vector<int>& text) {
  auto stream = model.fresh_streams();
  double nats = 0;
  constexpr std::size_t chunk = 1000;
  for (std::size_t i = 0; i + 1 < text.size(); i += chunk) {
    const std::size_t n = std::min(chunk, text.size() - 1 - i);
    model.forward({text.data() + i, n}, 1, stream);
    nats += model.loss({text.data() + i + 1, n}) * static_cast<double>(n);
  }
  return nats * bits_per_nat / static_cast<double>(text.size() - 1);
}

/// Bits per character of a file under a compressor.
double bits_of(const std::string& compressor, const fs::path& path) {
  const std::string command = compressor + " -c '" + path.string() + "' | wc -c";
  FILE* const pipe = popen(command.c_str(), "r");
  double bytes = 0;
  if (!pipe || std::fscanf(pipe, "%lf", &bytes) != 1) bytes = NAN;
  if (pipe) pclose(pipe);
  return 8 * bytes / static_cast<double>(fs::file_size(path));
}

/// Samples characters one by one from the model's distribution of the next character, which is
/// sharpened a little.
template <class Layer>
std::string sample(text_model<float, Layer>& model, const std::string& alphabet,
                   std::int64_t length, unsigned seed) {
  std::mt19937 random(seed);
  auto stream = model.fresh_streams();
  std::string text;
  const std::size_t line_end = alphabet.find('\n');  // as if a line had just ended
  int next = line_end == std::string::npos ? 0 : static_cast<int>(line_end);
  for (std::int64_t i = 0; i < length; ++i) {
    const auto& logs = model.forward({&next, 1}, 1, stream);
    std::vector<double> weights;
    for (Eigen::Index c = 0; c < logs.cols(); ++c) weights.push_back(std::exp(1.15 * logs(0, c)));
    next = std::discrete_distribution<int>(weights.begin(), weights.end())(random);
    text += alphabet[static_cast<std::size_t>(next)];
  }
  return text;
}

/// A model, its training text, and its training progress.
template <class Layer>
class learner {
 public:
  /// Prepares training on all but the last `held` characters.
  learner(const settings& s, const std::string& text, std::string letters, std::size_t held)
      : alphabet(std::move(letters)), model(sizes_of<Layer>(s, alphabet), s.keep), s_(s) {
    if (s.load.empty()) {
      std::mt19937 random(s.seed);
      model.randomise(random);
    } else {
      auto [of_file, loaded] = load_model<Layer>(s.load, s.keep);
      alphabet = of_file, model = std::move(loaded);
    }
    text_ = numbers_of(text, alphabet);
    const auto rest = text_.end() - static_cast<std::ptrdiff_t>(held);
    held_out.assign(rest, text_.end());
    text_.erase(rest, text_.end());
    if (done()) return;
    row_ = text_.size() / static_cast<std::size_t>(s.batch);  // length of one sequence
    if (row_ < static_cast<std::size_t>(s.steps) + 1)
      throw std::runtime_error("the text is too short for the batch");
    curve_.open(s.out / (std::string("curve") + suffix_of<Layer> + ".csv"));
    curve_ << "seconds,characters,bits\n";
    std::size_t parameters = 0;
    model.for_each([&](std::span<float> x) { parameters += x.size(); });
    std::printf("%zu characters to learn from, %zu parameters\n", text_.size(), parameters);
    optimiser_.emplace(parameters, 0);
    gradients_ = model.zeros(), streams_ = model.fresh_streams();
  }

  std::string alphabet;
  text_model<float, Layer> model;
  std::vector<int> held_out;
  double elapsed = 0, bits = 0, learned = 0;

  [[nodiscard]] bool done() const { return elapsed >= 60 * s_.minutes; }

  /// Trains on one more chunk.
  void learn() {
    const auto start = clock_type::now();
    const auto B = static_cast<std::size_t>(s_.batch), T = static_cast<std::size_t>(s_.steps);
    if (at_ + T + 1 > row_) at_ = 0, streams_ = model.fresh_streams();
    std::vector<int> now(B * T), next(B * T);
    for (std::size_t t = 0; t < T; ++t)
      for (std::size_t b = 0; b < B; ++b) {
        now[t * B + b] = text_[b * row_ + at_ + t];
        next[t * B + b] = text_[b * row_ + at_ + t + 1];
      }
    at_ += T;
    model.forward(now, s_.batch, streams_);
    const double loss = model.loss(next) * bits_per_nat;
    model.backward(now, next, s_.batch, gradients_);
    move();

    const std::size_t chunks = chunks_++;
    elapsed += std::chrono::duration<double>(clock_type::now() - start).count();
    bits = chunks == 0 ? loss : std::lerp(bits, loss, chunks < 50 ? 0.2 : 0.03);
    learned = static_cast<double>(chunks_ * B * T);
    if (elapsed - written_ > 60 * s_.minutes / 200 || chunks == 0) {
      curve_ << elapsed << ',' << learned << ',' << bits << '\n';
      written_ = elapsed;
    }
  }
  void save() {
    save_model(s_.out / (std::string("model") + suffix_of<Layer> + ".bin"), alphabet, model);
  }

 private:
  // The learning rate grows linearly at first, then falls along a cosine. Gradients with a norm
  // above 1 are clipped.
  void move() {
    const double done = elapsed / (60 * s_.minutes);
    optimiser_->rate =
        s_.rate * std::min(1.0, 1e-3 + done / 0.03) * 0.5 * (1 + std::cos(3.1416 * done));
    double square = 0;
    gradients_.for_each([&](std::span<float> x) {
      for (const float g : x) square += static_cast<double>(g) * g;
    });
    const auto shorter = static_cast<float>(1 / std::max(1.0, std::sqrt(square)));
    std::vector<std::span<float>> pieces;
    gradients_.for_each([&](std::span<float> x) {
      for (float& g : x) g *= shorter;
      pieces.push_back(x);
    });
    std::size_t first = 0, piece = 0;
    optimiser_->begin_step();
    model.for_each([&](std::span<float> x) {
      optimiser_->move(first, x, pieces[piece++]);
      first += x.size();
    });
  }

  const settings& s_;
  std::vector<int> text_;
  std::size_t row_ = 0, at_ = 0, chunks_ = 0;
  std::ofstream curve_;
  double written_ = 0;
  std::optional<basic_adam<float>> optimiser_;
  typename text_model<float, Layer>::parameters gradients_;
  typename text_model<float, Layer>::streams streams_;
};

/// Trains each learner for the given time. They take turns by chunks, so that other load on the
/// machine slows both alike.
template <class... Learners>
void train(const settings& s, std::optional<Learners>&... all) {
  const auto for_all = [&](auto f) { ((all ? f(*all) : void()), ...); };
  const bool several = ((all ? 1 : 0) + ...) > 1;
  double shown = -1, elapsed = 0;
  for (bool more = s.minutes > 0; more;) {
    more = false, elapsed = 1e300;
    for_all([&](auto& one) {
      if (!one.done()) one.learn();
      more = more || !one.done(), elapsed = std::min(elapsed, one.elapsed);
    });
    if (elapsed - shown <= 1 && more) continue;
    const int width = 30,
              filled = std::min(width, static_cast<int>(width * elapsed / (60 * s.minutes)));
    std::printf("\r[%-*s] %3.0f s ", width,
                std::string(static_cast<std::size_t>(filled), '#').c_str(), elapsed);
    for_all([&]<class Layer>(learner<Layer>& one) {
      std::printf(" %s%s%.3f bits per character  %.0f characters/s ", several ? name_of<Layer> : "",
                  several ? " " : "", one.bits, one.learned / one.elapsed);
    });
    std::fflush(stdout);
    shown = elapsed;
  }
  if (s.minutes <= 0) return;
  std::printf("\n");
  for_all([](auto& one) { one.save(); });
}

void run(const settings& s) {
  std::string text = read_file(s.text);
  const auto held = static_cast<std::size_t>(
      std::min<std::int64_t>(s.held_out, static_cast<std::int64_t>(text.size()) / 10));
  if (held < 2) throw std::runtime_error(s.text.string() + ": too short to hold anything out");
  fs::create_directories(s.out);
  const fs::path held_path = s.out / "held_out.txt";
  std::ofstream(held_path, std::ios::binary) << text.substr(text.size() - held);

  std::string alphabet = text;
  std::sort(alphabet.begin(), alphabet.end());
  alphabet.erase(std::unique(alphabet.begin(), alphabet.end()), alphabet.end());
  std::optional<learner<qrnn>> of_qrnn;
  std::optional<learner<mamba>> of_mamba;
  if (s.layer != "mamba") of_qrnn.emplace(s, text, alphabet, held);
  if (s.layer != "qrnn") of_mamba.emplace(s, text, alphabet, held);
  train(s, of_qrnn, of_mamba);
  std::printf("held out, %zu characters, bits per character:\n", held);
  const double gzip = bits_of("gzip -9", held_path), xz = bits_of("xz -9", held_path);
  std::printf("  gzip -9  %.3f\n  xz -9    %.3f\n", gzip, xz);
  std::ofstream file(s.out / "held_out.csv");
  std::string names = "gzip,xz";
  std::vector<double> all{gzip, xz};
  const auto measure = [&](auto& of, const char* name, const char* column) {
    if (!of) return;
    all.push_back(bits_of(of->model, of->held_out));
    names += column;
    std::printf("  %-8s %.3f\n", name, all.back());
  };
  measure(of_qrnn, name_of<qrnn>, ",qrnn"), measure(of_mamba, name_of<mamba>, ",mamba");
  file << names << '\n';
  for (std::size_t i = 0; i < all.size(); ++i) file << (i > 0 ? "," : "") << all[i];
  file << '\n';
  const bool both = of_qrnn && of_mamba;
  const auto draw = [&](auto& of, const char* by) {
    if (of)
      std::printf("a sample%s:\n\n%s\n", both ? by : "",
                  sample(of->model, of->alphabet, s.sample, s.seed).c_str());
  };
  draw(of_qrnn, " by QRNN"), draw(of_mamba, " by Mamba");
}

int main(int argc, char** argv) {
  settings s;
  CLI::App app("Trains a character language model of QRNN layers or Mamba blocks on a text.");
  app.add_option("text", s.text, "any text file")->required()->check(CLI::ExistingFile);
  app.add_option("out", s.out, "folder for the model, the learning curve, the held-out text");
  app.add_option("--minutes", s.minutes, "time to train; 0: only measure and sample")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--load", s.load, "a saved model to continue from")->check(CLI::ExistingFile);
  app.add_option("--layer", s.layer, "qrnn, mamba, or both (in turns, each for the given time)")
      ->check(CLI::IsMember({"qrnn", "mamba", "both"}));
  app.add_option("--channels", s.channels,
                 "channels per layer; default: 256 for QRNN, 128 for Mamba")
      ->check(CLI::PositiveNumber);
  app.add_option("--layers", s.layers)->check(CLI::PositiveNumber);
  app.add_option("--window", s.window,
                 "number of input steps that a layer sees; default: 2 for QRNN, 4 for Mamba")
      ->check(CLI::PositiveNumber);
  app.add_option("--batch", s.batch, "sequences side by side")->check(CLI::PositiveNumber);
  app.add_option("--steps", s.steps, "steps per chunk")->check(CLI::PositiveNumber);
  app.add_option("--rate", s.rate, "learning rate of Adam")->check(CLI::PositiveNumber);
  app.add_option("--held-out", s.held_out, "characters held out at the end, at most a tenth")
      ->check(CLI::PositiveNumber);
  app.add_option("--sample", s.sample, "characters to sample")->check(CLI::NonNegativeNumber);
  app.add_option("--seed", s.seed);
  app.add_flag_callback(
      "--recompute", [&] { s.keep = scanrec::keep::checkpoints; },
      "keep one state per 128 steps for the backward pass, as Mamba always does");
  CLI11_PARSE(app, argc, argv);
  try {
    if (s.layer == "both" && !s.load.empty())
      throw std::runtime_error("--load takes a model with one kind of layer, not both");
    run(s);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "qrnn_text: %s\n", e.what());
    return 1;
  }
}
