// SPDX-License-Identifier: BSD-3-Clause
// Tests of task_queue, whose tasks are claimed in order or in blocks: each task runs once, workers
// begin with their share, and after an exception the earlier tasks still run.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <scanrec/scan.hpp>

#include "catch.hpp"

namespace {

using scanrec::detail::task_queue;

/// A queue whose tasks are claimed in blocks, with memory for its counters.
struct shared_out {
  alignas(64) std::byte room[64 * sizeof(task_queue::counter)];
  task_queue tasks;
  shared_out(std::int64_t count, int workers) : tasks(count) { tasks.share_out(room, workers); }
};

std::vector<std::int64_t> tasks_of(task_queue& queue, int worker) {
  std::vector<std::int64_t> done;
  queue.work_off(worker, [&](std::int64_t task) { done.push_back(task); });
  return done;
}

}  // namespace

TEST_CASE("a worker begins with its share and then takes tasks of the others", "[threads]") {
  using list = std::vector<std::int64_t>;
  for (int call = 0; call < 2; ++call) {
    shared_out ten(10, 3);  // shares of 4, 3 and 3
    CHECK(tasks_of(ten.tasks, 1) == list{4, 5, 6, 7, 8, 9, 0, 1, 2, 3});
    CHECK(tasks_of(ten.tasks, 0).empty());
  }
  shared_out few(2, 5);
  CHECK(tasks_of(few.tasks, 4) == list{0, 1});
  shared_out none(0, 5);
  CHECK(tasks_of(none.tasks, 2).empty());
}

TEST_CASE("every task runs exactly once", "[threads]") {
  for (const int workers : {1, 2, 3, 8})
    for (const std::int64_t count : {0, 1, 7, 1000})
      for (const bool in_blocks : {false, true}) {
        shared_out blocks(count, workers);
        task_queue in_order(count);
        task_queue& tasks = in_blocks ? blocks.tasks : in_order;
        std::vector<std::atomic<int>> done(count);
        scanrec::detail::run_on({}, workers, [&](int worker) {
          tasks.work_off(worker, [&](std::int64_t task) { ++done[task]; });
        });
        for (const auto& times : done) CHECK(times == 1);
      }
}

TEST_CASE("after an exception the earlier tasks still run", "[threads][throwing]") {
  // Tasks 4 and 7 throw. The exception of task 4 is reported in either order of the workers.
  for (const bool turned : {false, true}) {
    shared_out blocks(12, 4);
    std::set<std::int64_t> done;
    for (int i = 0; i < 4; ++i)
      blocks.tasks.work_off(turned ? 3 - i : i, [&](std::int64_t task) {
        if (task == 7 || task == 4) throw std::runtime_error(std::to_string(task));
        done.insert(task);
      });
    for (const std::int64_t task : {0, 1, 2, 3}) CHECK(done.count(task) == 1);
    try {
      blocks.tasks.rethrow();
      FAIL("nothing was thrown");
    } catch (const std::runtime_error& e) {
      CHECK(std::string(e.what()) == "4");
    }
  }
}
