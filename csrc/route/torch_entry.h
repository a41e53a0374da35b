// One overload as the router sees it: its operator, its route, and what must be known to run it on the backing device.
#pragma once

#include "route/counters.h"
#include "route/log.h"
#include "route/route.h"

#include <ATen/core/boxing/BoxedKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace flagos {

/// Made once for each routed overload and never destroyed: kernels and threads keep references to it.
struct OperatorEntry {
  explicit OperatorEntry(c10::OperatorHandle handle) : op(std::move(handle)) {}

  c10::OperatorHandle op;
  std::string name;                  ///< `add.Tensor`; with namespace where that is not aten
  std::string full_name;             ///< `aten::add.Tensor`
  uint32_t number = 0;               ///< for the counters
  bool backing_kernel = false;       ///< the backing device can run it, by a kernel or by the overload's composite
  bool routed_by_default = false;    ///< it has a kernel there; composites are decomposed unless a route names them
  bool same_device = true;           ///< all tensor arguments on one device; else 0-dimensional CPU tensors may mix in
  uint64_t cpu_arguments = 0;        ///< bit p: argument p may be a CPU tensor
  uint64_t written = 0;              ///< bit p: argument p is written (tensor or list)
  uint64_t written_unannounced = 0;  ///< bit p: written although the schema does not say so (running statistics)
  int generator_argument = -1;       ///< position of the argument of type Generator?, or -1
  bool registered = false;           ///< has a PrivateUse1 kernel; guarded by the registry
  bool unboxed = false;              ///< has an unboxed kernel

  /// Null stands for the default route, resolved by the router.
  std::atomic<const Route*> route{nullptr};
  /// Whether the first candidate is the backing device and nothing has to be asked: the one load of the hot path.
  std::atomic<bool> direct{false};

  /// The router itself: takes every call that is not direct.
  c10::BoxedKernel router;

  bool runs_directly() const {
    return direct.load(std::memory_order_acquire) && listeners.load(std::memory_order_relaxed) == 0 &&
           !at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value();
  }
};

}  // namespace flagos
