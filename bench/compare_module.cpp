// SPDX-License-Identifier: BSD-3-Clause
// A benchmark's rows as a library with a C interface. compare.py loads the libraries of two commits
// into one process, where both run on the same buffers.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "measure.hpp"

namespace {

const std::vector<bench::row>& all_rows() {
  static const std::vector<bench::row> rows = bench::rows(false);
  return rows;
}

bench::arena provided;

/// Passes a row's kernel to the caller, which measures it.
class handing_on : public bench::runner {
 public:
  explicit handing_on(void (*measured)(const void*)) : measured_(measured) {}
  std::vector<double> medians(const std::vector<std::function<void()>>& functions) override {
    measured_(&functions[0]);
    return std::vector<double>(functions.size(), 1.0);
  }
  void counter(const char*, double) override {}
  void label(const std::string&) override {}

 private:
  void (*measured_)(const void*);
};

}  // namespace

extern "C" {

[[gnu::visibility("default")]] std::int64_t compare_rows() {
  return static_cast<std::int64_t>(all_rows().size());
}
[[gnu::visibility("default")]] const char* compare_name(std::int64_t row) {
  return all_rows()[static_cast<std::size_t>(row)].name.c_str();
}
/// Sets up a row's arrays in buffers that `provider` returns for a role and a size, and calls
/// `measured` with the row's kernel. The kernel is valid until `measured` returns.
[[gnu::visibility("default")]] void compare_run(std::int64_t row,
                                                void* (*provider)(int role, std::size_t bytes),
                                                void (*measured)(const void* kernel)) {
  bench::buffers.provider = provider;
  handing_on by(measured);
  all_rows()[static_cast<std::size_t>(row)].run(by);
}
/// Seconds that `calls` calls of a kernel take together. Negative if the headers refuse the call.
[[gnu::visibility("default")]] double compare_seconds(const void* kernel, std::int64_t calls) {
  const auto& f = *static_cast<const std::function<void()>*>(kernel);
  try {
    return bench::seconds_of([&] {
      for (std::int64_t i = 0; i < calls; ++i) f();
    });
  } catch (const std::invalid_argument&) {
    return -1;
  }
}
/// The buffer of a role, with at least `bytes` bytes; compare_release frees all buffers.
[[gnu::visibility("default")]] void* compare_buffer(int role, std::size_t bytes) {
  return provided.get(role, bytes);
}
[[gnu::visibility("default")]] void compare_release() {
  for (auto& buffer : provided.roles) buffer.reset();
}

}  // extern "C"
