// Loading, overriding and replacing the routing.
#include "route/torch_routing.h"

#include "accelerator/accelerator.h"
#include "route/log.h"
#include "route/settings.h"
#include "route/torch_registry.h"

#include <torch/version.h>

#include <filesystem>
#include <mutex>
#include <stdexcept>

namespace flagos {
namespace {

// The inputs of the routing in force. Guarded by `mutex`; the outputs live in the registry.
struct Routing {
  std::mutex mutex;
  std::string path;
  std::vector<std::string> files;
  std::vector<RouteOverride> environment;
  std::vector<RouteOverride> overrides;
};

Routing& routing() {
  static Routing& instance = *new Routing;
  return instance;
}

std::string all_problems(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) {
    text += (text.empty() ? "" : "\n") + to_string(problem);
  }
  return text;
}

RoutingFile parse(const std::string& path) {
  return parse_routing_file(path, TORCH_VERSION, &read_file);
}

// A catalogue costs milliseconds; the default file of an accelerator needs none.
Catalogue catalogue_for(const RoutingFile& file, bool overridden) {
  if (!file.lines.empty() || overridden) {
    return make_catalogue();
  }
  Catalogue catalogue;
  catalogue.accelerator_backend = accelerator_backend;
  catalogue.accelerator_name = accelerator().name();
  return catalogue;
}

// Resolves everything anew and applies it, or throws with every problem. Called with the lock held.
std::vector<Problem> apply(Routing& now, const std::string& path, const std::vector<RouteOverride>& environment,
                           const std::vector<RouteOverride>& overrides) {
  const RoutingFile file = parse(path);
  std::vector<RouteOverride> all = environment;
  all.insert(all.end(), overrides.begin(), overrides.end());
  const Catalogue catalogue = catalogue_for(file, !all.empty());
  for (RouteOverride& override : all) {
    if (override.name.empty() &&
        override.origin.starts_with("FLAGOS_OP_")) {  // from the environment, where "." is written "__"
      const std::string suffix = override.origin.substr(std::string("FLAGOS_OP_").size());
      override.name = overload_from_variable(suffix, catalogue);
      if (override.name.empty()) {
        // Reported as unknown, with the nearest name.
        const size_t dot = suffix.find("__", 1);
        override.name = dot == std::string::npos ? suffix : suffix.substr(0, dot) + "." + suffix.substr(dot + 2);
      }
    }
  }
  const ResolvedRoutes resolved = resolve_routes(file, all, catalogue, settings().strict_routes);
  if (resolved.has_errors()) {
    throw std::invalid_argument(all_problems(resolved.problems));
  }
  apply_routes(resolved);
  now.path = path;
  now.files = file.files;
  now.environment = environment;
  now.overrides = overrides;
  return resolved.problems;
}

}  // namespace

std::vector<Problem> load_routing(const std::string& config_folder) {
  std::string path = settings().backend_config;
  if (path.empty()) {
    const std::string suffix = settings().use_flaggems ? "_flaggems" : "";
    path = (std::filesystem::path(config_folder) / ("backends_" + std::string(accelerator().name()) + suffix + ".conf"))
               .string();
  }
  std::vector<RouteOverride> environment;
  for (const auto& [suffix, text] : settings().route_overrides) {
    environment.push_back({"", text, "FLAGOS_OP_" + suffix});
  }
  if (settings().backend_config.empty() && settings().use_flaggems && !std::filesystem::exists(path)) {
    throw std::invalid_argument("FLAGOS_USE_FLAGGEMS=1: there is no routing file for FlagGems on accelerator '" +
                                std::string(accelerator().name()) + "' yet (expected " + path + ")");
  }
  if (listens(kLogDispatch)) {
    write_log("[flagos] loading backend config from " + path);
  }
  Routing& now = routing();
  const std::lock_guard lock(now.mutex);
  return apply(now, path, environment, {});
}

void load_routing_file(const std::string& path) {
  Routing& now = routing();
  const std::lock_guard lock(now.mutex);
  apply(now, path, now.environment, now.overrides);
}

std::vector<Problem> check_routing_file(const std::string& path, bool strict) {
  // A file is checked also where the device could not be loaded, often because of that very file.
  select_accelerator(settings().accelerator);
  make_entries();
  std::vector<Problem> problems = resolve_routes(parse(path), {}, make_catalogue(), strict).problems;
  for (Problem& problem : problems) {
    if (problem.severity == Severity::kWarning && problem.message.find("served by the device") != std::string::npos) {
      problem.severity = Severity::kError;  // harmless at load, but never what the file's author meant
    }
  }
  return problems;
}

void set_route_override(const std::string& overload, const std::string& route) {
  Routing& now = routing();
  const std::lock_guard lock(now.mutex);
  std::vector<RouteOverride> overrides = now.overrides;
  std::erase_if(overrides, [&overload](const RouteOverride& other) { return other.name == overload; });
  overrides.push_back({overload, route, "set_route(" + overload + ")"});
  apply(now, now.path, now.environment, overrides);
}

void clear_route_overrides() {
  Routing& now = routing();
  const std::lock_guard lock(now.mutex);
  apply(now, now.path, now.environment, {});
}

std::vector<std::string> routing_files() {
  Routing& now = routing();
  const std::lock_guard lock(now.mutex);
  return now.files;
}

}  // namespace flagos
