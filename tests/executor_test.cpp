// SPDX-License-Identifier: BSD-3-Clause
// Tests of executors and of exceptions from operators, cells and executors. The caller gets the
// exception, and no thread waits forever. The file is also compiled without OpenMP, where workers
// are std::threads.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/scan.hpp>
#include <scanrec/variants.hpp>

#include "catch.hpp"
#include "linear_cell.hpp"
#include "tested_backend.hpp"
#if SCANREC_TEST_EIGEN
#include <scanrec/triangular_matmul.hpp>
#endif

namespace {

using namespace scanrec;

/// The exception that operators and cells of these tests throw.
struct thrown {
  std::int64_t which;
};

/// A sum that throws if either operand is negative.
struct sum_or_throw {
  std::int64_t operator()(std::int64_t x, std::int64_t y) const {
    if (x < 0) throw thrown{x};
    if (y < 0) throw thrown{y};
    return x + y;
  }
  static std::int64_t identity() { return 0; }
};

/// Runs every worker on its own thread, all at once.
void threads_executor(int workers, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) threads.emplace_back(std::cref(work), w);
  for (std::thread& t : threads) t.join();
}
void serial_executor(int workers, const std::function<void(int)>& work) {
  for (int w = 0; w < workers; ++w) work(w);
}
void reverse_executor(int workers, const std::function<void(int)>& work) {
  for (int w = workers - 1; w >= 0; --w) work(w);
}

template <class F>
void with_executors(F f) {
  f("the default", executor{});
  f("threads", executor(threads_executor));
  f("one after the other", executor(serial_executor));
  f("the last one first", executor(reverse_executor));
}

/// Returns the number that a call threw, or 0 if it threw nothing.
template <class Call>
std::int64_t thrown_by(const Call& call) {
  try {
    call();
  } catch (const thrown& e) {
    return e.which;
  }
  return 0;
}

}  // namespace

TEST_CASE("an exception of an operator reaches the caller on any executor",
          "[inclusive_scan][throwing]") {
  const std::int64_t steps = 600;
  const auto check = [&](const std::string& name, const auto& backend, std::int64_t batch,
                         std::int64_t channels) {
    const extents shape{.batch = batch, .time = steps, .channel = channels};
    const auto n = static_cast<std::size_t>(batch * steps * channels);
    for (const std::int64_t at : {std::int64_t{0}, steps / 2, steps - 1}) {
      std::vector<std::int64_t> elements(n, 1), results(n),
          last(static_cast<std::size_t>(batch * channels));
      // The operator throws in the last sequence, when workers may have started on others.
      const std::size_t index =
          static_cast<std::size_t>(((batch - 1) * steps + at) * channels + channels - 1);
      elements[index] = -1;
      const sequence_view<std::int64_t> in(elements.data(), shape), out(results.data(), shape);
      const prefix_options<std::int64_t> options{.final = {last.data(), shape}};
      INFO(name << ", " << batch << " rows of " << channels << " channels, at step " << at);
      CHECK(thrown_by([&] { inclusive_scan(backend, sum_or_throw{}, in, out, options); }) == -1);
      // An exclusive scan may leave out the last element.
      const std::int64_t exclusive =
          thrown_by([&] { exclusive_scan(backend, sum_or_throw{}, in, out); });
      CHECK((exclusive == -1 || (at == steps - 1 && exclusive == 0)));
      elements[index] = 1;
      CHECK(thrown_by([&] { inclusive_scan(backend, sum_or_throw{}, in, out, options); }) == 0);
      CHECK(results[index] == at + 1);
      CHECK(last.back() == steps);
    }
  };
  for (const auto& [batch, channels] : {std::pair<int, int>{1, 1}, {1, 3}, {40, 3}}) {
    check("sequential", sequential{}, batch, channels);
    with_executors(
        [&, batch = batch, channels = channels](const std::string& name, const executor& e) {
          for (int threads = 1; threads <= 8; ++threads) {
            const std::string all = name + ", threads " + std::to_string(threads);
            for (const std::int64_t tile : {0, 1, 7, 64})
              check("tiled, tile " + std::to_string(tile) + ", " + all,
                    tiled{.threads = threads, .tile_steps = tile, .executor = e}, batch, channels);
            check("hillis_steele, " + all, hillis_steele{.threads = threads, .executor = e}, batch,
                  channels);
            check("blelloch, " + all, blelloch{.threads = threads, .executor = e}, batch, channels);
          }
        });
  }
}

TEST_CASE("if several workers throw, the exception of the first worker reaches the caller",
          "[throwing]") {
  // Worker 0 throws first on some executors and last on others.
  with_executors([](const std::string& name, const executor& e) {
    INFO(name);
    CHECK(thrown_by([&] { detail::run_on(e, 4, [](int worker) { throw thrown{worker + 1}; }); }) ==
          1);
  });
}

TEST_CASE("if several tasks throw, the exception of the first task reaches the caller",
          "[tiled][throwing]") {
  const extents shape{.time = 640};
  std::vector<std::int64_t> elements(640, 1), results(640);
  for (const std::int64_t first : {3, 100, 200}) {
    std::fill(elements.begin(), elements.end(), 1);
    for (std::int64_t at = first; at < 640; at += 64) elements[static_cast<std::size_t>(at)] = -at;
    const sequence_view<std::int64_t> in(elements.data(), shape), out(results.data(), shape);
    with_executors([&](const std::string& name, const executor& e) {
      for (int threads = 1; threads <= 8; ++threads)
        for (int round = 0; round < 10; ++round) {
          INFO(name << ", threads " << threads);
          const tiled backend{.threads = threads, .tile_steps = 64, .executor = e};
          CHECK(thrown_by([&] { inclusive_scan(backend, sum_or_throw{}, in, out); }) == -first);
        }
    });
  }
}

