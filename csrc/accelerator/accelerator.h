// The one interface that a piece of hardware implements to stand below the flagos device.
//
// An accelerator is chosen once per process, before any tensor exists, and lives to its end. All member functions may
// be called from any thread. They throw c10::Error with the values in the text; those marked noexcept never fail.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <ATen/core/Generator.h>

#include "route/backend.h"

#include <cstdint>
#include <string>

namespace flagos {

/// What `torch.flagos.get_device_properties` shows.
struct DeviceProperties {
  std::string name;
  size_t total_memory = 0;            ///< bytes
  int64_t multi_processor_count = 0;  ///< cores on the host
  int major = 0;
  int minor = 0;
};

/// The device whose kernels run on backing tensors; constant once the accelerator is chosen.
struct BackingTarget {
  c10::DeviceType type = c10::DeviceType::CPU;
  c10::DispatchKey key = c10::DispatchKey::CPU;
  bool indexed = false;  ///< whether the backing device has the front device's index (CUDA) or none (CPU)
  /// What the key set of a tensor of that device has of the device itself: the backend's bit and its autocast key.
  c10::DispatchKeySet own_keys = device_keys(c10::BackendComponent::CPUBit);

  static c10::DispatchKeySet device_keys(c10::BackendComponent backend) {
    return c10::DispatchKeySet(backend) | c10::getAutocastRelatedKeySetFromBackend(backend);
  }

  c10::Device device(c10::DeviceIndex index) const {
    return c10::Device(type, indexed ? index : static_cast<c10::DeviceIndex>(-1));
  }
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;

  /// The word that selects it in FLAGOS_ACCELERATOR and names its kernels in a routing file.
  virtual const char* name() const noexcept = 0;
  virtual Backend backend() const noexcept = 0;
  virtual BackingTarget backing() const noexcept = 0;

  /// Whether the thread that asks for a backward pass should run it: where calls have finished when they return.
  virtual bool backward_on_calling_thread() const noexcept = 0;

  virtual c10::DeviceIndex device_count() const noexcept = 0;
  virtual DeviceProperties properties(c10::DeviceIndex index) const = 0;
  /// The calling thread's current device.
  virtual c10::DeviceIndex current_device() const = 0;
  /// Devices, streams and events as PyTorch asks for them, labelled PrivateUse1. Lives as long as the accelerator.
  virtual const c10::impl::DeviceGuardImplInterface* guard() const noexcept = 0;
  /// See device/guard.h.
  virtual void record_data_on_stream(const c10::DataPtr& data, c10::Stream stream) const = 0;

  /// Memory of the backing device, not yet labelled flagos. Zero bytes are legal.
  virtual c10::DataPtr allocate(c10::DeviceIndex index, size_t bytes) = 0;
  /// The allocator that a kernel on the backing device would use to grow a storage.
  virtual c10::Allocator* backing_allocator() const = 0;
  /// Bytes of memory the device has, and how many of them are free to others.
  virtual size_t total_memory(c10::DeviceIndex index) const = 0;
  virtual size_t free_memory(c10::DeviceIndex index) const = 0;
  /// Copies between two allocations of this accelerator and waits for the end.
  virtual void copy_bytes(void* destination, const void* source, size_t bytes) = 0;

  /// A new generator of the backing device.
  virtual at::Generator make_generator(c10::DeviceIndex index) const = 0;
};

/// The accelerator of this process. Calling it before `select_accelerator` is a broken invariant.
Accelerator& accelerator();

/// Chooses by name; an unknown name is an error that lists the known ones. Not thread safe: called once while loading.
void select_accelerator(const std::string& name);

/// The backing target, readable without a call on the hot path.
extern BackingTarget backing_target;
/// The accelerator's own kernels, as a routing file names them.
extern Backend accelerator_backend;

}  // namespace flagos
