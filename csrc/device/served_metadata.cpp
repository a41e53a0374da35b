// Operators that change what a flagos tensor is, not what its elements are: resize_ and set_.
#include "device/served_kernels.h"

#include "device/allocator.h"
#include "device/served_call.h"
#include "device/storage.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

namespace flagos::served {
namespace {

// Grows `storage` where a tensor of this geometry would reach beyond its end. Called before the tensor changes: it may
// throw.
void make_room(const at::Storage& storage, size_t item, int64_t offset, at::IntArrayRef size,
               at::OptionalIntArrayRef stride) {
  const auto first = static_cast<size_t>(offset);
  const size_t bytes = stride.has_value() ? at::detail::computeStorageNbytes(size, *stride, item, first)
                                          : at::detail::computeStorageNbytesContiguous(size, item, first);
  if (bytes > storage.nbytes() && c10::multiply_integers(size) > 0) {
    resize_storage(storage.unsafeGetStorageImpl(), bytes);
  }
}

void set_geometry(const at::Tensor& self, at::IntArrayRef size, at::OptionalIntArrayRef stride) {
  if (stride.has_value()) {
    self.unsafeGetTensorImpl()->set_sizes_and_strides(size, *stride);
  } else {
    self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  }
}

void set_to(at::Tensor& self, const at::Storage& source, int64_t offset, at::IntArrayRef size,
            at::OptionalIntArrayRef stride) {
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  TORCH_CHECK(source.device() == self.device(), "Attempted to set the storage of a tensor on device \"", self.device(),
              "\" to a storage on different device \"", source.device(),
              "\".  This is no longer allowed; the devices must match.");
  for (const int64_t extent : size) {
    TORCH_CHECK(extent >= 0, "set_: negative size in ", size);
  }
  if (stride.has_value()) {
    TORCH_CHECK(size.size() == stride->size(), "unequal size length (", size.size(), ") and stride length (",
                stride->size(), ")");
    for (const int64_t step : *stride) {
      TORCH_CHECK(step >= 0, "set_: negative stride in ", *stride);
    }
  }
  make_room(source, self.dtype().itemsize(), offset, size, stride);
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(source);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  set_geometry(self, size, stride);
}

}  // namespace

const at::Tensor& resize_(const at::Tensor& self, c10::SymIntArrayRef size,
                          std::optional<at::MemoryFormat> memory_format) {
  const ServedCall call(served_number("resize_"));
  const at::IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(size);
  for (const int64_t extent : sizes) {
    TORCH_CHECK(extent >= 0, "Trying to create tensor with negative dimension ", extent, ": ", sizes);
  }
  const auto before = static_cast<int64_t>(self.storage().nbytes());
  if (self.sizes() != sizes) {
    make_room(self.storage(), self.dtype().itemsize(), self.storage_offset(), sizes, std::nullopt);
    set_geometry(self, sizes, std::nullopt);
  }
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "Unsupported memory format ", *memory_format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                   at::globalContext().deterministicFillUninitializedMemory())) {
    at::native::fill_resize_deterministic_(self, before);
  }
  return self;
}

at::Tensor& set_(at::Tensor& self) {
  const ServedCall call(served_number("set_"));
  const c10::DeviceGuard guard(self.device());
  const at::Storage storage(c10::Storage::use_byte_size_t(), 0, flagos_allocator()->allocate(0), flagos_allocator(),
                            /*resizable=*/true);
  set_to(self, storage, 0, {0}, std::nullopt);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const ServedCall call(served_number("set_.source_Storage"));
  const auto elements = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  set_to(self, source, 0, {elements}, std::nullopt);
  return self;
}

at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, c10::SymInt storage_offset,
                               c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  const ServedCall call(served_number("set_.source_Storage_storage_offset"));
  const at::IntArrayRef strides = C10_AS_INTARRAYREF_SLOW(stride);
  const at::IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(size);
  set_to(self, source, storage_offset.expect_int(), sizes,
         strides.empty() && !sizes.empty() ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(strides));
  return self;
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  const ServedCall call(served_number("set_.source_Tensor"));
  if (!self.is_same(source)) {
    TORCH_CHECK(self.scalar_type() == source.scalar_type(), "set_: expected a source of type ", self.scalar_type(),
                ", got ", source.scalar_type());
    set_to(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
  }
  return self;
}

bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  // Dense tensors of any device may take each other's place, so that `module.to("flagos")` keeps its parameters.
  const auto dense = [](const at::Tensor& tensor) {
    return tensor.key_set().has_any(c10::DispatchKeySet(c10::DispatchKey::Dense));
  };
  return dense(self) && dense(from);
}

bool nested_tensor_from_mask_left_aligned(const at::Tensor&, const at::Tensor&) {
  // TransformerEncoder asks before it packs a padded batch into a nested tensor, which the device does not have. With
  // the answer no it computes the padded batch.
  const ServedCall call(served_number("_nested_tensor_from_mask_left_aligned"));
  return false;
}

}  // namespace flagos::served
