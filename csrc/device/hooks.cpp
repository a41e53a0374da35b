// The hooks of the flagos device.
#include "device/hooks.h"

#include "accelerator/accelerator.h"
#include "device/allocator.h"
#include "device/generator.h"
#include "device/guard.h"
#include "device/pinned.h"
#include "device/storage.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

namespace flagos {
namespace {

class FlagosHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return accelerator().device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return index >= 0 && index < accelerator().device_count();
  }
  void init() const override {}

  c10::DeviceIndex deviceCount() const override { return accelerator().device_count(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { accelerator().guard()->setDevice(device(index)); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return accelerator().guard()->exchangeDevice(device(index)).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }

  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  at::Device getDeviceFromPtr(void*) const override {
    return device(current_device());  // host memory belongs to every virtual device alike
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return make_generator(index); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage.unsafeGetStorageImpl(), bytes);
  }

 private:
  static c10::Device device(c10::DeviceIndex index) { return c10::Device(c10::DeviceType::PrivateUse1, index); }
};

}  // namespace

void register_hooks() {
  static FlagosHooks& hooks = *new FlagosHooks;  // PyTorch keeps the pointer to the end of the process
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::SetAllocator(c10::DeviceType::PrivateUse1, flagos_allocator());
  at::setHostAllocator(c10::DeviceType::PrivateUse1, pinned_allocator());
}

}  // namespace flagos
