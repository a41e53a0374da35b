// Fallbacks that name operator and layout, and the autograd fallback of operators from outside ATen.
#include "device/layouts.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <array>

namespace flagos {
namespace {

struct Layout {
  c10::DispatchKey key;
  const char* name;
};
constexpr std::array kLayouts = {
    Layout{c10::DispatchKey::SparsePrivateUse1, "sparse_coo"},
    Layout{c10::DispatchKey::SparseCsrPrivateUse1, "sparse compressed (csr, csc, bsr, bsc)"},
    Layout{c10::DispatchKey::QuantizedPrivateUse1, "quantized"},
    Layout{c10::DispatchKey::NestedTensorPrivateUse1, "nested"},
};

template <size_t Row>
void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "flagos: '", op.operator_name(), "' is not implemented for tensors of layout ",
                              kLayouts[Row].name, "; make and use such tensors on the CPU");
}

// These would make a sparse tensor over flagos memory that no operator could then use.
constexpr std::array kSparseFactories = {
    "_sparse_compressed_tensor_unsafe",
    "_sparse_compressed_tensor_with_dims",
    "sparse_compressed_tensor.comp_plain_value",
    "sparse_compressed_tensor.comp_plain_value_size",
};

template <size_t Row>
void register_layout() {
  static torch::Library library(torch::Library::IMPL, "_", kLayouts[Row].key, __FILE__, __LINE__);
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse<Row>>());
}

}  // namespace

void register_layout_errors() {
  register_layout<0>();
  register_layout<1>();
  register_layout<2>();
  register_layout<3>();
  static torch::Library backend(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  static torch::Library autograd(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1, __FILE__,
                                 __LINE__);
  for (const char* overload : kSparseFactories) {
    backend.impl(overload, torch::CppFunction::makeFromBoxedFunction<&refuse<1>>());
    autograd.impl(overload, torch::CppFunction::makeFromBoxedFunction<&refuse<1>>());
  }
  // Operators from outside ATen that have no derivative: backward through them raises a clear error, as on CPU.
  if (!c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(c10::DispatchKey::AutogradPrivateUse1)) {
    static torch::Library library(torch::Library::IMPL, "_", c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
    library.fallback(torch::autograd::basicAutogradNotImplementedFallback());
  }
}

}  // namespace flagos
