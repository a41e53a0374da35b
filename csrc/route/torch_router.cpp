// Choosing among candidates, with everything that listeners want to know.
#include "route/torch_router.h"

#include "accelerator/accelerator.h"
#include "backend/none.h"
#include "backing/boxed.h"

#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <memory>
#include <optional>

namespace flagos {
namespace {

class Router final : public c10::OperatorKernel {
 public:
  explicit Router(OperatorEntry& entry) : entry_(entry) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    route_call(entry_, stack);
  }

 private:
  OperatorEntry& entry_;
};

void log_dispatch(const OperatorEntry& entry, Backend backend) {
  if (listens(kLogDispatch)) {
    write_log("[flagos dispatch] " + entry.name + " -> " + std::string(backend_name(backend)));
  }
}

void run_backing(const OperatorEntry& entry, torch::jit::Stack* stack) {
  if (!listens(kKeepTime)) {
    const uint64_t dtypes = run_boxed_on_backing(entry, stack);
    count_call({entry.number, accelerator_backend, Reason::kRouted, dtypes});
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  const uint64_t dtypes = run_boxed_on_backing(entry, stack);
  const auto elapsed = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  count_call({entry.number, accelerator_backend, Reason::kRouted, dtypes}, 0, 0, static_cast<uint64_t>(elapsed));
}

}  // namespace

void route_call(const OperatorEntry& entry, torch::jit::Stack* stack) {
  const Route* route = entry.route.load(std::memory_order_acquire);
  TORCH_INTERNAL_ASSERT(route != nullptr, "flagos: ", entry.name, " has no route");
  std::optional<at::RecordFunction> range;
  const auto open_range = [&entry, &range](Backend backend) {
    if (auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE); callbacks.has_value()) {
      range.emplace(std::move(*callbacks));
      range->before("flagos::" + entry.name + " -> " + std::string(backend_name(backend)));
    }
  };
  std::string reasons;
  for (const Candidate& candidate : route->candidates) {
    if (candidate.backend == Backend::kNone) {
      log_dispatch(entry, Backend::kNone);
      open_range(Backend::kNone);
      run_none(entry, stack);
      return;
    }
    if (candidate.backend == accelerator_backend && entry.backing_kernel) {
      log_dispatch(entry, candidate.backend);
      open_range(candidate.backend);
      run_backing(entry, stack);
      return;
    }
    reasons += "; " + std::string(backend_name(candidate.backend)) + ": has no kernel for it";
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "flagos: no backend of the route '", route->text, "' takes '", entry.name, "'",
                              reasons);
}

c10::BoxedKernel make_router(OperatorEntry& entry) {
  return c10::BoxedKernel::makeFromFunctor(std::make_unique<Router>(entry));
}

}  // namespace flagos
