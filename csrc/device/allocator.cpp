// The device allocator, the statistics of each device and the memory limit.
#include "device/allocator.h"

#include "accelerator/accelerator.h"
#include "backing/storage.h"
#include "device/guard.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <limits>
#include <memory>

namespace flagos {
namespace {

// One amount (bytes or blocks) of one device, as two sums that only grow: one atomic addition for each allocation and
// each release. What readers see is exact once writers rest.
class Gauge {
 public:
  /// Adds, unless that passes `limit`; tells whether it did.
  bool try_add(int64_t amount, int64_t limit) {
    const int64_t now = add_to_allocated(amount);
    if (now > limit) {
      allocated_.fetch_sub(amount, std::memory_order_relaxed);
      return false;
    }
    raise_peak(now);
    return true;
  }
  void add(int64_t amount) { raise_peak(add_to_allocated(amount)); }
  void subtract(int64_t amount) { freed_.fetch_add(amount, std::memory_order_relaxed); }
  int64_t current() const {
    const int64_t freed = freed_.load(std::memory_order_relaxed);  // first: what is freed has been allocated before
    return allocated_.load(std::memory_order_relaxed) - freed;
  }
  void reset_peak() { peak_.store(current(), std::memory_order_relaxed); }
  void reset_accumulated() {
    freed_base_.store(freed_.load());
    allocated_base_.store(allocated_.load());
  }
  c10::CachingAllocator::Stat stat() const {
    c10::CachingAllocator::Stat result;
    const int64_t freed = freed_.load(std::memory_order_relaxed);
    const int64_t allocated = allocated_.load(std::memory_order_relaxed);
    result.current = allocated - freed;
    result.peak = std::max(peak_.load(std::memory_order_relaxed), result.current);
    result.freed = freed - freed_base_.load(std::memory_order_relaxed);
    result.allocated = allocated - allocated_base_.load(std::memory_order_relaxed);
    return result;
  }

 private:
  int64_t add_to_allocated(int64_t amount) {
    return allocated_.fetch_add(amount, std::memory_order_relaxed) + amount - freed_.load(std::memory_order_relaxed);
  }
  void raise_peak(int64_t now) {
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }

  std::atomic<int64_t> allocated_{0};
  std::atomic<int64_t> freed_{0};
  std::atomic<int64_t> peak_{0};
  std::atomic<int64_t> allocated_base_{0};
  std::atomic<int64_t> freed_base_{0};
};

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
// Stands in `DeviceMemory::limit` while a test waits for an allocation to fail. Nothing fits below it, so whatever is
// charged takes the path of refusals, and other calls need not ask.
constexpr int64_t kCounting = -1;

struct DeviceMemory {
  Gauge bytes;
  Gauge blocks;
  std::atomic<int64_t> limit{kNoLimit};      // what charges are compared with
  std::atomic<int64_t> set_limit{kNoLimit};  // what the user has set
  std::atomic<int64_t> until_failure{0};     // allocations that are still to come, the failing one among them
  std::atomic<int64_t> out_of_memory{0};
};

constexpr int kMaxDevices = 64;

DeviceMemory& memory_of(c10::DeviceIndex index) {
  static auto& devices = *new std::array<DeviceMemory, kMaxDevices>;  // storages may outlive static objects
  TORCH_INTERNAL_ASSERT_DEBUG_ONLY(index >= 0 && index < kMaxDevices);
  return devices[static_cast<size_t>(index)];
}

[[noreturn]] void report_out_of_memory(c10::DeviceIndex index, size_t bytes, bool exists, int64_t limit) {
  DeviceMemory& memory = memory_of(index);
  memory.out_of_memory.fetch_add(1, std::memory_order_relaxed);
  const int64_t allocated = memory.bytes.current();
  TORCH_CHECK_WITH(OutOfMemoryError, false, "flagos out of memory. ",
                   exists ? "A kernel grew a tensor on device " : "Tried to allocate ",
                   exists ? "" : std::to_string(bytes), exists ? "" : " bytes on device ", static_cast<int>(index),
                   exists ? " to " + std::to_string(bytes) + " bytes" : "", ", which has a limit of ", limit,
                   " bytes, of which ", allocated, " bytes are allocated and ", std::max<int64_t>(limit - allocated, 0),
                   " bytes are free. Free tensors or raise FLAGOS_HOST_MEMORY.");
}

// Off the hot path: what does not fit below `limit` is refused, unless a test is counting allocations and this one fits
// below the limit that the user has set.
void refuse_unless_counting(c10::DeviceIndex index, size_t bytes, bool exists) {
  DeviceMemory& memory = memory_of(index);
  const int64_t limit = memory.set_limit.load();
  if (memory.limit.load() != kCounting) {
    report_out_of_memory(index, bytes, exists, limit);
  }
  const int64_t allocated = memory.bytes.current();
  if (memory.until_failure.fetch_sub(1) == 1) {
    memory.limit.store(limit);
    report_out_of_memory(index, bytes, exists, exists ? std::max<int64_t>(allocated - 1, 0) : allocated);
  }
  if (exists ? allocated > limit
             : (bytes > static_cast<size_t>(limit) || allocated > limit - static_cast<int64_t>(bytes))) {
    report_out_of_memory(index, bytes, exists, limit);
  }
}

// The accelerator's memory itself may end before any limit does.
c10::DataPtr allocate_backing(c10::DeviceIndex index, size_t bytes) {
  try {
    return accelerator().allocate(index, bytes);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    memory_of(index).out_of_memory.fetch_add(1, std::memory_order_relaxed);
    TORCH_CHECK_WITH(OutOfMemoryError, false, "flagos out of memory. Tried to allocate ", bytes, " bytes on device ",
                     static_cast<int>(index), ", of whose ", accelerator().total_memory(index), " bytes ",
                     accelerator().free_memory(index), " are free. (", error.what_without_backtrace(), ")");
  }
}

class FlagosAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::DeviceIndex index = current_device();
    check_memory_limit(index, bytes);
    return front_data(
        c10::make_intrusive<BackingStorage>(allocate_backing(index, bytes), bytes, /*resizable=*/true, index));
  }

