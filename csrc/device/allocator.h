// Memory of the flagos device: the allocator that PyTorch sees, what is charged to each device, and its limit.
//
// Charged are the bytes of live storages: allocations when they are made, outputs of kernels when they are given back,
// growth when the kernel has returned. Temporaries inside a kernel are not seen. Thread safe throughout.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace flagos {

/// The c10::DeviceAllocator of PrivateUse1.
c10::DeviceAllocator* flagos_allocator();

/// Throws OutOfMemoryError, with all numbers, if `bytes` more would pass the limit of device `index`.
void check_memory_limit(c10::DeviceIndex index, size_t bytes);
/// Adds to what is charged, or throws OutOfMemoryError and adds nothing.
void charge_memory(c10::DeviceIndex index, size_t bytes);
/// Adds to what is charged, since the memory is there already, then throws OutOfMemoryError if it has grown past the
/// limit.
void charge_existing_memory(c10::DeviceIndex index, size_t bytes, bool grown);
void discharge_memory(c10::DeviceIndex index, size_t bytes);

/// Bytes; 0 means no limit.
void set_memory_limit(c10::DeviceIndex index, size_t bytes);
/// For tests of what an exhausted device leaves behind: lets the `count`-th allocation from now on (1: the next one)
/// fail on device `index`, once, as if the limit were what is allocated at that moment. Allocations of 0 bytes are not
/// counted. 0 takes it back. Returns how many were still to come from the last time, 0 if that one has failed.
int64_t fail_allocation(c10::DeviceIndex index, int64_t count);
/// What the device has in all: its limit if there is one, else what the accelerator tells. In bytes, free first.
std::pair<size_t, size_t> memory_info(c10::DeviceIndex index);

}  // namespace flagos
