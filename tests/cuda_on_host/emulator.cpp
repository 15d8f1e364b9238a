// SPDX-License-Identifier: BSD-3-Clause
// The scheduler of the emulator: fibers, barriers, messages and checks of shared memory.
#include "emulator.hpp"

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <new>
#include <random>
#include <utility>

#include "block_state.hpp"
#include "stacks.hpp"
#include "weak_memory.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace cuda_on_host {
namespace {

thread_local schedule chosen;
thread_local std::uint64_t launches = 0;
struct byte_range {
  std::byte* first = nullptr;
  std::size_t bytes = 0;
};
thread_local byte_range weak_bytes;
constexpr int turns_per_store = 64;  // average turns between arrivals of stores without a fence

/// A running launch.
class machine {
 public:
  explicit machine(const launch& kernel)
      : kernel_(kernel),
        random_(chosen.seed * 0x9e3779b97f4a7c15u + launches++),
        memory_(weak_bytes.first, kernel.synchronises ? weak_bytes.bytes : 0) {}

  void run();

  // State of the running thread:
  thread_state* now = nullptr;
  std::int64_t block_now = 0;
  int thread_now = 0;
  std::byte* shared_now = nullptr;

  void wait(waiting how);
  bool any_of_block(bool mine);
  void store(word* p, const word& w);
  word load(const word* p) { return *memory_.arrived(p); }
  std::uint64_t fetch_add(std::uint64_t* p, std::uint64_t more);
  void fence();
  const void* exchange(const void* mine, std::size_t bytes, int lane);
  void pause();
  void touch(const void* p, std::size_t bytes, bool writes);
  void copy(void* to, const void* from, std::size_t bytes, std::size_t alignment);
  void close_group();
  void wait_for_copies(int groups);
  [[noreturn]] void fail(const std::string& what) const;

 private:
  void run_plainly();
  void start_block();
  void resume(thread_state& t);
  void switch_back();
  void take_stores();
  [[nodiscard]] moment here() const {
    return {now->index, now->block_barriers, now->warp_barriers};
  }
  void arrive(thread_state& t);
  void release(block_state& b);
  void release(block_state& b, int warp);
  thread_state* choose();
  thread_state* choose_paused();
  void deliver(std::size_t i);
  accesses* accesses_of(const void* p, std::size_t bytes, std::size_t& count);
  std::byte* new_shared();
  std::int64_t below(std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random_);
  }

  const launch& kernel_;
  std::mt19937_64 random_;
  weak_memory memory_;
  std::vector<std::int64_t> order_;  // blocks still to start, in reverse order
  std::deque<std::unique_ptr<block_state>> blocks_;
  std::deque<thread_state*> paused_;  // in the order in which they paused
  struct message {
    word* to;
    word what;
    std::int64_t block;  // the sender
    moment sent;
  };
  std::vector<message> on_the_way_;
  std::exception_ptr thrown_;
  int idle_turns_ = 0;
#if defined(__SANITIZE_ADDRESS__)
  const void* main_stack_ = nullptr;
  std::size_t main_bytes_ = 0;
#endif
};

thread_local machine* at_work = nullptr;
machine& working() {
  if (!at_work) throw fault("device code called outside a kernel");
  return *at_work;
}

void machine::fail(const std::string& what) const {
  throw fault("block " + std::to_string(block_now) + ", thread " + std::to_string(thread_now) +
              ": " + what);
}

std::byte* machine::new_shared() {
  if (kernel_.shared_bytes == 0) return nullptr;
  const auto bytes = static_cast<std::size_t>(kernel_.shared_bytes);
  auto* const shared = static_cast<std::byte*>(::operator new(bytes, std::align_val_t(16)));
  std::memset(shared, 0xff, bytes);  // NaN if read as a number
  return shared;
}

