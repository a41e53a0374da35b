// Allocation of flagos tensors.
#include "device/served_kernels.h"

#include "device/allocator.h"
#include "device/guard.h"
#include "device/served_call.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

namespace flagos::served {
namespace {

constexpr c10::DispatchKeySet kFlagosKeys(c10::DispatchKey::PrivateUse1);

// Refuses what flagos tensors cannot be and gives the device index; -1 where the call leaves it to the current device.
c10::DeviceIndex check_options(std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout.has_value() || *layout == at::kStrided, "flagos: empty tensors of layout ",
                              *layout, " are not implemented");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  return device.has_value() && device->has_index() ? check_device_index(device->index()) : c10::DeviceIndex{-1};
}

// Makes a device current for the allocator, at no cost where it is so already.
class DeviceScope {
 public:
  explicit DeviceScope(c10::DeviceIndex index) {
    if (C10_UNLIKELY(index != -1 && index != current_device())) {
      guard_.emplace(c10::Device(c10::DeviceType::PrivateUse1, index));
    }
  }

 private:
  std::optional<c10::DeviceGuard> guard_;
};

at::Tensor fill_where_asked(at::Tensor tensor) {
  if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                   at::globalContext().deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

}  // namespace

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory,
                 std::optional<at::MemoryFormat> memory_format) {
  const ServedCall call(served_number("empty.memory_format"));
  const DeviceScope scope(check_options(layout, device, pin_memory));
  return fill_where_asked(at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), flagos_allocator(), kFlagosKeys,
                                                    c10::dtype_or_default(dtype), memory_format));
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory) {
  const ServedCall call(served_number("empty_strided"));
  const DeviceScope scope(check_options(layout, device, pin_memory));
  return fill_where_asked(at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size),
                                                            C10_AS_INTARRAYREF_SLOW(stride), flagos_allocator(),
                                                            kFlagosKeys, c10::dtype_or_default(dtype)));
}

}  // namespace flagos::served
