// The sharded counters: one writer a shard, any number of readers.
#include "route/counters.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

namespace flagos {
namespace {

// Written by one thread with plain relaxed stores, read by any.
class Counter {
 public:
  void add(uint64_t amount) {
    value_.store(value_.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  uint64_t read() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct Cell {
  explicit Cell(const CallKey& cell_key) : key(cell_key) {}

  const CallKey key;
  Counter calls;
  Counter bytes_to_host;
  Counter bytes_from_host;
  Counter nanoseconds;
  std::atomic<Cell*> next{nullptr};
};

// A list of cells for each overload, in pages so that nothing moves while readers look.
class Shard {
 public:
  static constexpr size_t kPageSize = 256;
  static constexpr size_t kPages = 256;

  Shard() = default;
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;
  ~Shard() {
    for (std::atomic<Page*>& slot : pages_) {
      delete slot.load(std::memory_order_relaxed);
    }
  }

  Cell& cell(const CallKey& key) {
    std::atomic<Page*>& slot = pages_[(key.overload / kPageSize) % kPages];
    Page* page = slot.load(std::memory_order_relaxed);
    if (page == nullptr) {
      page = new Page;
      slot.store(page, std::memory_order_release);
    }
    std::atomic<Cell*>* link = &page->heads[key.overload % kPageSize];
    Cell* found = link->load(std::memory_order_relaxed);
    while (found != nullptr && !(found->key == key)) {
      link = &found->next;
      found = link->load(std::memory_order_relaxed);
    }
    if (found == nullptr) {
      found = new Cell(key);
      link->store(found, std::memory_order_release);
    }
    return *found;
  }

  template <class Visit>
  void visit(const Visit& visit_cell) const {
    for (const std::atomic<Page*>& slot : pages_) {
      const Page* page = slot.load(std::memory_order_acquire);
      for (size_t i = 0; page != nullptr && i < kPageSize; ++i) {
        for (const Cell* cell = page->heads[i].load(std::memory_order_acquire); cell != nullptr;
             cell = cell->next.load(std::memory_order_acquire)) {
          visit_cell(*cell);
        }
      }
    }
  }

 private:
  struct Page {
    std::array<std::atomic<Cell*>, kPageSize> heads{};

    Page() = default;
    Page(const Page&) = delete;
    Page& operator=(const Page&) = delete;
    ~Page() {
      for (std::atomic<Cell*>& head : heads) {
        Cell* cell = head.load(std::memory_order_relaxed);
        while (cell != nullptr) {
          delete std::exchange(cell, cell->next.load(std::memory_order_relaxed));
        }
      }
    }
  };

  std::array<std::atomic<Page*>, kPages> pages_{};
};

using KeyTuple = std::tuple<uint32_t, Backend, Reason, uint64_t>;

KeyTuple order(const CallKey& key) {
  return {key.overload, key.backend, key.reason, key.dtypes};
}

// All shards ever made, those without a thread, and the totals at the last reset. Guarded by `mutex`.
struct Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<Shard>> shards;
  std::vector<Shard*> idle;
  std::map<KeyTuple, CallTotals> baseline;

  std::map<KeyTuple, CallTotals> sum() const {
    std::map<KeyTuple, CallTotals> totals;
    for (const std::unique_ptr<Shard>& shard : shards) {
      shard->visit([&totals](const Cell& cell) {
        CallTotals& total = totals[order(cell.key)];
        total.key = cell.key;
        total.calls += cell.calls.read();
        total.bytes_to_host += cell.bytes_to_host.read();
        total.bytes_from_host += cell.bytes_from_host.read();
        total.nanoseconds += cell.nanoseconds.read();
      });
    }
    return totals;
  }
};

Registry& registry() {
  static Registry& instance = *new Registry;  // threads may count until the process ends
  return instance;
}

// The shard of one thread, returned to the registry when the lease ends.
class ShardLease {
 public:
  ShardLease() {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    if (all.idle.empty()) {
      shard_ = all.shards.emplace_back(std::make_unique<Shard>()).get();
    } else {
      shard_ = all.idle.back();
      all.idle.pop_back();
    }
  }
  ShardLease(const ShardLease&) = delete;
  ShardLease& operator=(const ShardLease&) = delete;
  ~ShardLease() {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    all.idle.push_back(shard_);
  }
  Shard& shard() { return *shard_; }

 private:
  Shard* shard_;
};

// Destructors of other thread-local objects may run, and count, after the thread's own lease has gone: by then its
// shard may belong to a new thread. A plain pointer stays readable to the end of the thread and tells.
constinit thread_local Shard* thread_shard = nullptr;
constinit thread_local bool thread_ends = false;

constinit std::atomic<void (*)()> first_call_action{nullptr};

struct ThreadLease {
  ShardLease lease;

  ThreadLease() {
    thread_shard = &lease.shard();
    if (void (*action)() = first_call_action.load(std::memory_order_acquire)) {
      action();
    }
  }
  ThreadLease(const ThreadLease&) = delete;
  ThreadLease& operator=(const ThreadLease&) = delete;
  ~ThreadLease() {
    thread_shard = nullptr;
    thread_ends = true;
  }
};

void add_call(Cell& cell, uint64_t bytes_to_host, uint64_t bytes_from_host, uint64_t nanoseconds) {
  cell.calls.add(1);
  if ((bytes_to_host | bytes_from_host | nanoseconds) != 0) {
    cell.bytes_to_host.add(bytes_to_host);
    cell.bytes_from_host.add(bytes_from_host);
    cell.nanoseconds.add(nanoseconds);
  }
}

}  // namespace

const char* reason_text(Reason reason) {
  switch (reason) {
    case Reason::kRouted:
      return "routed";
    case Reason::kDecomposition:
      return "decomposition";
    case Reason::kRoundTrip:
      return "round trip";
    case Reason::kHostFill:
      return "host_fill";
    case Reason::kDevice:
      return "device";
  }
  return "unknown";
}

void count_call(const CallKey& key, uint64_t bytes_to_host, uint64_t bytes_from_host, uint64_t nanoseconds) {
  if (thread_shard == nullptr) {
    if (thread_ends) {
      ShardLease lease;
      add_call(lease.shard().cell(key), bytes_to_host, bytes_from_host, nanoseconds);
      return;
    }
    thread_local ThreadLease lease;
  }
  add_call(thread_shard->cell(key), bytes_to_host, bytes_from_host, nanoseconds);
}

void on_first_call_of_thread(void (*action)()) {
  first_call_action.store(action, std::memory_order_release);
}

std::vector<CallTotals> read_counters() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<CallTotals> result;
  for (const auto& [key, total] : all.sum()) {
    CallTotals since = total;
    if (const auto before = all.baseline.find(key); before != all.baseline.end()) {
      since.calls -= before->second.calls;
      since.bytes_to_host -= before->second.bytes_to_host;
      since.bytes_from_host -= before->second.bytes_from_host;
      since.nanoseconds -= before->second.nanoseconds;
    }
    if ((since.calls | since.bytes_to_host | since.bytes_from_host | since.nanoseconds) != 0) {
      result.push_back(since);
    }
  }
  return result;
}

void reset_counters() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.baseline = all.sum();
}

}  // namespace flagos