void machine::run() {
  order_.resize(static_cast<std::size_t>(kernel_.blocks));
  for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<std::int64_t>(i);
  std::shuffle(order_.begin(), order_.end(), random_);
  if (!kernel_.synchronises) return run_plainly();

  for (int i = 0; i < chosen.resident_blocks && !order_.empty(); ++i) start_block();
  while (thread_state* const t = choose()) {
    if (!on_the_way_.empty() && below(chosen.turns_per_word) == 0)
      deliver(static_cast<std::size_t>(below(static_cast<std::int64_t>(on_the_way_.size()))));
    if (!memory_.empty() && below(turns_per_store) == 0) memory_.arrive_by_chance(random_);
    resume(*t);
    if (thrown_) std::rethrow_exception(thrown_);
    block_state& b = *t->block;
    if (b.alive > 0) continue;
    blocks_.erase(std::find_if(blocks_.begin(), blocks_.end(),
                               [&](const auto& other) { return other.get() == &b; }));
    if (!order_.empty()) start_block();
  }
  while (!on_the_way_.empty()) deliver(0);
  memory_.arrive_all();
}

// Threads that never wait need no fibers.
void machine::run_plainly() {
  std::vector<int> threads(static_cast<std::size_t>(kernel_.threads));
  for (int i = 0; i < kernel_.threads; ++i) threads[static_cast<std::size_t>(i)] = i;
  for (const std::int64_t block : order_) {
    const std::unique_ptr<std::byte, aligned_delete> shared(new_shared());
    std::shuffle(threads.begin(), threads.end(), random_);
    for (const int thread : threads) {
      block_now = block, thread_now = thread, shared_now = shared.get();
      kernel_.thread();
    }
  }
}

void machine::start_block() {
  auto& b = *blocks_.emplace_back(std::make_unique<block_state>());
  b.index = order_.back();
  order_.pop_back();
  b.shared.reset(new_shared());
  if (!memory_.empty()) b.memory = memory_.add_block();
  b.touched.resize((static_cast<std::size_t>(kernel_.shared_bytes) + accessed_together - 1) /
                   accessed_together);
  b.threads.resize(static_cast<std::size_t>(kernel_.threads));
  b.warps.resize(static_cast<std::size_t>((kernel_.threads + warp_size - 1) / warp_size));
  b.alive = kernel_.threads;
  b.ready.resize(b.threads.size());
  for (int i = 0; i < kernel_.threads; ++i) b.ready[static_cast<std::size_t>(i)] = i;
  for (int i = 0; i < kernel_.threads; ++i) {
    thread_state& t = b.threads[static_cast<std::size_t>(i)];
    t.block = &b, t.index = i;
    ++b.warps[static_cast<std::size_t>(i / warp_size)].alive;
    t.fiber = context::fiber(std::allocator_arg, pooled_stack{}, [this, &t](context::fiber&& back) {
      t.back = std::move(back);
#if defined(__SANITIZE_ADDRESS__)
      __sanitizer_finish_switch_fiber(nullptr, &main_stack_, &main_bytes_);
#endif
      try {
        kernel_.thread();
      } catch (const context::detail::forced_unwind&) {
        throw;
      } catch (...) {
        thrown_ = std::current_exception();
      }
      t.done = true;
#if defined(__SANITIZE_ADDRESS__)
      __sanitizer_start_switch_fiber(nullptr, main_stack_, main_bytes_);
#endif
      return std::move(t.back);
    });
    t.stack = stacks().last();
  }
}

