// Families, overrides and the checks of routes against what this process has.
#include "route/resolve.h"

#include "route/spelling.h"

#include <algorithm>
#include <tuple>

namespace flagos {
namespace {

std::string as_variable(const std::string& overload) {
  std::string result;
  for (const char c : overload) {
    result += c == '.' ? std::string("__") : std::string(1, c);
  }
  return result;
}

class Resolver {
 public:
  Resolver(const Catalogue& catalogue, ResolvedRoutes& result) : catalogue_(catalogue), result_(result) {
    for (const auto& [name, facts] : catalogue.overloads) {
      families_[facts.family].push_back(name);
    }
  }

  void apply_file(const RoutingFile& file) {
    if (file.default_line.has_value()) {
      const RouteLine& line = *file.default_line;
      for (size_t i = 0; i < line.candidates.size(); ++i) {
        const Backend backend = line.candidates[i].backend;
        if (backend != Backend::kNone && backend != catalogue_.accelerator_backend) {
          report(line.candidate_places[i], unavailable(backend));
        }
      }
      result_.default_route = {intern_route(line.candidates), origin_of(line)};
    }
    std::map<std::string, RouteLine> effective;
    for (const auto& [name, line] : file.lines) {
      const auto found = catalogue_.overloads.find(name);
      if (found == catalogue_.overloads.end()) {
        report(line.place, unknown(name, /*in_file=*/true));
        continue;
      }
      if (found->second.served_by_device) {
        report(line.place, "'" + name + "' is served by the device itself and cannot be routed", Severity::kWarning);
        continue;
      }
      if (check_candidates(line, found->second)) {
        warn_if_unreachable(name, line.place);
        effective.emplace(name, line);
      }
    }
    // First every family by its functional line, then lines of single spellings on top.
    for (const auto& [name, line] : effective) {
      if (catalogue_.overloads.at(name).spelling == Spelling::kFunctional) {
        for (const std::string& member : families_.at(catalogue_.overloads.at(name).family)) {
          assign(member, line);
        }
      }
    }
    for (const auto& [name, line] : effective) {
      if (!file.old_form || catalogue_.overloads.at(name).spelling != Spelling::kInPlace ||
          !inert(name, line, effective)) {
        assign(name, line);
      }
    }
  }

  void apply_override(const RouteOverride& override) {
    const auto found = catalogue_.overloads.find(override.name);
    const Place place{override.origin, 0, 0};
    if (found == catalogue_.overloads.end()) {
      report(place, unknown(override.name, /*in_file=*/false));
      return;
    }
    if (found->second.served_by_device) {
      report(place, "'" + override.name + "' is served by the device itself and cannot be routed");
      return;
    }
    RouteLine line;
    line.name = override.name;
    line.place = place;
    const size_t before = result_.problems.size();
    line.candidates = parse_route(override.text, place, result_.problems, &line.candidate_places);
    if (result_.problems.size() == before && check_candidates(line, found->second)) {
      warn_if_unreachable(override.name, place);
      result_.routes[override.name] = {intern_route(line.candidates), override.origin};
      places_[override.name] = place;
    }
  }

  void check_strictly() {
    for (const auto& [name, resolved] : result_.routes) {
      const OverloadFacts& facts = catalogue_.overloads.at(name);
      if (resolved.route->candidates.front().backend == Backend::kNone && facts.routed_by_default) {
        report(places_.at(name), "'" + name + "' is routed to 'none' although " +
                                     std::string(backend_name(catalogue_.accelerator_backend)) +
                                     " has a kernel for it");
      }
    }
  }

 private:
  void report(const Place& place, std::string message, Severity severity = Severity::kError) {
    result_.problems.push_back({place, severity, std::move(message)});
  }

  // What was probably meant by a name that no overload has.
  std::string unknown(const std::string& name, bool in_file) const {
    const std::string message = "unknown overload " + in_quotes(name);
    if (name.starts_with("aten::") && catalogue_.overloads.contains(name.substr(6))) {
      return message + "; overloads of ATen are written without 'aten::'";
    }
    std::string overloads;
    size_t count = 0;
    for (auto found = catalogue_.overloads.lower_bound(name + ".");
         found != catalogue_.overloads.end() && found->first.starts_with(name + "."); ++found) {
      overloads += count < 4 ? (count == 0 ? "" : ", ") + found->first : "";
      ++count;
    }
    if (count != 0) {
      return message + "; the operator has the overloads " + overloads + (count > 4 ? ", …" : "");
    }
    std::vector<std::string> known = names();
    if (in_file) {
      known.emplace_back("default");
    }
    return message + did_you_mean(name, known);
  }