  // Our context is not the data pointer, so there is no raw deleter.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    accelerator().copy_bytes(destination, source, bytes);
  }

  bool initialized() override { return true; }

  void emptyCache(c10::MempoolId_t) override {}  // nothing is cached here: the host's own allocator does that

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override { record_data_on_stream(data, stream); }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    const DeviceMemory& memory = memory_of(check_device_index(index));
    c10::CachingDeviceAllocator::DeviceStats stats;
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const c10::CachingAllocator::Stat bytes = memory.bytes.stat();
    const c10::CachingAllocator::Stat blocks = memory.blocks.stat();
    for (auto* stat : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      (*stat)[kAll] = bytes;
    }
    for (auto* stat : {&stats.allocation, &stats.active, &stats.segment}) {
      (*stat)[kAll] = blocks;
    }
    stats.num_ooms = memory.out_of_memory.load();
    stats.num_device_alloc = blocks.allocated;
    stats.num_device_free = blocks.freed;
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex index) override {
    DeviceMemory& memory = memory_of(check_device_index(index));
    memory.bytes.reset_accumulated();
    memory.blocks.reset_accumulated();
    memory.out_of_memory.store(0);
  }

  void resetPeakStats(c10::DeviceIndex index) override {
    DeviceMemory& memory = memory_of(check_device_index(index));
    memory.bytes.reset_peak();
    memory.blocks.reset_peak();
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    return memory_info(check_device_index(index));
  }
};

}  // namespace

c10::DeviceAllocator* flagos_allocator() {
  static FlagosAllocator& allocator = *new FlagosAllocator;  // never destroyed: storages name it
  return &allocator;
}

void check_memory_limit(c10::DeviceIndex index, size_t bytes) {
  const DeviceMemory& memory = memory_of(index);
  const int64_t limit = memory.limit.load(std::memory_order_relaxed);
  if (bytes == 0) {
    return;  // asking for nothing is how memory past the limit is given up
  }
  if (C10_UNLIKELY(bytes > static_cast<size_t>(limit) ||
                   memory.bytes.current() > limit - static_cast<int64_t>(bytes))) {
    refuse_unless_counting(index, bytes, false);
  }
}

void charge_memory(c10::DeviceIndex index, size_t bytes) {
  if (bytes == 0) {
    return;
  }
  DeviceMemory& memory = memory_of(index);
  const auto amount = static_cast<int64_t>(bytes);
  const int64_t limit = memory.limit.load(std::memory_order_relaxed);
  // Allocations were counted by check_memory_limit before they were made.
  if (C10_UNLIKELY(!memory.bytes.try_add(amount, limit)) &&
      !(limit == kCounting && memory.bytes.try_add(amount, memory.set_limit.load()))) {
    report_out_of_memory(index, bytes, false, memory.set_limit.load());
  }
  memory.blocks.add(1);
}

void charge_existing_memory(c10::DeviceIndex index, size_t bytes, bool grown) {
  DeviceMemory& memory = memory_of(index);
  memory.bytes.add(static_cast<int64_t>(bytes));
  memory.blocks.add(bytes != 0 ? 1 : 0);
  if (C10_UNLIKELY(grown && memory.bytes.current() > memory.limit.load(std::memory_order_relaxed))) {
    refuse_unless_counting(index, bytes, true);
  }
}

void discharge_memory(c10::DeviceIndex index, size_t bytes) {
  if (bytes != 0) {
    DeviceMemory& memory = memory_of(index);
    memory.bytes.subtract(static_cast<int64_t>(bytes));
    memory.blocks.subtract(1);
  }
}

void set_memory_limit(c10::DeviceIndex index, size_t bytes) {
  DeviceMemory& memory = memory_of(check_device_index(index));
  const int64_t limit = bytes == 0 ? kNoLimit : static_cast<int64_t>(std::min(bytes, size_t{kNoLimit}));
  memory.set_limit.store(limit);
  if (memory.limit.load() != kCounting) {
    memory.limit.store(limit);
  }
}

int64_t fail_allocation(c10::DeviceIndex index, int64_t count) {
  DeviceMemory& memory = memory_of(check_device_index(index));
  TORCH_CHECK_VALUE(count >= 0, "fail_allocation: count must not be negative, but is ", count);
  const bool counting = memory.limit.exchange(memory.set_limit.load()) == kCounting;
  const int64_t left = memory.until_failure.exchange(count);
  if (count != 0) {
    memory.limit.store(kCounting);
  }
  return counting ? left : 0;
}

std::pair<size_t, size_t> memory_info(c10::DeviceIndex index) {
  const DeviceMemory& memory = memory_of(index);
  const int64_t limit = memory.set_limit.load();
  if (limit == kNoLimit) {
    return {accelerator().free_memory(index), accelerator().total_memory(index)};
  }
  return {static_cast<size_t>(std::max<int64_t>(limit - memory.bytes.current(), 0)), static_cast<size_t>(limit)};
}

}  // namespace flagos
