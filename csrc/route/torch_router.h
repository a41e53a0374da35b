// The router: from a call and a route to the backend that runs it.
#pragma once

#include "route/torch_entry.h"

#include <ATen/core/stack.h>

namespace flagos {

/// Runs the call on `stack` by the first candidate of the entry's route that takes it; logs, times and counts it.
/// Throws NotImplementedError that lists each candidate with its reason where none does.
void route_call(const OperatorEntry& entry, torch::jit::Stack* stack);

/// A boxed kernel that routes calls of `entry`, which must live to the end of the process.
c10::BoxedKernel make_router(OperatorEntry& entry);

}  // namespace flagos