// The thread that runs next, or null if all are done.
thread_state* machine::choose() {
  if (blocks_.empty()) return nullptr;
  if (chosen.turns_per_poll > 0 && !paused_.empty() && below(chosen.turns_per_poll) == 0)
    return choose_paused();
  const std::size_t n = blocks_.size();
  const std::size_t start = chosen.first == favour::newest ? n - 1
                            : chosen.first == favour::any
                                ? static_cast<std::size_t>(below(static_cast<std::int64_t>(n)))
                                : 0;
  const std::size_t step = chosen.first == favour::newest ? n - 1 : 1;  // modulo n
  for (std::size_t i = 0, k = start; i < n; ++i, k = (k + step) % n) {
    block_state& b = *blocks_[k];
    if (b.ready.empty()) continue;
    idle_turns_ = 0;
    std::swap(b.ready[static_cast<std::size_t>(below(static_cast<std::int64_t>(b.ready.size())))],
              b.ready.back());
    thread_state& t = b.threads[static_cast<std::size_t>(b.ready.back())];
    b.ready.pop_back();
    return &t;
  }
  if (paused_.empty()) {
    std::string who;
    for (const auto& b : blocks_)
      for (const thread_state& t : b->threads)
        if (!t.done && who.size() < 200)
          who += " " + std::to_string(b->index) + "." + std::to_string(t.index);
    throw fault("threads wait for each other for ever (block.thread):" + who);
  }
  // Only paused threads are left, so they run in turn. They may be waiting for a word in flight.
  if (on_the_way_.empty() && ++idle_turns_ > 200'000)
    throw fault("every thread waits for another block for ever");
  thread_state* const t = paused_.front();
  paused_.pop_front();
  return t;
}
thread_state* machine::choose_paused() {
  std::swap(paused_[static_cast<std::size_t>(below(static_cast<std::int64_t>(paused_.size())))],
            paused_.front());
  thread_state* const t = paused_.front();
  paused_.pop_front();
  return t;
}

void machine::resume(thread_state& t) {
  now = &t;
  block_now = t.block->index, thread_now = t.index, shared_now = t.block->shared.get();
  if (t.block->memory) memory_.show(*t.block->memory);
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, t.stack, stack_pool::bytes);
#endif
  t.fiber = std::move(t.fiber).resume();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  if (t.done) take_stores();
  now = nullptr;
  if (!t.done) return;
  block_state& b = *t.block;
  const int warp = t.index / warp_size;
  --b.alive, --b.warps[static_cast<std::size_t>(warp)].alive;
  release(b, warp);
  release(b);
}

// Called when the running thread reaches a barrier or an exchange, pauses, ends, or adds to a
// watched number.
void machine::take_stores() {
  if (now->block->memory) memory_.take_stores(*now->block->memory, here());
}

void machine::switch_back() {
  thread_state& t = *now;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, main_stack_, main_bytes_);
#endif
  t.back = std::move(t.back).resume();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, &main_stack_, &main_bytes_);
#endif
}

void machine::release(block_state& b) {
  if (b.alive == 0 || b.arrived < b.alive) return;
  b.arrived = 0;
  b.any_before = std::exchange(b.any, false);
  for (thread_state& t : b.threads)
    if (!t.done && t.wait == waiting::block_barrier)
      t.wait = waiting::no, ++t.block_barriers, ++t.warp_barriers, b.ready.push_back(t.index);
}
void machine::release(block_state& b, int warp) {
  warp_state& w = b.warps[static_cast<std::size_t>(warp)];
  if (w.alive == 0 || w.arrived < w.alive) return;
  w.arrived = 0;
  ++w.turn;
  const int last = std::min<int>((warp + 1) * warp_size, kernel_.threads);
  for (int i = warp * warp_size; i < last; ++i) {
    thread_state& t = b.threads[static_cast<std::size_t>(i)];
    if (t.done || (t.wait != waiting::warp_barrier && t.wait != waiting::exchange)) continue;
    // An exchange does not order memory accesses.
    if (t.wait == waiting::warp_barrier) ++t.warp_barriers;
    t.wait = waiting::no;
    b.ready.push_back(i);
  }
}

void machine::arrive(thread_state& t) {
  block_state& b = *t.block;
  if (t.wait == waiting::block_barrier) {
    ++b.arrived;
    release(b);
  } else {
    const int warp = t.index / warp_size;
    const int last = std::min<int>((warp + 1) * warp_size, kernel_.threads);
    for (int i = warp * warp_size; i < last; ++i) {
      const waiting other = b.threads[static_cast<std::size_t>(i)].wait;
      if (other != waiting::no && other != t.wait)
        fail("threads of a warp meet at different barriers");
    }
    ++b.warps[static_cast<std::size_t>(warp)].arrived;
    release(b, warp);
  }
}

void machine::wait(waiting how) {
  if (!now) fail("waits, in a kernel that says it does not synchronise");
  thread_state& t = *now;
  take_stores();
  t.wait = how;
  arrive(t);
  switch_back();
}

bool machine::any_of_block(bool mine) {
  if (!now) fail("waits, in a kernel that says it does not synchronise");
  block_state& b = *now->block;
  b.any = b.any || mine;
  wait(waiting::block_barrier);
  return b.any_before;
}

