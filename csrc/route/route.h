// A compiled route: the ordered backends that may run one overload.
#pragma once

#include "route/backend.h"

#include <string>
#include <vector>

namespace flagos {

/// One place in a route. Conditions on the call will stand beside the backend; without any, every call is accepted.
struct Candidate {
  Backend backend;
};

/// Immutable, interned, alive to the end of the process: a pointer to one is always safe to read.
struct Route {
  std::string text;  ///< canonical, as in `flaggems > host > none`
  std::vector<Candidate> candidates;
};

/// The one Route with these candidates, made on first use. Thread safe.
const Route* intern_route(const std::vector<Candidate>& candidates);

}  // namespace flagos
