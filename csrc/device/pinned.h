// Pinned host memory: what `Tensor.pin_memory` and DataLoader ask of the accelerator.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace flagos {

/// Allocates CPU memory that `is_pinned` recognises. On host there is no transfer for which pages would have to be
/// locked.
at::HostAllocator* pinned_allocator();

/// Whether `pointer` lies in memory of `pinned_allocator`. Never initialises a device.
bool is_pinned(const void* pointer);

}  // namespace flagos