void machine::deliver(std::size_t i) {
  *memory_.arrived(on_the_way_[i].to) = on_the_way_[i].what;
  on_the_way_.erase(on_the_way_.begin() + static_cast<std::ptrdiff_t>(i));
}
void machine::store(word* p, const word& w) {
  if (!now) fail("stores a word, in a kernel that says it does not synchronise");
  // Words to the same address arrive in order.
  for (std::size_t i = 0; i < on_the_way_.size();)
    if (on_the_way_[i].to == p)
      deliver(i);
    else
      ++i;
  on_the_way_.push_back({p, w, block_now, here()});
}
void machine::fence() {
  if (!now) return;  // no other thread can wait for this one
  for (std::size_t i = 0; i < on_the_way_.size();)
    if (on_the_way_[i].block == block_now && ordered(on_the_way_[i].sent, here()))
      deliver(i);
    else
      ++i;
  if (now->block->memory) memory_.fence(*now->block->memory, here());
}
std::uint64_t machine::fetch_add(std::uint64_t* p, std::uint64_t more) {
  if (now && !now->block->drawn) {
    // blocks_ begins with the blocks that have tickets, in the order of their tickets.
    const auto has_not = [](const auto& b) { return !b->drawn; };
    const auto to = std::find_if(blocks_.begin(), blocks_.end(), has_not);
    const auto own =
        std::find_if(to, blocks_.end(), [&](const auto& b) { return b.get() == now->block; });
    now->block->drawn = true;
    std::rotate(to, own, own + 1);
  }
  if (now && memory_.contains(p)) {
    take_stores();
    return memory_.fetch_add(*now->block->memory, p, more);
  }
  return std::exchange(*p, *p + more);
}

const void* machine::exchange(const void* mine, std::size_t bytes, int lane) {
  if (!now) fail("exchanges, in a kernel that says it does not synchronise");
  constexpr std::size_t most = 512;
  if (bytes > most) fail("exchanges more than 512 bytes");
  warp_state& w = now->block->warps[static_cast<std::size_t>(now->index / warp_size)];
  std::vector<std::byte>& slots = w.slots[w.turn % 2];
  slots.resize(most * warp_size);
  std::memcpy(slots.data() + most * static_cast<std::size_t>(now->index % warp_size), mine, bytes);
  const int from = now->index / warp_size * warp_size + lane;
  if (lane < 0 || lane >= warp_size || from >= kernel_.threads ||
      now->block->threads[static_cast<std::size_t>(from)].done)
    fail("exchanges with a thread that does not exist or has ended");
  wait(waiting::exchange);
  return slots.data() + most * static_cast<std::size_t>(lane);
}

void machine::pause() {
  if (!now) fail("pauses, in a kernel that says it does not synchronise");
  take_stores();
  paused_.push_back(now);
  switch_back();
}

// Returns the records of the last accesses to some bytes of shared memory, and their number in
// `count`.
accesses* machine::accesses_of(const void* p, std::size_t bytes, std::size_t& count) {
  if (!now) fail("uses shared memory, in a kernel that says it does not synchronise");
  block_state& b = *now->block;
  const std::ptrdiff_t offset = static_cast<const std::byte*>(p) - b.shared.get();
  if (offset < 0 || offset + static_cast<std::ptrdiff_t>(bytes) > kernel_.shared_bytes)
    fail("reaches byte " + std::to_string(offset) + " of " + std::to_string(kernel_.shared_bytes) +
         " of shared memory");
  const std::size_t first = static_cast<std::size_t>(offset) / accessed_together;
  count = (static_cast<std::size_t>(offset) + bytes - 1) / accessed_together - first + 1;
  return b.touched.data() + first;
}

void machine::touch(const void* p, std::size_t bytes, bool writes) {
  std::size_t count = 0;
  accesses* const all = accesses_of(p, bytes, count);
  const auto byte = [&] { return std::to_string(static_cast<const std::byte*>(p) - shared_now); };
  const moment at = here();
  for (std::size_t i = 0; i < count; ++i) {
    accesses& a = all[i];
    const auto race = [&](const moment& other, const char* did) {
      fail("race in shared memory at byte " + byte() + ": " + (writes ? "written" : "read") +
           " where thread " + std::to_string(other.thread) + " " + did +
           " without a barrier in between");
    };
    if (a.on_its_way) fail("uses shared memory at byte " + byte() + ", where a copy is on its way");
    if (!writes && a.write.thread < 0)
      fail("reads shared memory at byte " + byte() + ", where nobody has written");
    if (!ordered(a.write, at)) race(a.write, "wrote");
    if (writes) {
      for (const moment& read : a.reads)
        if (!ordered(read, at)) race(read, "read");
      a = {at, {}};
    } else if (ordered(a.reads[0], at)) {
      a.reads[0] = at;
    } else {
      a.reads[1] = at;
    }
  }
}

