// The table of operators that the device serves itself, and their registration.
#include "device/served.h"

#include "device/served_call.h"
#include "device/served_kernels.h"

#include <torch/library.h>

#include <algorithm>

namespace flagos {
bool is_served_by_device(std::string_view overload) {
  return std::any_of(kServedOverloads.begin(), kServedOverloads.end(),
                     [overload](const ServedOverload& row) { return row.name == overload; });
}

void log_served(uint32_t number) {
  write_log("[flagos device] " + std::string(kServedOverloads[number - kFirstServedNumber].name));
}

const char* served_kind_text(ServedKind kind) {
  switch (kind) {
    case ServedKind::kAllocation:
      return "allocation";
    case ServedKind::kView:
      return "view";
    case ServedKind::kMetadata:
      return "metadata";
    case ServedKind::kTransfer:
      return "transfer";
  }
  return "unknown";
}

void register_served_operators() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library.impl("empty.memory_format", TORCH_FN(served::empty));
  library.impl("empty_strided", TORCH_FN(served::empty_strided));
  library.impl("as_strided", TORCH_FN(served::as_strided));
  library.impl("_reshape_alias", TORCH_FN(served::reshape_alias));
  library.impl("unfold", TORCH_FN(served::unfold));
  library.impl("view", TORCH_FN(served::view));
  library.impl("view_as_complex", TORCH_FN(served::view_as_complex));
  library.impl("view_as_real", TORCH_FN(served::view_as_real));
  library.impl("resize_", TORCH_FN(served::resize_));
  library.impl("set_", TORCH_FN(served::set_));
  library.impl("set_.source_Storage", TORCH_FN(served::set_storage));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(served::set_storage_offset));
  library.impl("set_.source_Tensor", TORCH_FN(served::set_tensor));
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(served::has_compatible_shallow_copy_type));
  library.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(served::nested_tensor_from_mask_left_aligned));
  library.impl("_copy_from", TORCH_FN(served::copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(served::copy_from_and_resize));
  library.impl("_local_scalar_dense", TORCH_FN(served::local_scalar_dense));
  library.impl("copy_", TORCH_FN(served::copy_));
  library.impl("record_stream", TORCH_FN(served::record_stream));

  // copy_ lets the math bits through, and the fallback that resolves them clones, which copies: without these the two
  // would call each other until the stack ends.
  static torch::Library conjugate(torch::Library::IMPL, "aten", c10::DispatchKey::Conjugate, __FILE__, __LINE__);
  static torch::Library negative(torch::Library::IMPL, "aten", c10::DispatchKey::Negative, __FILE__, __LINE__);
  for (torch::Library* math_bit : {&conjugate, &negative}) {
    math_bit->impl("_copy_from", torch::CppFunction::makeFallthrough());
    math_bit->impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
  }
}

}  // namespace flagos
