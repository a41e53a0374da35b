// The order in which the parts of the device are registered.
#include "device/register.h"

#include "accelerator/accelerator.h"
#include "device/allocator.h"
#include "device/autocast.h"
#include "device/backward_threads.h"
#include "device/collectives.h"
#include "device/composites.h"
#include "device/guard.h"
#include "device/hooks.h"
#include "device/layouts.h"
#include "device/served.h"
#include "route/log.h"
#include "route/settings.h"
#include "route/torch_registry.h"
#include "route/torch_routing.h"

#include <c10/util/Exception.h>

#include <unistd.h>

namespace flagos {

std::vector<std::string> register_device(const std::string& config_folder) {
  static bool registered = false;
  TORCH_CHECK(!registered, "flagos: the device is registered already");
  install_settings(read_settings(environ));
  set_log(settings().log);
  set_timing(settings().keep_time);
  select_accelerator(settings().accelerator);
  make_entries();
  std::vector<std::string> warnings = settings().warnings;
  for (const Problem& problem : load_routing(config_folder)) {
    warnings.push_back(to_string(problem));
  }

  registered = true;
  register_guard();
  register_hooks();
  for (c10::DeviceIndex index = 0; index < accelerator().device_count(); ++index) {
    set_memory_limit(index, settings().host_memory);
  }
  register_served_operators();
  register_routed_operators();
  register_composites();
  register_autocast();
  register_layout_errors();
  register_collectives();
  register_backward_threads();
  return warnings;
}

}  // namespace flagos
