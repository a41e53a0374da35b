// The embedded default: flagos tensors in CPU memory, served by PyTorch's CPU kernels.
#pragma once

#include "accelerator/accelerator.h"

#include <memory>

namespace flagos {

/// Reads FLAGOS_HOST_DEVICES.
std::unique_ptr<Accelerator> make_host_accelerator();

}  // namespace flagos
