// From the lines of a routing file to one route for every overload, with every problem found on the way.
#pragma once

#include "route/language.h"

#include <map>
#include <string>
#include <vector>

namespace flagos {

/// How an overload stands in its family: the overloads equal but for aliasing marks and out arguments.
enum class Spelling { kFunctional, kInPlace, kOut };

struct OverloadFacts {
  std::string family;  ///< equal for the spellings of one family
  Spelling spelling = Spelling::kFunctional;
  bool routable = false;           ///< has a router entry
  bool backing_kernel = false;     ///< the accelerator's own backend can run it
  bool routed_by_default = false;  ///< it has a kernel there, not only a composite of other overloads
  bool served_by_device = false;   ///< allocation, view, metadata or transfer: not routable
};

/// What this process knows about overloads.
struct Catalogue {
  std::map<std::string, OverloadFacts> overloads;
  Backend accelerator_backend = Backend::kHost;
  std::string accelerator_name = "host";
};

struct ResolvedRoute {
  const Route* route = nullptr;
  std::string origin;  ///< "FILE:LINE", "FLAGOS_OP_abs", "default"
};

struct ResolvedRoutes {
  ResolvedRoute default_route;
  std::map<std::string, ResolvedRoute> routes;  ///< overloads whose route is not the default one
  std::vector<Problem> problems;

  bool has_errors() const;
};

/// What stands above the file: FLAGOS_OP_* and set_route.
struct RouteOverride {
  std::string name;    ///< overload
  std::string text;    ///< route
  std::string origin;  ///< shown to people
};

/// Resolves `file` and then `overrides`. `strict` also makes an error of an overload routed to `none` for which the
/// accelerator has a kernel. Never throws.
ResolvedRoutes resolve_routes(const RoutingFile& file, const std::vector<RouteOverride>& overrides,
                              const Catalogue& catalogue, bool strict);

/// The overload that `suffix` of a FLAGOS_OP_<suffix> variable names ("." is written "__"), or "" if there is none.
std::string overload_from_variable(const std::string& suffix, const Catalogue& catalogue);

}  // namespace flagos
