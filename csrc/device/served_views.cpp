// Views of flagos tensors: PyTorch's own, on the caller's tensor, since they touch no memory.
#include "device/served_kernels.h"

#include "device/served_call.h"

#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

namespace flagos::served {

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> storage_offset) {
  const ServedCall call(served_number("as_strided"));
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      storage_offset.has_value() ? std::optional(storage_offset->expect_int()) : std::nullopt);
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  const ServedCall call(served_number("_reshape_alias"));
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  const ServedCall call(served_number("unfold"));
  return at::native::unfold(self, dimension, size, step);
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  const ServedCall call(served_number("view"));
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor view_as_complex(const at::Tensor& self) {
  const ServedCall call(served_number("view_as_complex"));
  return at::native::view_as_complex(self);
}

at::Tensor view_as_real(const at::Tensor& self) {
  const ServedCall call(served_number("view_as_real"));
  return at::native::view_as_real(self);
}

}  // namespace flagos::served
