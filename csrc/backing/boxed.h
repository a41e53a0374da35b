// Running any operator on the backing device from a stack of values: the long tail, and whatever the router looks at.
#pragma once

#include "route/torch_entry.h"

#include <ATen/core/stack.h>

namespace flagos {

/// Replaces the arguments on `stack` by the results of the backing device's kernel, as an unboxed kernel would. Returns
/// the dtypes for the counters. Thread safe.
uint64_t run_boxed_on_backing(const OperatorEntry& entry, torch::jit::Stack* stack);

}  // namespace flagos
