// Bringing the flagos device into the process, in one step.
#pragma once

#include <string>
#include <vector>

namespace flagos {

/// Reads the settings, selects the accelerator, checks the routing and registers everything with PyTorch. Throws
/// std::invalid_argument or c10::Error with every problem before PyTorch is touched. Not thread safe: called by the
/// import. Returns warnings for people.
std::vector<std::string> register_device(const std::string& config_folder);

}  // namespace flagos
