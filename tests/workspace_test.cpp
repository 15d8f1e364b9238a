// SPDX-License-Identifier: BSD-3-Clause
// Tests of memory: the bytes that a call allocates and reports, and indices beyond 2^31 elements.
#include <sys/mman.h>

#include <atomic>
#include <cfenv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <scanrec/scan.hpp>
#include <scanrec/sensitivity.hpp>
#include <scanrec/variants.hpp>

#include "catch.hpp"
#include "tested_backend.hpp"

namespace {
std::atomic<std::int64_t> allocated{0};
std::atomic<bool> counting{false};
void* counted(std::size_t bytes, std::size_t alignment) {
  if (counting) allocated += static_cast<std::int64_t>(bytes);
  if (alignment < 16) alignment = 16;
  void* p = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!p) throw std::bad_alloc();
  return p;
}
}  // namespace
void* operator new(std::size_t n) { return counted(n, 0); }
void* operator new(std::size_t n, std::align_val_t a) {
  return counted(n, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}

namespace {

using namespace scanrec;

template <class F>
std::int64_t bytes_of(F f) {
  allocated = 0;
  counting = true;
  f();
  counting = false;
  return allocated;
}

}  // namespace

TEST_CASE("a call allocates exactly its stated workspace", "[workspace][backends][forward][vjp]") {
  for (const extents shape :
       {extents{1, 1, 256}, extents{4, 300, 64}, extents{1, 50000, 3}, extents{2, 4096, 20}}) {
    const std::size_t n = shape.batch * shape.time * shape.channel;
    std::vector<float> a(n, 0.5f), u(n, 1), x(n), da(n), sum(shape.channel);
    using view = sequence_view<float>;
    for (const scanrec::strides& strides : {channels_last(shape), time_contiguous(shape)})
      for (const int threads : {1, 3}) {
#if !defined(_OPENMP)
        if (threads > 1) continue;  // std::thread allocates as well
#endif
        const tiled tiles{.threads = threads};
        const tested::backend<float> backend("tiled", tiles), loop("sequential", sequential{});
        const view A(a.data(), shape, strides), U(u.data(), shape, strides),
            X(x.data(), shape, strides), S(sum.data(), shape, scanrec::strides{0, 0, 1}),
            D(da.data(), shape, strides);
        // Calls the backend directly, because recording the call would allocate.
        const auto expected = [&](const problem& p) {
          const auto bytes = workspace_bytes(tiles, p);
          CHECK(bytes == describe(tiles, p).workspace_bytes);
          // The bound is 1/256 of one array and, per thread, 10 times strip_bytes: 1 for the state
          // of a strip, 2 for running sums, 4 for a map in the wide type, and 3 for recent steps of
          // a map.
          CHECK(bytes <= static_cast<std::int64_t>(n * sizeof(float)) / 256 +
                             threads * 10 * tile_policy::strip_bytes);
          return bytes <= 8192 ? 0 : bytes;
        };
        CHECK(bytes_of([&] { backend.calls->forward(A, U, X, {}); }) ==
              expected(linear_scan_problem(A, U, X)));
        CHECK(bytes_of([&] {
                backend.calls->vjp(A, X, U, {.gate_grad = S, .input_grad = D}, {});
              }) == expected(linear_scan_vjp_problem(A, X, U, {.gate_grad = S, .input_grad = D})));
        const std::int64_t of_loop = workspace_bytes(
            sequential{}, linear_scan_vjp_problem(A, X, U, {.gate_grad = S, .input_grad = D}));
        CHECK(bytes_of([&] { loop.calls->vjp(A, X, U, {.gate_grad = S, .input_grad = D}, {}); }) ==
              (of_loop <= 8192 ? 0 : of_loop));
        const auto check_variant = [&](const auto& options) {
          const tested::backend<float> variant("variant", options);
          const auto of = [&](const problem& p) {
            const auto bytes = workspace_bytes(options, p);
            // Two maps of two numbers for every element, with channels in whole packs. The rest is
            // for accumulators and for the matrices of triangular_matmul.
            const std::int64_t strip = shape.time * detail::round_up(shape.channel, 16);
            CHECK(bytes <= threads * (4 * strip * std::int64_t{sizeof(float)} + (1 << 19)));
            return bytes <= 8192 ? 0 : bytes;
          };
          CHECK(bytes_of([&] { variant.calls->forward(A, U, X, {}); }) ==
                of(linear_scan_problem(A, U, X)));
          CHECK(bytes_of([&] {
                  variant.calls->vjp(A, X, U, {.gate_grad = S, .input_grad = D}, {});
                }) == of(linear_scan_vjp_problem(A, X, U, {.gate_grad = S, .input_grad = D})));
        };
        check_variant(hillis_steele{.threads = threads});
        check_variant(blelloch{.threads = threads});
#if SCANREC_TEST_EIGEN
        check_variant(triangular_matmul{.threads = threads});
#endif
      }
  }
}

TEST_CASE("operator scans and sensitivities allocate exactly their stated workspace",
          "[workspace][inclusive_scan]") {
  const extents shape{.batch = 2, .time = 30000, .channel = 20};
  const std::size_t n = shape.batch * shape.time * shape.channel;
  std::vector<float> u(n, 1), x(n), s(n), lambda(shape.channel, 0.5f);
  const sequence_view<float> in(u.data(), shape), out(x.data(), shape), more(s.data(), shape);
  const sequence_view<float> gate(lambda.data(), shape, {.channel = 1});
  const auto check = [](const auto& backend, const problem& p, auto call) {
    // Workspaces up to 8 KiB are on the stack.
    const std::int64_t stated = workspace_bytes(backend, p), took = bytes_of(call);
    CHECK((took == stated || (took == 0 && stated <= 8 * 1024)));
  };
  const auto on = [&](const auto& backend) {
    check(backend, inclusive_scan_problem(op::sum{}, in, out),
          [&] { inclusive_scan(backend, op::sum{}, in, out); });
    check(backend, exclusive_scan_problem(op::sum{}, in, out),
          [&] { exclusive_scan(backend, op::sum{}, in, out); });
  };
  on(sequential{});
  on(tiled{.threads = 1});
  on(hillis_steele{.threads = 1});
  on(blelloch{.threads = 1});
  const tiled backend{.threads = 1};
  check(backend, linear_scan_sensitivity_problem(gate, in, out, more),
        [&] { linear_scan_sensitivity(backend, gate, in, out, more); });
}

TEST_CASE("a streaming step does not allocate", "[workspace][streaming][tiled][forward]") {
  const extents shape{8, 1, 256};
  std::vector<float> a(2048, 0.5f), u(2048, 1), x(2048), s(2048);
  const state_view<float> carry(s.data(), shape);
  CHECK(bytes_of([&] {
          linear_scan(sequence_view(a.data(), shape), sequence_view(u.data(), shape),
                      sequence_view(x.data(), shape),
                      {.initial_state = carry, .final_state = carry});
        }) == 0);
}

TEST_CASE("indices beyond 2^31 elements are right", "[index][backends][forward]") {
  // Processing 2^33 elements would take too long, so the sequences are short and the strides large.
  const std::int64_t far = std::int64_t{3} << 31;  // elements between adjacent channels
  const extents shape{.batch = 2, .time = 4, .channel = 2};
  // The memory is only reserved, and few pages are touched.
  const std::size_t bytes = static_cast<std::size_t>(far) * 4 * sizeof(float);
  void* const reserved = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(reserved != MAP_FAILED);
  auto* base = static_cast<float*>(reserved);
  const scanrec::strides strides{.batch = 2 * far, .time = 1, .channel = far};
  for (int b = 0; b < 2; ++b)
    for (int c = 0; c < 2; ++c)
      for (int t = 0; t < 4; ++t)
        base[b * 2 * far + c * far + t] = static_cast<float>(b + 1) + c + t;
  std::vector<float> half(1, 0.5f), x(16);
  const sequence_view gate(half.data(), shape, scanrec::strides{0, 0, 0});
  for (const auto& backend : tested::backends<float>()) {
    INFO(backend.name);
    const sequence_view<float> in(base, shape, strides), out(x.data(), shape);
    linear_scan(backend, gate, in, out);
    for (int b = 0; b < 2; ++b)
      for (int c = 0; c < 2; ++c) {
        float state = 0;
        for (int t = 0; t < 4; ++t) {
          state = 0.5f * state + static_cast<float>(b + 1) + c + t;
          CHECK(x[(b * 4 + t) * 2 + c] == state);
        }
      }
    // Now the array with large strides is the output.
    linear_scan(backend, gate, out, in);
    CHECK(base[3 * far + 3] == 0.5f * base[3 * far + 2] + x[15]);
    for (int b = 0; b < 2; ++b)
      for (int c = 0; c < 2; ++c)
        for (int t = 0; t < 4; ++t)
          base[b * 2 * far + c * far + t] = static_cast<float>(b + 1) + c + t;
  }
  munmap(reserved, bytes);
}

namespace {

/// Runs an adjoint in a caller-provided workspace, and checks that the result has the bits of a
/// call that allocates.
template <class Backend>
void check_given_workspace(Backend backend) {
  const extents shape{.batch = 3, .time = 700, .channel = 20};
  const std::size_t n = shape.batch * shape.time * shape.channel;
  std::vector<float> a(n, 0.5f), x(n, 1), own(20), given(20);
  using view = sequence_view<float>;
  const scanrec::strides shared{.channel = 1};
  const view A(a.data(), shape), X(x.data(), shape);
  const auto sum = [&](std::vector<float>& to) {
    return scan_gradients<float, float>{.gate_grad = view(to.data(), shape, shared)};
  };
  const auto run = [&](std::vector<float>& to) { linear_scan_vjp(backend, A, X, X, sum(to)); };
  run(own);

  const problem p = linear_scan_vjp_problem(A, X, X, sum(given));
  const std::int64_t bytes = workspace_bytes(backend, p);
  CHECK(bytes == describe(backend, p).workspace_bytes);
  REQUIRE(bytes > 0);
  CHECK(to_string(describe(backend, p)).find(std::to_string(bytes)) != std::string::npos);
  std::vector<std::byte> memory(bytes + 128);
  void* start = memory.data();
  std::size_t room = memory.size();
  REQUIRE(std::align(64, bytes, start, room));
  auto* const position = static_cast<std::byte*>(start);

  backend.workspace = {position, static_cast<std::size_t>(bytes)};
  CHECK(bytes_of([&] { run(given); }) == 0);
  CHECK(given == own);

  const auto untouched = given;
  backend.workspace = {position, static_cast<std::size_t>(bytes - 1)};
  const auto message = [&]() -> std::string {
    try {
      run(given);
    } catch (const argument_error& error) {
      return error.what();
    }
    return "";
  };
  const auto says = [&](const std::string& what) {
    return message().find("'workspace': expected " + what) != std::string::npos;
  };
  CHECK(says("at least " + std::to_string(bytes) + " bytes, the value of workspace_bytes(), got " +
             std::to_string(bytes - 1) + " bytes"));
  backend.workspace = {position + 8, static_cast<std::size_t>(bytes)};
  CHECK(says("memory aligned to 64 bytes, got an address 8 bytes past a multiple"));
  CHECK(given == untouched);
}

}  // namespace

TEST_CASE("a caller-provided workspace changes no bit and is checked for size and alignment",
          "[workspace][backends]") {
  check_given_workspace(sequential{});
  check_given_workspace(tiled{.threads = 1});
  check_given_workspace(tiled{.threads = 1, .tile_steps = 100});
  check_given_workspace(hillis_steele{.threads = 1});
  check_given_workspace(blelloch{.threads = 1});
}

namespace {

/// Runs a scan in a workspace full of signaling NaNs, and checks that it raises no
/// invalid-operation exception. Arithmetic on any of the NaNs would raise it.
template <class Backend>
void check_no_exception(Backend backend) {
  // The steps are two chunks of triangular_matmul and a part of a third. The channels do not fill a
  // pack.
  const extents shape{.batch = 2, .time = 300, .channel = 5};
  const std::size_t n = shape.batch * shape.time * shape.channel;
  std::vector<float> a(n, 0.5f), u(n, 1), x(n);
  for (const scanrec::strides& strides : {channels_last(shape), time_contiguous(shape)})
    for (const scanrec::strides& of_gate :
         {strides, scanrec::strides{.channel = 1}, scanrec::strides{.batch = 300, .time = 1}}) {
      const sequence_view<float> gate(a.data(), shape, of_gate), input(u.data(), shape, strides),
          state(x.data(), shape, strides);
      const std::int64_t bytes = workspace_bytes(backend, linear_scan_problem(gate, input, state));
      std::vector<float> memory(static_cast<std::size_t>(bytes) / sizeof(float) + 32,
                                std::numeric_limits<float>::signaling_NaN());
      void* start = memory.data();
      std::size_t room = memory.size() * sizeof(float);
      REQUIRE(std::align(64, bytes, start, room));
      backend.workspace = {static_cast<std::byte*>(start), static_cast<std::size_t>(bytes)};
      std::feclearexcept(FE_ALL_EXCEPT);
      linear_scan(backend, gate, input, state);
      INFO("gate " << to_string(of_gate) << ", others " << to_string(strides));
      CHECK(std::fetestexcept(FE_INVALID) == 0);
    }
}

}  // namespace

TEST_CASE("a call does not compute with the previous contents of its workspace", "[workspace]") {
  check_no_exception(tiled{.threads = 1});
#if SCANREC_TEST_EIGEN
  check_no_exception(triangular_matmul{.threads = 1});
#endif
}
