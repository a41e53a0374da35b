// Registration of the device guard and checks of device indices.
#include "device/guard.h"

#include "accelerator/accelerator.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

namespace flagos {

c10::DeviceIndex current_device() {
  return accelerator().current_device();
}

c10::DeviceIndex check_device_index(c10::DeviceIndex index) {
  if (index == -1) {
    return current_device();
  }
  const c10::DeviceIndex count = accelerator().device_count();
  TORCH_CHECK(index >= 0 && index < count, "flagos: device index ", static_cast<int>(index), " is out of range; there ",
              count == 1 ? "is " : "are ", static_cast<int>(count), count == 1 ? " device" : " devices");
  return index;
}

void record_data_on_stream(const c10::DataPtr& data, c10::Stream stream) {
  TORCH_CHECK(stream.device_type() == c10::DeviceType::PrivateUse1,
              "record_stream: expected a flagos stream, got one on ", stream.device());
  accelerator().record_data_on_stream(data, stream);
}

void register_guard() {
  static const c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::PrivateUse1, accelerator().guard());
}

}  // namespace flagos
