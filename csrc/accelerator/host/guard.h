// Devices, streams and events of the host: thread-local numbers, since every call is finished when it returns.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace flagos {

class HostGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  explicit HostGuard(c10::DeviceIndex devices) : devices_(devices) {}

  c10::DeviceType type() const override;
  c10::Device exchangeDevice(c10::Device device) const override;
  c10::Device getDevice() const override;
  void setDevice(c10::Device device) const override;
  void uncheckedSetDevice(c10::Device device) const noexcept override;
  c10::DeviceIndex deviceCount() const noexcept override;
  void synchronizeDevice(c10::DeviceIndex index) const override;

  c10::Stream getStream(c10::Device device) const noexcept override;
  c10::Stream getDefaultStream(c10::Device device) const override;
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override;
  c10::Stream getNewStream(c10::Device device, int priority) const override;
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override;
  void* getStreamNativeHandle(c10::Stream stream) const override;
  bool queryStream(const c10::Stream& stream) const override;
  void synchronizeStream(const c10::Stream& stream) const override;

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex index, c10::EventFlag flag) const override;
  void block(void* event, const c10::Stream& stream) const override;
  bool queryEvent(void* event) const override;
  void synchronizeEvent(void* event) const override;
  double elapsedTime(void* start, void* end, c10::DeviceIndex index) const override;
  void destroyEvent(void* event, c10::DeviceIndex index) const noexcept override;
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override;

 private:
  c10::DeviceIndex check(c10::Device device) const;

  c10::DeviceIndex devices_;
};

}  // namespace flagos
