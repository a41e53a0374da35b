// Parsing of the environment.
#include "route/settings.h"

#include "route/spelling.h"

#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <stdexcept>
#include <string_view>

namespace flagos {
namespace {

constexpr std::string_view kRoutePrefix = "FLAGOS_OP_";

[[noreturn]] void reject(const std::string& name, const std::string& value, const std::string& expected) {
  throw std::invalid_argument(name + "=" + value + ": expected " + expected);
}

bool parse_switch(const std::string& name, const std::string& value) {
  if (value == "1") {
    return true;
  }
  if (value == "0" || value.empty()) {
    return false;
  }
  reject(name, value, "0 or 1");
}

int parse_count(const std::string& name, const std::string& value) {
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < 1 || number > 64) {
    reject(name, value, "a whole number from 1 to 64");
  }
  return number;
}

struct Row {
  const char* name;
  const char* default_value;
  const char* help;
  void (*apply)(Settings&, const std::string& name, const std::string& value);
};

const std::array<Row, 9> kRows = {{
    {"FLAGOS_ACCELERATOR", "host", "the accelerator below the device: host",
     [](Settings& s, const std::string& name, const std::string& value) {
       if (value != "host") {
         reject(name, value, "one of the accelerators of this build: host" + did_you_mean(value, {"host"}));
       }
       s.accelerator = value;
     }},
    {"FLAGOS_HOST_DEVICES", "1", "number of virtual devices of the host accelerator, 1 to 64",
     [](Settings& s, const std::string& name, const std::string& value) { s.host_devices = parse_count(name, value); }},
    {"FLAGOS_HOST_MEMORY", "", "limit of one host device's memory in bytes, suffix K, M or G; empty: none",
     [](Settings& s, const std::string& name, const std::string& value) {
       s.host_memory = value.empty() ? 0 : parse_bytes(name, value);
     }},
    {"FLAGOS_BACKEND_CONFIG", "", "routing file that replaces the accelerator's own",
     [](Settings& s, const std::string&, const std::string& value) { s.backend_config = value; }},
    {"FLAGOS_LOG", "", "what to print to stderr: dispatch, fallback, device, with commas between",
     [](Settings& s, const std::string&, const std::string& value) { s.log = value; }},
    {"FLAGOS_STATS", "", "time: keep the time of every call in route_stats()",
     [](Settings& s, const std::string& name, const std::string& value) {
       if (!value.empty() && value != "time") {
         reject(name, value, "time" + did_you_mean(value, {"time"}));
       }
       s.keep_time = value == "time";
     }},
    {"FLAGOS_FALLBACK", "", "error: refuse every trip of a call to the CPU",
     [](Settings& s, const std::string& name, const std::string& value) {
       if (!value.empty() && value != "error") {
         reject(name, value, "error" + did_you_mean(value, {"error"}));
       }
       s.refuse_round_trips = value == "error";
     }},
    {"FLAGOS_STRICT_ROUTES", "0", "1: an overload routed to 'none' although the accelerator has a kernel is an error",
     [](Settings& s, const std::string& name, const std::string& value) {
       s.strict_routes = parse_switch(name, value);
     }},
    {"FLAGOS_USE_FLAGGEMS", "0", "1: load the accelerator's FlagGems routing file instead of its own",
     [](Settings& s, const std::string& name, const std::string& value) {
       s.use_flaggems = parse_switch(name, value);
     }},
}};

Settings& installed() {
  static Settings& values = *new Settings;
  return values;
}

}  // namespace

size_t parse_bytes(const std::string& name, const std::string& text) {
  const std::string expected = "bytes as a whole number, with suffix K, M or G for powers of 1024";
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
  size_t unit = 1;
  if (suffix == "K" || suffix == "k") {
    unit = size_t{1} << 10;
  } else if (suffix == "M" || suffix == "m") {
    unit = size_t{1} << 20;
  } else if (suffix == "G" || suffix == "g") {
    unit = size_t{1} << 30;
  } else if (!suffix.empty()) {
    reject(name, text, expected);
  }
  if (error != std::errc() || number == 0 || number > std::numeric_limits<size_t>::max() / unit) {
    reject(name, text, expected);
  }
  return number * unit;
}

Settings read_settings(const char* const* environment) {
  std::map<std::string, std::string> given;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry(*environment);
    if (const size_t equals = entry.find('='); entry.starts_with("FLAGOS_") && equals != std::string_view::npos) {
      given.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    }
  }
  Settings result;
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    names.emplace_back(row.name);
    const auto found = given.find(row.name);
    const bool present = found != given.end();
    const bool from_environment = present && !found->second.empty();  // set but empty is as good as unset
    const std::string value = from_environment ? found->second : row.default_value;
    if (from_environment) {
      row.apply(result, row.name, value);
    }
    if (present) {
      given.erase(found);
    }
    result.table.push_back({row.name, value, row.default_value, from_environment, row.help});
  }
  for (const auto& [name, value] : given) {
    if (name.starts_with(kRoutePrefix)) {
      result.route_overrides.emplace_back(name.substr(kRoutePrefix.size()), value);
      result.table.push_back({name, value, "", true, "route of one overload"});
    } else if (!name.starts_with("FLAGOS_TEST_")) {
      result.warnings.push_back("unknown environment variable " + name + did_you_mean(name, names));
    }
  }
  return result;
}

const Settings& settings() {
  return installed();
}

void install_settings(Settings values) {
  installed() = std::move(values);
}

}  // namespace flagos
