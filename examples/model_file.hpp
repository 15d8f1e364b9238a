// SPDX-License-Identifier: BSD-3-Clause
// A text model in a file: a header (kind and sizes), then the alphabet, then the parameters.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "text_model.hpp"

/// The header of the file: the bytes of this struct, which are the same on all little-endian
/// machines.
struct model_header {
  /// The magic text. Before its line end, it has `1` for QRNN layers or `m` for Mamba blocks.
  static constexpr std::array<char, 16> expected(bool mamba) {
    return {'s',  'c', 'a', 'n', 'r', 'e', 'c', ' ', 't', 'e', 'x', 't', ' ', mamba ? 'm' : '1',
            '\n', '\0'};
  }
  std::array<char, 16> magic;
  std::int64_t characters = 0, embedding = 0, channels = 0, layers = 0, window = 0, numbers = 0;
};

template <class Layer>
void save_model(const std::filesystem::path& path, const std::string& alphabet,
                text_model<float, Layer>& model) {
  const text_sizes& s = model.sizes();
  model_header h{.magic = model_header::expected(is_mamba<Layer>),
                 .characters = s.characters,
                 .embedding = s.embedding,
                 .channels = s.channels,
                 .layers = s.layers,
                 .window = s.window};
  model.for_each([&](std::span<float> x) { h.numbers += static_cast<std::int64_t>(x.size()); });
  // The file is written under another name, and renamed when it is complete.
  const std::filesystem::path part = path.string() + ".part";
  std::ofstream file(part, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&h), sizeof h);
  file.write(alphabet.data(), static_cast<std::streamsize>(alphabet.size()));
  model.for_each([&](std::span<float> x) {
    file.write(reinterpret_cast<const char*>(x.data()),
               static_cast<std::streamsize>(x.size_bytes()));
  });
  file.close();
  if (!file) throw std::runtime_error("cannot write " + part.string());
  std::filesystem::rename(part, path);
}

/// Reads the alphabet and the model of a file. Throws std::runtime_error with the reason if the
/// file cannot be read, is of another kind, or is damaged.
template <class Layer = scanrec::qrnn_layer<float>>
std::pair<std::string, text_model<float, Layer>> load_model(const std::filesystem::path& path,
                                                            scanrec::keep what) {
  const auto fail = [&](const std::string& why) {
    throw std::runtime_error(path.string() + ": " + why);
  };
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("cannot be read");
  model_header h{};
  file.read(reinterpret_cast<char*>(&h), sizeof h);
  if (file && h.magic == model_header::expected(!is_mamba<Layer>))
    fail(is_mamba<Layer> ? "is a text model of QRNN layers" : "is a text model of Mamba blocks");
  if (!file || h.magic != model_header::expected(is_mamba<Layer>))
    fail("is not a text model of this program");
  const auto sensible = [](std::int64_t x, std::int64_t most) { return x >= 1 && x <= most; };
  if (!sensible(h.characters, 256) || !sensible(h.embedding, 1 << 16) ||
      !sensible(h.channels, 1 << 16) || !sensible(h.layers, 64) || !sensible(h.window, 64) ||
      (is_mamba<Layer> && h.embedding != h.channels))
    fail("has a damaged header");
  text_model<float, Layer> model({.characters = h.characters,
                                  .embedding = h.embedding,
                                  .channels = h.channels,
                                  .layers = h.layers,
                                  .window = h.window},
                                 what);
  std::int64_t numbers = 0;
  model.for_each([&](std::span<float> x) { numbers += static_cast<std::int64_t>(x.size()); });
  const auto whole = static_cast<std::uintmax_t>(sizeof h) +
                     static_cast<std::uintmax_t>(h.characters) +
                     static_cast<std::uintmax_t>(numbers) * sizeof(float);
  if (h.numbers != numbers) fail("has a damaged header");
  if (std::filesystem::file_size(path) != whole)
    fail("has " + std::to_string(std::filesystem::file_size(path)) + " bytes, and should have " +
         std::to_string(whole));
  std::string alphabet(static_cast<std::size_t>(h.characters), '\0');
  file.read(alphabet.data(), static_cast<std::streamsize>(alphabet.size()));
  model.for_each([&](std::span<float> x) {
    file.read(reinterpret_cast<char*>(x.data()), static_cast<std::streamsize>(x.size_bytes()));
  });
  if (!file) fail("cannot be read to its end");
  return {std::move(alphabet), std::move(model)};
}
