// CPU memory behind any number of virtual devices; every call is finished when it returns.
#include "accelerator/host/host.h"

#include "accelerator/host/guard.h"
#include "route/settings.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <unistd.h>

#include <cstring>
#include <thread>

namespace flagos {
namespace {

class HostAccelerator final : public Accelerator {
 public:
  explicit HostAccelerator(c10::DeviceIndex devices) : devices_(devices), guard_(devices) {}

  const char* name() const noexcept override { return "host"; }

  Backend backend() const noexcept override { return Backend::kHost; }

  BackingTarget backing() const noexcept override { return {}; }

  bool backward_on_calling_thread() const noexcept override { return true; }

  c10::DeviceIndex device_count() const noexcept override { return devices_; }

  DeviceProperties properties(c10::DeviceIndex index) const override {
    DeviceProperties result;
    result.name = "flagos host";
    result.total_memory = total_memory(index);
    result.multi_processor_count = static_cast<int64_t>(std::thread::hardware_concurrency());
    return result;
  }

  c10::DeviceIndex current_device() const override { return guard_.getDevice().index(); }

  const c10::impl::DeviceGuardImplInterface* guard() const noexcept override { return &guard_; }

  // Every call has finished when it returns, so nothing is ever reused too early.
  void record_data_on_stream(const c10::DataPtr&, c10::Stream) const override {}

  c10::DataPtr allocate(c10::DeviceIndex, size_t bytes) override { return c10::GetCPUAllocator()->allocate(bytes); }

  c10::Allocator* backing_allocator() const override { return c10::GetCPUAllocator(); }

  size_t total_memory(c10::DeviceIndex) const override { return pages(_SC_PHYS_PAGES); }

  size_t free_memory(c10::DeviceIndex) const override { return pages(_SC_AVPHYS_PAGES); }

  void copy_bytes(void* destination, const void* source, size_t bytes) override {
    if (bytes != 0) {
      std::memcpy(destination, source, bytes);
    }
  }

  at::Generator make_generator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }

 private:
  static size_t pages(int name) {
    const long count = sysconf(name);
    const long size = sysconf(_SC_PAGESIZE);
    TORCH_CHECK(count >= 0 && size > 0, "flagos: sysconf does not tell the amount of memory");
    return static_cast<size_t>(count) * static_cast<size_t>(size);
  }

  c10::DeviceIndex devices_;
  HostGuard guard_;
};

}  // namespace

std::unique_ptr<Accelerator> make_host_accelerator() {
  return std::make_unique<HostAccelerator>(static_cast<c10::DeviceIndex>(settings().host_devices));
}

}  // namespace flagos
