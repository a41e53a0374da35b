// The routing in force: which files it came from, what overrides it, and changing it while threads run.
#pragma once

#include "route/resolve.h"

#include <string>
#include <vector>

namespace flagos {

/// Loads the file that the settings name (or the accelerator's own, from `config_folder`) and the FLAGOS_OP_*
/// overrides. Throws std::invalid_argument with every problem; nothing has changed then. Returns the warnings.
std::vector<Problem> load_routing(const std::string& config_folder);

/// Replaces the file part of the routing by `path`. Throws as `load_routing` does.
void load_routing_file(const std::string& path);

/// Every problem of `path` as if it were loaded here; changes nothing.
std::vector<Problem> check_routing_file(const std::string& path, bool strict);

/// One more override, as if by FLAGOS_OP_*; throws as `load_routing` does.
void set_route_override(const std::string& overload, const std::string& route);
void clear_route_overrides();

/// The files in force, in the order they were read.
std::vector<std::string> routing_files();

}  // namespace flagos
