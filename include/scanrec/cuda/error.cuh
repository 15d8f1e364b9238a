// SPDX-License-Identifier: BSD-3-Clause
// The exception for failures of the CUDA runtime, cuBLAS and CUB.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace scanrec::cuda {

/// Thrown if a call of the CUDA runtime, cuBLAS or CUB fails, or a kernel cannot be launched. An
/// example of what(): "kernel launch: invalid configuration argument (error 9), device.cuh:61".
///
/// This library never waits for its kernels, so the runtime reports errors of running kernels in a
/// later call.
class error : public std::runtime_error {
 public:
  error(std::string call, int status, const std::string& text, std::string file, unsigned line)
      : std::runtime_error(call + ": " + text + " (error " + std::to_string(status) + "), " + file +
                           ":" + std::to_string(line)),
        call_(std::move(call)),
        file_(std::move(file)),
        status_(status),
        line_(line) {}

  /// The name of the call that failed.
  [[nodiscard]] const std::string& call() const noexcept { return call_; }
  /// The cudaError_t, or the cublasStatus_t if call() is a function of cuBLAS.
  [[nodiscard]] int status() const noexcept { return status_; }
  /// The source file and line in this library.
  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  [[nodiscard]] unsigned line() const noexcept { return line_; }

 private:
  std::string call_, file_;
  int status_;
  unsigned line_;
};

}  // namespace scanrec::cuda
