// The accelerators of this build and the choice among them.
#include "accelerator/accelerator.h"

#include "accelerator/host/host.h"

#include <c10/util/Exception.h>

#include <memory>

namespace flagos {

BackingTarget backing_target;
Backend accelerator_backend = Backend::kNone;

namespace {
// Written once by select_accelerator, before any thread can use the device; never destroyed, since tensors in static
// storage may outlive every static object of ours.
Accelerator* selected = nullptr;
}  // namespace

Accelerator& accelerator() {
  TORCH_INTERNAL_ASSERT(selected != nullptr, "flagos: no accelerator is selected yet");
  return *selected;
}

void select_accelerator(const std::string& name) {
  if (selected != nullptr && selected->name() == name) {
    return;  // loading failed after this step and is tried again
  }
  TORCH_INTERNAL_ASSERT(selected == nullptr, "flagos: an accelerator is selected already");
  TORCH_CHECK_VALUE(name == "host", "FLAGOS_ACCELERATOR=", name, ": this build knows the accelerators: host");
  selected = make_host_accelerator().release();
  backing_target = selected->backing();
  accelerator_backend = selected->backend();
}

}  // namespace flagos
