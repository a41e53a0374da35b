// The backend `none`: what PyTorch does with no kernel here. The overload's own decomposition, else a trip to the CPU.
#pragma once

#include "route/torch_entry.h"

#include <ATen/core/stack.h>

namespace flagos {

/// What `none` would do with a call, decided from the operator alone.
enum class NonePath { kDecomposition, kRoundTrip, kNothing };

NonePath none_path(const OperatorEntry& entry);

/// Runs the call, counts it and logs trips to the CPU. Throws NotImplementedError naming the overload where neither a
/// decomposition nor a CPU kernel exists, and where FLAGOS_FALLBACK=error refuses the trip.
void run_none(const OperatorEntry& entry, torch::jit::Stack* stack);

}  // namespace flagos
