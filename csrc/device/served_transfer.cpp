// Copies between flagos and other devices, and reading of single elements.
#include "device/served_kernels.h"

#include "backing/alias.h"
#include "device/guard.h"
#include "device/served_call.h"

#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/copy_ops.h>
#include <c10/util/Exception.h>

namespace flagos::served {
namespace {

at::Tensor backing(const at::Tensor& tensor) {
  return tensor.device().type() == c10::DeviceType::PrivateUse1 ? make_alias(tensor) : tensor;
}

// The backing device's copy: it converts dtypes, broadcasts and resolves math bits.
void copy(const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  at::Tensor to = backing(destination);
  at::_ops::copy_::redispatch(c10::DispatchKeySet(backing_target.key), to, backing(source), non_blocking);
}

}  // namespace

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const ServedCall call(served_number("copy_"));
  if (!self.is_same(source)) {
    copy(self, source, non_blocking);
  }
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  const ServedCall call(served_number("_copy_from"));
  copy(destination, self, non_blocking);
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  const ServedCall call(served_number("_copy_from_and_resize"));
  destination.resize_(self.sizes());
  copy(destination, self, /*non_blocking=*/false);
  return destination;
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  const ServedCall call(served_number("_local_scalar_dense"));
  return at::_ops::_local_scalar_dense::redispatch(c10::DispatchKeySet(backing_target.key), make_alias(self));
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  const ServedCall call(served_number("record_stream"));
  record_data_on_stream(self.storage().data_ptr(), stream);
}

}  // namespace flagos::served