  // A line for what PyTorch always composes of others reaches nothing.
  void warn_if_unreachable(const std::string& name, const Place& place) {
    const std::vector<std::string>& members = families_.at(catalogue_.overloads.at(name).family);
    if (std::none_of(members.begin(), members.end(),
                     [this](const std::string& member) { return catalogue_.overloads.at(member).routable; })) {
      report(place, "this line is inert: PyTorch composes " + in_quotes(name) + " of other overloads; route those",
             Severity::kWarning);
    }
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, facts] : catalogue_.overloads) {
      all.push_back(name);
    }
    return all;
  }

  static std::string origin_of(const RouteLine& line) {
    return line.place.line == 0 ? line.place.file : line.place.file + ":" + std::to_string(line.place.line);
  }

  std::string unavailable(Backend backend) const {
    const std::string name(backend_name(backend));
    if (backend == Backend::kHost || backend == Backend::kCuda || backend == Backend::kGcu) {
      return "backend '" + name + "' belongs to another accelerator; this process runs '" +
             catalogue_.accelerator_name + "'";
    }
    return "backend '" + name + "' is not available in this process";
  }

  bool check_candidates(const RouteLine& line, const OverloadFacts& facts) {
    bool good = true;
    for (size_t i = 0; i < line.candidates.size(); ++i) {
      const Backend backend = line.candidates[i].backend;
      if (backend == Backend::kNone) {
        continue;
      }
      if (backend != catalogue_.accelerator_backend) {
        report(line.candidate_places[i], unavailable(backend));
        good = false;
      } else if (!facts.routable) {
        report(line.candidate_places[i], "PyTorch composes '" + line.name + "' of other overloads; route those");
        good = false;
      } else if (!facts.backing_kernel) {
        report(line.candidate_places[i],
               "backend '" + std::string(backend_name(backend)) + "' has no kernel for '" + line.name + "'");
        good = false;
      }
    }
    return good;
  }

  // In a file of the old form the in-place spelling follows its functional or out sibling, as it always did there.
  bool inert(const std::string& name, const RouteLine& line, const std::map<std::string, RouteLine>& effective) {
    for (const std::string& sibling : families_.at(catalogue_.overloads.at(name).family)) {
      const auto other = effective.find(sibling);
      if (other == effective.end() || catalogue_.overloads.at(sibling).spelling == Spelling::kInPlace) {
        continue;
      }
      if (intern_route(other->second.candidates) != intern_route(line.candidates)) {
        report(line.place,
               "this line is inert: '" + name + "' follows '" + sibling + "' (line " +
                   std::to_string(other->second.place.line) + ")",
               Severity::kWarning);
        assign(name, other->second);
        return true;
      }
    }
    return false;
  }

  void assign(const std::string& name, const RouteLine& line) {
    const OverloadFacts& facts = catalogue_.overloads.at(name);
    if (facts.routable && !facts.served_by_device) {
      result_.routes[name] = {intern_route(line.candidates), origin_of(line)};
      places_[name] = line.place;
    }
  }

  const Catalogue& catalogue_;
  ResolvedRoutes& result_;
  std::map<std::string, std::vector<std::string>> families_;
  std::map<std::string, Place> places_;  ///< of the lines behind `result_.routes`
};

}  // namespace

bool ResolvedRoutes::has_errors() const {
  return std::any_of(problems.begin(), problems.end(),
                     [](const Problem& problem) { return problem.severity == Severity::kError; });
}

ResolvedRoutes resolve_routes(const RoutingFile& file, const std::vector<RouteOverride>& overrides,
                              const Catalogue& catalogue, bool strict) {
  ResolvedRoutes result;
  result.problems = file.problems;
  result.default_route = {intern_route({{catalogue.accelerator_backend}, {Backend::kNone}}), "built in"};
  Resolver resolver(catalogue, result);
  resolver.apply_file(file);
  for (const RouteOverride& override : overrides) {
    resolver.apply_override(override);
  }
  if (strict) {
    resolver.check_strictly();
  }
  // As somebody reads the files: in their order, then by line and column.
  const auto position = [&file](const Problem& problem) {
    const auto found = std::find(file.files.begin(), file.files.end(), problem.place.file);
    return std::make_tuple(found - file.files.begin(), problem.place.line, problem.place.column);
  };
  std::stable_sort(result.problems.begin(), result.problems.end(),
                   [&position](const Problem& a, const Problem& b) { return position(a) < position(b); });
  return result;
}

std::string overload_from_variable(const std::string& suffix, const Catalogue& catalogue) {
  for (const auto& [name, facts] : catalogue.overloads) {
    if (as_variable(name) == suffix) {
      return name;
    }
  }
  return "";
}

}  // namespace flagos
