// The rare turns of a call: tensors of other devices, generators, results that are not fresh.
#include "backing/call_frame.h"

#include "device/generator.h"
#include "device/guard.h"

#include <c10/util/Exception.h>

namespace flagos {

void CallFrame::admit_foreign(const at::Tensor& tensor, size_t position) const {
  // A wrapped number or a 0-dimensional CPU tensor is a scalar wherever the operator computes element by element.
  const bool scalar = tensor.device().is_cpu() && tensor.dim() == 0 &&
                      (!entry_.same_device || tensor.unsafeGetTensorImpl()->is_wrapped_number());
  const bool named = tensor.device().is_cpu() && position < 64 && (entry_.cpu_arguments >> position & 1) != 0;
  const bool written = position < 64 && (entry_.written >> position & 1) != 0;
  if ((scalar || named) && !written) {
    return;
  }
  // With no flagos tensor so far, a flagos generator is what brought the call here.
  TORCH_CHECK(entry_.generator_argument < 0 || index_ >= 0 || !tensor.device().is_cpu(),
              "Expected a 'cpu' device type for generator but found 'flagos' (when checking the arguments of ",
              entry_.name, ")");
  reject_mixed(tensor.device());
}

void CallFrame::reject_mixed(c10::Device other) const {
  const c10::Device mine(c10::DeviceType::PrivateUse1, index_ >= 0 ? index_ : current_device());
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", mine, " and ",
              other, "! (when checking the arguments of ", entry_.name, ")");
}

std::optional<c10::Device> CallFrame::backing_device(std::optional<c10::Device> device) {
  if (!device.has_value() || device->type() != c10::DeviceType::PrivateUse1) {
    return device;
  }
  if (index_ < 0) {
    index_ = device->has_index() ? device->index() : current_device();
  }
  return backing_target.device(index_);
}

at::Generator CallFrame::backing_generator(const std::optional<at::Generator>& generator) {
  return flagos::backing_generator(generator, index());
}

c10::DeviceIndex CallFrame::index() {
  if (C10_UNLIKELY(index_ < 0)) {
    index_ = current_device();
  }
  return index_;
}

bool CallFrame::restore_front(at::Tensor& result) const {
  for (const Pair& pair : pairs_) {
    if (pair.alias == result.unsafeGetTensorImpl()) {
      result = at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(pair.front));
      return true;
    }
  }
  return false;
}

void CallFrame::reject_result(const at::Tensor& result) const {
  TORCH_CHECK_NOT_IMPLEMENTED(result.key_set().has(c10::DispatchKey::Dense), "flagos: '", entry_.name,
                              "' returned a tensor of layout ",
                              result.is_quantized() ? "quantized" : c10::str(result.layout()),
                              ", which flagos tensors cannot have yet; call it on CPU tensors");
  TORCH_CHECK(false, "flagos: '", entry_.name, "' returned a tensor on ", result.device(), " for flagos arguments");
}

}  // namespace flagos