namespace {

/// A cell that throws in the load that decrements `left` to 0.
struct cell_or_throw : tested::linear_cell {
  static inline std::atomic<std::int64_t> left{0};

  template <class Lane>
  static step<Lane> load(Lane rate, Lane x) {
    if (--left == 0) throw thrown{1};
    return {rate, x};
  }
};

}  // namespace

TEST_CASE("an exception of a cell reaches the caller on any executor", "[gated][throwing]") {
  const extents shape{.batch = 3, .time = 700, .channel = 20};
  const auto n = static_cast<std::size_t>(3 * 700 * 20);
  std::vector<float> rate(n, 0.5f), x(n, 1.0f), state(n, 1.0f), grad(n, 1.0f), x_grad(n), sum(20),
      by_step(700);
  const auto check = [&](const std::string& name, const auto& backend) {
    for (const scanrec::strides& strides : {channels_last(shape), time_contiguous(shape)}) {
      const auto view = [&](std::vector<float>& v) {
        return sequence_view<float>(v.data(), shape, strides);
      };
      const cell_or_throw::arrays<sequence_view<float>> arrays{view(rate), view(x)};
      const auto forward = [&] { gated_scan(backend, cell_or_throw{}, arrays, view(state)); };
      const auto backward = [&](const sequence_view<float>& rate_grad) {
        gated_scan_vjp(backend, cell_or_throw{}, arrays, memory::store{view(state)}, view(grad),
                       {.arrays = {rate_grad, view(x_grad)}});
      };
      const auto all = [&] {
        backward({sum.data(), shape, scanrec::strides{0, 0, 1, 0}});
        backward({by_step.data(), shape, scanrec::strides{0, 1, 0, 0}});
        forward();
      };
      INFO(name << ", strides " << to_string(strides));
      cell_or_throw::left = 0;
      CHECK(thrown_by(all) == 0);
      const std::int64_t loads = -cell_or_throw::left;
      for (const std::int64_t at :
           {std::int64_t{1}, loads / 7, loads / 3, loads / 2, loads - 1, loads}) {
        cell_or_throw::left = at;
        const std::int64_t got = thrown_by(all);
        // A worker that gets its carry early loads the steps of its tile once instead of twice, so
        // the number of loads varies.
        const bool threw = cell_or_throw::left <= 0;
        CHECK((threw || at > loads / 2));
        CHECK(got == (threw ? 1 : 0));
      }
    }
  };
  check("sequential", sequential{});
  with_executors([&](const std::string& name, const executor& e) {
    for (const int threads : {1, 2, 3, 8}) {
      const std::string all = name + ", threads " + std::to_string(threads);
      for (const std::int64_t tile : {0, 64})
        check("tiled, tile " + std::to_string(tile) + ", " + all,
              tiled{.threads = threads, .tile_steps = tile, .executor = e});
      check("hillis_steele, " + all, hillis_steele{.threads = threads, .executor = e});
      check("blelloch, " + all, blelloch{.threads = threads, .executor = e});
#if SCANREC_TEST_EIGEN
      check("triangular_matmul, " + all, triangular_matmul{.threads = threads, .executor = e});
#endif
    }
  });
}

TEST_CASE("an exception of an executor reaches the caller", "[throwing]") {
  const extents shape{.time = 5000};
  std::vector<std::int64_t> elements(5000, 1), results(5000);
  const sequence_view<std::int64_t> in(elements.data(), shape), out(results.data(), shape);
  const auto check = [&](const executor& e) {
    const auto message = [&](const auto& backend) -> std::string {
      try {
        inclusive_scan(backend, sum_or_throw{}, in, out);
      } catch (const std::runtime_error& error) {
        return error.what();
      }
      return "nothing thrown";
    };
    CHECK(message(tiled{.threads = 3, .tile_steps = 64, .executor = e}) == "no more threads");
    CHECK(message(hillis_steele{.threads = 3, .executor = e}) == "no more threads");
    CHECK(message(blelloch{.threads = 3, .executor = e}) == "no more threads");
  };
  // The executor throws before any worker has run, after some, and after all.
  for (const int ran : {0, 1, 2, 3})
    check([ran](int workers, const std::function<void(int)>& work) {
      for (int w = 0; w < std::min(ran, workers); ++w) work(w);
      throw std::runtime_error("no more threads");
    });
}

TEST_CASE("an exception of an executor reaches the caller after its workers have returned",
          "[tiled][throwing]") {
  const extents shape{.time = 5000};
  std::vector<std::int64_t> elements(5000, 1), results(5000);
  std::atomic<std::int64_t> calls{0};
  const auto slow_sum = [&](std::int64_t x, std::int64_t y) {
    if (++calls < 20) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return x + y;
  };
  std::thread helper;
  const tiled backend{
      .threads = 3, .tile_steps = 64, .executor = [&](int, const std::function<void(int)>& work) {
        helper = std::thread(std::cref(work), 0);
        while (calls == 0) std::this_thread::yield();  // until the worker has begun
        throw std::runtime_error("no more threads");
      }};
  CHECK_THROWS_AS(inclusive_scan(backend, slow_sum, sequence_view(elements.data(), shape),
                                 sequence_view(results.data(), shape)),
                  std::runtime_error);
  const std::int64_t calls_then = calls;
  helper.join();
  CHECK(calls == calls_then);
  // The only worker has processed all tasks.
  CHECK(results.back() == 5000);
}
