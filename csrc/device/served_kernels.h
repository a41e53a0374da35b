// The kernels behind device/served.h. Each follows the schema and the errors of its operator in PyTorch.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace flagos::served {

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory,
                 std::optional<at::MemoryFormat> memory_format);
at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory);

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> storage_offset);
at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride);
at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step);
at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size);
at::Tensor view_as_complex(const at::Tensor& self);
at::Tensor view_as_real(const at::Tensor& self);

const at::Tensor& resize_(const at::Tensor& self, c10::SymIntArrayRef size,
                          std::optional<at::MemoryFormat> memory_format);
at::Tensor& set_(at::Tensor& self);
at::Tensor& set_storage(at::Tensor& self, at::Storage source);
at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, c10::SymInt storage_offset,
                               c10::SymIntArrayRef size, c10::SymIntArrayRef stride);
at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source);
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from);
bool nested_tensor_from_mask_left_aligned(const at::Tensor& batch, const at::Tensor& mask);

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking);
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& destination, bool non_blocking);
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination);
at::Scalar local_scalar_dense(const at::Tensor& self);
void record_stream(at::Tensor& self, c10::Stream stream);

}  // namespace flagos::served
