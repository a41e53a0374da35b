// Decompositions and round trips.
#include "backend/none.h"

#include "backend/round_trip.h"
#include "route/settings.h"

#include <c10/util/Exception.h>

#include <chrono>

namespace flagos {
namespace {

bool is_view(const OperatorEntry& entry) {
  for (const c10::Argument& result : entry.op.schema().returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) {
      return true;
    }
  }
  return false;
}

// Composites that only raise, or that lead to one which does; that of native_group_norm views what is channels-last.
bool decomposition_raises(const OperatorEntry& entry) {
  return entry.name.find("_overrideable") != std::string::npos || entry.name == "convolution" ||
         entry.name == "convolution_backward" || entry.name == "native_group_norm";
}

void run_round_trip(const OperatorEntry& entry, torch::jit::Stack* stack) {
  const auto start = std::chrono::steady_clock::now();
  RoundTrip trip(entry);
  const size_t first = stack->size() - entry.op.schema().arguments().size();
  const std::vector<c10::IValue> fronts(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  const std::vector<c10::IValue> sent = trip.send(fronts);
  stack->resize(first);
  stack->insert(stack->end(), sent.begin(), sent.end());
  entry.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  trip.write_back();
  for (size_t i = first; i < stack->size(); ++i) {
    (*stack)[i] = trip.receive((*stack)[i]);
  }
  const auto elapsed = std::chrono::steady_clock::now() - start;
  const Reason reason = trip.drew() || trip.bytes_to_host() == 0 ? Reason::kHostFill : Reason::kRoundTrip;
  count_call({entry.number, Backend::kNone, reason, trip.dtypes()}, trip.bytes_to_host(), trip.bytes_from_host(),
             listens(kKeepTime) ? static_cast<uint64_t>(std::chrono::nanoseconds(elapsed).count()) : 0);
}

}  // namespace

NonePath none_path(const OperatorEntry& entry) {
  const auto has = [&entry](c10::DispatchKey key) { return entry.op.hasKernelForDispatchKey(key); };
  const bool composite = has(c10::DispatchKey::CompositeExplicitAutograd) ||
                         has(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) ||
                         has(c10::DispatchKey::CompositeImplicitAutograd);
  if (composite && !decomposition_raises(entry)) {
    return NonePath::kDecomposition;
  }
  const bool cpu = has(c10::DispatchKey::CPU) || composite;
  return cpu && !is_view(entry) ? NonePath::kRoundTrip : NonePath::kNothing;
}

void run_none(const OperatorEntry& entry, torch::jit::Stack* stack) {
  switch (none_path(entry)) {
    case NonePath::kDecomposition:
      entry.op.redispatchBoxed(c10::DispatchKeySet(), stack);
      count_call({entry.number, Backend::kNone, Reason::kDecomposition, 0});
      return;
    case NonePath::kRoundTrip:
      TORCH_CHECK_NOT_IMPLEMENTED(!settings().refuse_round_trips, "flagos: '", entry.name,
                                  "' would make a trip to the CPU, which FLAGOS_FALLBACK=error refuses");
      if (listens(kLogFallback)) {
        write_log("[flagos cpu_fallback] " + entry.full_name);
      }
      run_round_trip(entry, stack);
      return;
    case NonePath::kNothing:
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, "flagos: '", entry.name, "' has no kernel for this device",
          is_view(entry) ? ", and a view cannot make a trip to the CPU" : ", no decomposition and no CPU kernel");
  }
}

}  // namespace flagos
