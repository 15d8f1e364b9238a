// SPDX-License-Identifier: BSD-3-Clause
// The exception that calls throw for an invalid argument, before anything is written.
#pragma once

#include <stdexcept>
#include <string>

#include <scanrec/detail/text.hpp>

namespace scanrec {

/// Thrown for an invalid argument. Nothing has been written.
///
/// what() reads "linear_scan: argument 'state': expected <this>, got <that>". The members return
/// parts of the message for callers that reword it, such as bindings that rename arguments.
///
/// Object files compiled for different instruction sets share this class. Its members are therefore
/// always inlined. It stores its strings in standard exceptions, whose members are compiled into
/// the standard library.
class argument_error : public std::invalid_argument {
 public:
  SCANREC_INLINE argument_error(const char* call, const char* argument, const char* expected,
                                const char* got)
      : std::invalid_argument(
            detail::text(call, ": argument '", argument, "': expected ", expected, ", got ", got)
                .c_str()),
        argument_(argument),
        expected_(expected),
        got_(got) {}
  SCANREC_INLINE argument_error(const std::string& call, const std::string& argument,
                                const std::string& expected, const std::string& got)
      : argument_error(call.c_str(), argument.c_str(), expected.c_str(), got.c_str()) {}

  /// The name of the argument as documented, for example "gate_grad".
  [[nodiscard]] SCANREC_INLINE std::string argument() const { return argument_.what(); }
  /// A description of the values that the call accepts.
  [[nodiscard]] SCANREC_INLINE std::string expected() const { return expected_.what(); }
  /// A description of the value that was passed.
  [[nodiscard]] SCANREC_INLINE std::string got() const { return got_.what(); }

 private:
  std::runtime_error argument_, expected_, got_;
};

namespace detail {
inline namespace SCANREC_ABI {
/// Throws argument_error. This function is not inlined, so that inlined checks stay small.
[[noreturn, gnu::cold, gnu::noinline]] inline void refuse(const char* call, const char* argument,
                                                          const text& expected, const text& got) {
  throw argument_error(call, argument, expected.c_str(), got.c_str());
}
}  // namespace SCANREC_ABI
}  // namespace detail

}  // namespace scanrec
