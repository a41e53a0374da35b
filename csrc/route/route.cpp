// Interning of compiled routes.
#include "route/route.h"

#include <map>
#include <memory>
#include <mutex>

namespace flagos {

const Route* intern_route(const std::vector<Candidate>& candidates) {
  std::string text;
  for (const Candidate& candidate : candidates) {
    text += text.empty() ? "" : " > ";
    text += backend_name(candidate.backend);
  }
  static std::mutex& mutex = *new std::mutex;
  static auto& routes = *new std::map<std::string, std::unique_ptr<const Route>>;  // never destroyed, see Route
  const std::lock_guard lock(mutex);
  std::unique_ptr<const Route>& route = routes[text];
  if (route == nullptr) {
    route = std::make_unique<const Route>(Route{text, candidates});
  }
  return route.get();
}

}  // namespace flagos
