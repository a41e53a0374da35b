// Flagos tensor to backing tensor and back: what every operator that runs on the backing device does around its kernel.
//
// The rules (contract of PyTorch, section on aliasing): the caller's tensor is never changed in order to run a kernel;
// an alias carries the caller's metadata, math bits and version counter; what a kernel returns is relabelled in place
// only where nobody else can see it; an alias that comes back stands for the caller's own tensor.
#pragma once

#include "accelerator/accelerator.h"
#include "backing/storage.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <utility>

namespace flagos {

/// Front storages made in one call for storages that several of its results hold.
using SharedFronts = c10::SmallVector<std::pair<const c10::StorageImpl*, c10::Storage>, 1>;

/// The alias of a defined, strided flagos tensor. About 70 ns: one TensorImpl, no copy of data.
at::Tensor make_alias(const at::Tensor& tensor);

/// Gives a kernel's result the flagos label, in place where it is fresh. `tensor` is defined and on the backing device;
/// it is dense and not the alias of an argument. Throws OutOfMemoryError, with the tensor unchanged.
/// `shared` remembers fronts between the results of one call, so that results over one buffer share a front storage.
void give_back(at::Tensor& tensor, c10::DeviceIndex index, SharedFronts* shared = nullptr);

/// After a kernel wrote to `alias`: sizes, strides, offset and storage as the kernel left them become those of `front`.
void sync_back(const at::Tensor& alias, const at::Tensor& front);

}  // namespace flagos
