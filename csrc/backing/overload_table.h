// What the build knows of torch's overloads: the table written by cmake/enumerate_operators.py.
#pragma once

#include "route/torch_entry.h"

#include <ATen/core/boxing/KernelFunction.h>

#include <span>

namespace flagos {

struct CompiledOverload {
  const char* name;  ///< `add.Tensor`
  bool same_device;
  c10::KernelFunction (*make_kernel)(OperatorEntry&);  ///< null: served by the boxed kernel
};

/// Sorted by name in the order of `std::string`.
std::span<const CompiledOverload> compiled_overloads();

/// Overloads routed although torch has only a composite kernel for them, because that one looks at the device type.
std::span<const char* const> routed_composites();

}  // namespace flagos
