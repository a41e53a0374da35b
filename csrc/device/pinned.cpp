// The pinned allocator of the host accelerator.
#include "device/pinned.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/alloc_cpu.h>

#include <cstring>
#include <map>
#include <mutex>

namespace flagos {
namespace {

// Live blocks by address. Guarded by `mutex`.
struct Blocks {
  std::mutex mutex;
  std::map<const char*, size_t> sizes;
  at::HostStats stats;
};

Blocks& blocks() {
  static Blocks& instance = *new Blocks;  // tensors may be freed after static objects
  return instance;
}

void release(void* memory) {
  Blocks& all = blocks();
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.sizes.find(static_cast<const char*>(memory));
    all.stats.active_bytes.decrease(found->second);
    all.stats.allocated_bytes.decrease(found->second);
    all.stats.active_requests.decrease(1);
    all.stats.allocations.decrease(1);
    ++all.stats.num_host_free;
    all.sizes.erase(found);
  }
  c10::free_cpu(memory);
}

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) {
      return {nullptr, c10::Device(c10::DeviceType::CPU)};
    }
    void* memory = c10::alloc_cpu(bytes);
    Blocks& all = blocks();
    const std::lock_guard lock(all.mutex);
    all.sizes.emplace(static_cast<const char*>(memory), bytes);
    all.stats.active_bytes.increase(bytes);
    all.stats.allocated_bytes.increase(bytes);
    all.stats.active_requests.increase(1);
    all.stats.allocations.increase(1);
    ++all.stats.num_host_alloc;
    return {memory, memory, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }
  bool record_event(void*, void*, c10::Stream) override {
    return true;  // every copy has finished when it returns
  }
  void empty_cache() override {}
  at::HostStats get_stats() override {
    const std::lock_guard lock(blocks().mutex);
    return blocks().stats;
  }
  void reset_accumulated_stats() override {
    const std::lock_guard lock(blocks().mutex);
    at::HostStats& stats = blocks().stats;
    for (auto* stat : {&stats.active_bytes, &stats.allocated_bytes, &stats.active_requests, &stats.allocations}) {
      stat->reset_accumulated();
    }
    stats.num_host_alloc = 0;
    stats.num_host_free = 0;
  }
  void reset_peak_stats() override {
    const std::lock_guard lock(blocks().mutex);
    at::HostStats& stats = blocks().stats;
    for (auto* stat : {&stats.active_bytes, &stats.allocated_bytes, &stats.active_requests, &stats.allocations}) {
      stat->reset_peak();
    }
  }
};

}  // namespace

at::HostAllocator* pinned_allocator() {
  static PinnedAllocator& allocator = *new PinnedAllocator;
  return &allocator;
}

bool is_pinned(const void* pointer) {
  Blocks& all = blocks();
  const std::lock_guard lock(all.mutex);
  const auto* address = static_cast<const char*>(pointer);
  auto after = all.sizes.upper_bound(address);
  if (after != all.sizes.begin()) {
    --after;
    if (address < after->first + after->second) {
      return true;
    }
  }
  // A torch that is built for CUDA pins with CUDA's allocator, whichever device is the process's accelerator.
  return at::globalContext().hasCUDA() && at::detail::getCUDAHooks().isPinnedPtr(pointer);
}

}  // namespace flagos
