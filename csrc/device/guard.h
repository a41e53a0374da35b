// Devices and streams as PyTorch asks for them; the accelerator's guard answers.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace flagos {

/// Index of the calling thread's current flagos device.
c10::DeviceIndex current_device();

/// `index` itself if it is a device of this process (-1 stands for the current one), else an error that names both.
c10::DeviceIndex check_device_index(c10::DeviceIndex index);

/// Keeps the memory of `data` from being reused before what is queued on `stream` has finished. `data` may be a front
/// pointer, as the autograd engine gives it, or a backing one.
void record_data_on_stream(const c10::DataPtr& data, c10::Stream stream);

/// Registers the accelerator's guard for PrivateUse1. Called once.
void register_guard();

}  // namespace flagos
