// The host's device guard.
#include "accelerator/host/guard.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>

namespace flagos {
namespace {

constexpr size_t kMaxDevices = 64;
constexpr c10::StreamId kPoolSize = 32;  // as many as a CUDA device hands out before it starts again

thread_local c10::DeviceIndex current = 0;
thread_local std::array<c10::StreamId, kMaxDevices> current_streams{};

c10::Device flagos_device(c10::DeviceIndex index) {
  return c10::Device(c10::DeviceType::PrivateUse1, index);
}

c10::Stream make_stream(c10::DeviceIndex index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, flagos_device(index), id);
}

// A moment on a device: recording it finishes at once.
struct HostEvent {
  c10::DeviceIndex index;
  bool timing;
  std::chrono::steady_clock::time_point time;
};

}  // namespace

c10::DeviceIndex HostGuard::check(c10::Device device) const {
  TORCH_CHECK(device.type() == c10::DeviceType::PrivateUse1, "flagos: expected a flagos device, got ", device);
  const c10::DeviceIndex index = device.has_index() ? device.index() : current;
  TORCH_CHECK(index >= 0 && index < devices_, "flagos: device index ", static_cast<int>(index),
              " is out of range; there ", devices_ == 1 ? "is " : "are ", static_cast<int>(devices_),
              devices_ == 1 ? " device" : " devices");
  return index;
}

c10::DeviceType HostGuard::type() const {
  return c10::DeviceType::PrivateUse1;
}

c10::Device HostGuard::exchangeDevice(c10::Device device) const {
  const c10::Device before = getDevice();
  setDevice(device);
  return before;
}

c10::Device HostGuard::getDevice() const {
  return flagos_device(current);
}

void HostGuard::setDevice(c10::Device device) const {
  current = check(device);
}

void HostGuard::uncheckedSetDevice(c10::Device device) const noexcept {
  if (device.index() >= 0 && device.index() < devices_) {
    current = device.index();
  }
}

c10::DeviceIndex HostGuard::deviceCount() const noexcept {
  return devices_;
}

void HostGuard::synchronizeDevice(c10::DeviceIndex index) const {
  check(flagos_device(index));
}

c10::Stream HostGuard::getStream(c10::Device device) const noexcept {
  const c10::DeviceIndex index = device.has_index() ? device.index() : current;
  const bool known = index >= 0 && index < devices_;
  return make_stream(index, known ? current_streams[static_cast<size_t>(index)] : 0);
}

c10::Stream HostGuard::getDefaultStream(c10::Device device) const {
  return make_stream(check(device), 0);
}

c10::Stream HostGuard::getStreamFromGlobalPool(c10::Device device, bool) const {
  return getNewStream(device, 0);
}

c10::Stream HostGuard::getNewStream(c10::Device device, int) const {
  static std::array<std::atomic<uint32_t>, kMaxDevices> next{};
  const c10::DeviceIndex index = check(device);
  return make_stream(index, 1 + next[static_cast<size_t>(index)].fetch_add(1) % kPoolSize);
}

c10::Stream HostGuard::exchangeStream(c10::Stream stream) const noexcept {
  const c10::Stream before = getStream(stream.device());
  if (stream.device_index() >= 0 && stream.device_index() < devices_) {
    current_streams[static_cast<size_t>(stream.device_index())] = stream.id();
  }
  return before;
}

void* HostGuard::getStreamNativeHandle(c10::Stream) const {
  return nullptr;  // there is no queue behind a host stream
}

bool HostGuard::queryStream(const c10::Stream& stream) const {
  check(stream.device());
  return true;
}

void HostGuard::synchronizeStream(const c10::Stream& stream) const {
  check(stream.device());
}

void HostGuard::record(void** event, const c10::Stream& stream, c10::DeviceIndex index, c10::EventFlag flag) const {
  TORCH_CHECK(index == -1 || index == stream.device_index(), "flagos: an event of device ", static_cast<int>(index),
              " cannot be recorded on a stream of device ", static_cast<int>(stream.device_index()));
  if (*event == nullptr) {
    *event = std::make_unique<HostEvent>().release();
  }
  auto* mine = static_cast<HostEvent*>(*event);
  mine->index = stream.device_index();
  mine->timing = flag == c10::EventFlag::BACKEND_DEFAULT;
  mine->time = std::chrono::steady_clock::now();
}

void HostGuard::block(void*, const c10::Stream& stream) const {
  check(stream.device());
}

bool HostGuard::queryEvent(void*) const {
  return true;
}

void HostGuard::synchronizeEvent(void*) const {}

double HostGuard::elapsedTime(void* start, void* end, c10::DeviceIndex) const {
  TORCH_CHECK(start != nullptr && end != nullptr,
              "flagos: both events must be recorded before the time between them is asked");
  const auto* from = static_cast<const HostEvent*>(start);
  const auto* to = static_cast<const HostEvent*>(end);
  TORCH_CHECK(from->timing && to->timing, "flagos: both events must be created with enable_timing=True");
  return std::chrono::duration<double, std::milli>(to->time - from->time).count();
}

void HostGuard::destroyEvent(void* event, c10::DeviceIndex) const noexcept {
  const std::unique_ptr<HostEvent> owned(static_cast<HostEvent*>(event));
}

void HostGuard::recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const {}

}  // namespace flagos
