// SPDX-License-Identifier: BSD-3-Clause
// A C function of linear attention for bench/python/linear_attention.py, which loads it by ctypes.
#include <exception>
#include <string>

#include "linear_attention_call.hpp"

/// Runs a forward call, or its vjp if `out` is null. Returns null, or the message of an error.
extern "C" const char* bench_linear_attention(const bench::attention_call<float>* call,
                                              int threads) {
  static thread_local std::string message;
  try {
    const scanrec::tiled on{.threads = threads};
    call->out != nullptr ? call->forward(on) : call->vjp(on);
    return nullptr;
  } catch (const std::exception& error) {
    message = error.what();
    return message.c_str();
  }
}
