// Counting and logging of calls that the device serves itself.
#pragma once

#include "device/served.h"
#include "route/counters.h"
#include "route/log.h"

#include <cstdint>

namespace flagos {

void log_served(uint32_t number);

/// Made first in each served kernel, with `served_number("overload")`: counts the call, logs it with FLAGOS_LOG=device.
class ServedCall {
 public:
  explicit ServedCall(uint32_t number) {
    if (listens(kLogDevice)) {
      log_served(number);
    }
    count_call({number, Backend::kNone, Reason::kDevice, 0});
  }
};

}  // namespace flagos
