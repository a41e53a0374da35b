// Every FLAGOS_* environment variable: one table, read once while the device is registered.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace flagos {

/// One variable as `flagos doctor` shows it.
struct Setting {
  std::string name;
  std::string value;  ///< in force
  std::string default_value;
  bool from_environment = false;
  std::string help;
};

/// What the rest of the library asks for, parsed and checked.
struct Settings {
  std::string accelerator = "host";
  int host_devices = 1;
  size_t host_memory = 0;  ///< bytes a device; 0: no limit
  std::string backend_config;
  std::string log;
  bool keep_time = false;
  bool refuse_round_trips = false;
  bool strict_routes = false;
  bool use_flaggems = false;
  std::vector<std::pair<std::string, std::string>> route_overrides;  ///< FLAGOS_OP_* suffix → route text
  std::vector<std::string> warnings;                                 ///< unknown FLAGOS_* names, with the nearest known
  std::vector<Setting> table;                                        ///< all of the above, for people
};

/// Reads the environment. Throws std::invalid_argument that names variable, value and what would be right.
Settings read_settings(const char* const* environment);

/// The settings in force. Set once by `install_settings`, before any thread uses the device.
const Settings& settings();
void install_settings(Settings values);

/// Bytes from "1048576", "512K", "64M" or "2G" (powers of 1024). Throws std::invalid_argument naming `name` and the
/// value.
size_t parse_bytes(const std::string& name, const std::string& text);

}  // namespace flagos