void machine::copy(void* to, const void* from, std::size_t bytes, std::size_t alignment) {
  for (const void* const p : {static_cast<const void*>(to), from})
    if (reinterpret_cast<std::uintptr_t>(p) % alignment != 0)
      fail("copies to or from an address not aligned to " + std::to_string(alignment) + " bytes");
  touch(to, bytes, true);
  std::size_t count = 0;
  accesses* const all = accesses_of(to, bytes, count);
  for (std::size_t i = 0; i < count; ++i) all[i].on_its_way = true;
  const auto* const first = static_cast<const std::byte*>(from);
  now->copies.push_back(
      {static_cast<std::byte*>(to), first, {first, first + bytes}, now->closed_groups});
}
void machine::close_group() {
  if (!now) fail("copies to shared memory, in a kernel that says it does not synchronise");
  ++now->closed_groups;
}
void machine::wait_for_copies(int groups) {
  if (!now) fail("waits, in a kernel that says it does not synchronise");
  std::deque<copy_on_its_way>& copies = now->copies;
  while (!copies.empty() &&
         copies.front().group + static_cast<std::uint64_t>(groups) < now->closed_groups) {
    const copy_on_its_way& c = copies.front();
    if (std::memcmp(c.from, c.seen.data(), c.seen.size()) != 0)
      fail("the source of a copy to shared memory has changed meanwhile");
    std::memcpy(c.to, c.seen.data(), c.seen.size());
    std::size_t count = 0;
    accesses* const all = accesses_of(c.to, c.seen.size(), count);
    for (std::size_t i = 0; i < count; ++i) all[i] = {here(), {}, false};
    copies.pop_front();
  }
}

}  // namespace

// ---- the interface ----------------------------------------------------------------------------

scheduled::scheduled(const schedule& s) : before_(chosen) {
  if (s.turns_per_word < 1 || s.turns_per_poll < 0 || s.turns_per_poll == 1)
    throw fault("schedule: expected turns_per_word >= 1, and turns_per_poll of 0 or >= 2");
  chosen = s;
  launches = 0;
}
scheduled::~scheduled() { chosen = before_; }

weakly_ordered::weakly_ordered(void* first, std::size_t bytes) {
  if (weak_bytes.bytes > 0) throw fault("weakly_ordered: other bytes are weakly ordered already");
  weak_bytes = {static_cast<std::byte*>(first), bytes};
}
weakly_ordered::~weakly_ordered() { weak_bytes = {}; }

void run(const launch& kernel) {
  machine m(kernel);
  machine* const before = std::exchange(at_work, &m);
  try {
    m.run();
  } catch (...) {
    at_work = before;
    throw;
  }
  at_work = before;
}

int thread_index() { return working().thread_now; }
std::int64_t block_index() { return working().block_now; }
std::byte* shared_memory() { return working().shared_now; }
void synchronise_block() { working().wait(waiting::block_barrier); }
bool any_of_block(bool mine) { return working().any_of_block(mine); }
void synchronise_warp() { working().wait(waiting::warp_barrier); }
const void* exchange(const void* mine, std::size_t bytes, int lane) {
  return working().exchange(mine, bytes, lane);
}
void pause() { working().pause(); }
void store_word(word* p, const word& w) { working().store(p, w); }
word load_word(const word* p) { return working().load(p); }
std::uint64_t fetch_add(std::uint64_t* p, std::uint64_t more) {
  return working().fetch_add(p, more);
}
void fence() { working().fence(); }
void touch_shared(const void* p, std::size_t bytes, bool writes) {
  working().touch(p, bytes, writes);
}
void copy_to_shared(void* to, const void* from, std::size_t bytes, std::size_t alignment) {
  working().copy(to, from, bytes, alignment);
}
void close_group_of_copies() { working().close_group(); }
void wait_for_copies(int groups) { working().wait_for_copies(groups); }

}  // namespace cuda_on_host
