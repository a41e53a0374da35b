// All operator entries: made from what the dispatcher knows, registered as kernels, and given their routes.
#pragma once

#include "route/resolve.h"
#include "route/torch_entry.h"

#include <string>
#include <vector>

namespace flagos {

/// Makes an entry for every ATen overload that has a kernel on the backing device or is an explicit composite.
/// Registers nothing, so that a wrong routing file is found while PyTorch is still untouched. Later calls do nothing.
/// The accelerator must be selected.
void make_entries();

/// Registers a PrivateUse1 kernel for each entry with a backing kernel or a route of its own, and the fallback for all
/// other operators. Called once.
void register_routed_operators();

/// The entry of an operator without a kernel of ours, made on first use: third-party operators reach it through the
/// fallback. Thread safe.
OperatorEntry& entry_of(const c10::OperatorHandle& op);

/// All entries made so far. Thread safe.
std::vector<const OperatorEntry*> all_entries();

/// Name behind a number of the counters.
std::string overload_name(uint32_t number);

/// What this process knows of overloads, for the routing language.
Catalogue make_catalogue();

/// Gives every entry its route, atomically each; calls already under way keep theirs. The first route of a composite
/// registers a kernel, which the dispatcher does not guard against calls of that overload in other threads.
void apply_routes(const ResolvedRoutes& routes);

/// The routes last applied.
ResolvedRoutes applied_routes();

}  // namespace flagos
