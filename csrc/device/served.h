// The operators that the device serves itself: allocation, views, metadata and transfer. None of them can be routed.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace flagos {

enum class ServedKind { kAllocation, kView, kMetadata, kTransfer };

struct ServedOverload {
  std::string_view name;
  ServedKind kind;
  bool registered;  ///< has a kernel of ours; else PyTorch's own composite over those that have
};

/// The one table of them, as `flagos routes --device` prints it.
inline constexpr std::array kServedOverloads = {
    ServedOverload{"empty.memory_format", ServedKind::kAllocation, true},
    ServedOverload{"empty_strided", ServedKind::kAllocation, true},
    ServedOverload{"empty_like", ServedKind::kAllocation, false},
    ServedOverload{"new_empty", ServedKind::kAllocation, false},
    ServedOverload{"new_empty_strided", ServedKind::kAllocation, false},
    ServedOverload{"as_strided", ServedKind::kView, true},
    ServedOverload{"_reshape_alias", ServedKind::kView, true},
    ServedOverload{"unfold", ServedKind::kView, true},
    ServedOverload{"view", ServedKind::kView, true},
    ServedOverload{"view.dtype", ServedKind::kView, false},
    ServedOverload{"view_as_complex", ServedKind::kView, true},
    ServedOverload{"view_as_real", ServedKind::kView, true},
    ServedOverload{"as_strided_", ServedKind::kMetadata, false},
    ServedOverload{"detach_", ServedKind::kMetadata, false},
    ServedOverload{"resize_", ServedKind::kMetadata, true},
    ServedOverload{"resize_as_", ServedKind::kMetadata, false},
    ServedOverload{"set_", ServedKind::kMetadata, true},
    ServedOverload{"set_.source_Storage", ServedKind::kMetadata, true},
    ServedOverload{"set_.source_Storage_storage_offset", ServedKind::kMetadata, true},
    ServedOverload{"set_.source_Tensor", ServedKind::kMetadata, true},
    ServedOverload{"set_.source_Tensor_storage_offset", ServedKind::kMetadata, false},
    ServedOverload{"squeeze_", ServedKind::kMetadata, false},
    ServedOverload{"squeeze_.dim", ServedKind::kMetadata, false},
    ServedOverload{"squeeze_.dims", ServedKind::kMetadata, false},
    ServedOverload{"swapaxes_", ServedKind::kMetadata, false},
    ServedOverload{"swapdims_", ServedKind::kMetadata, false},
    ServedOverload{"t_", ServedKind::kMetadata, false},
    ServedOverload{"transpose_", ServedKind::kMetadata, false},
    ServedOverload{"unsqueeze_", ServedKind::kMetadata, false},
    ServedOverload{"_has_compatible_shallow_copy_type", ServedKind::kMetadata, true},
    ServedOverload{"_nested_tensor_from_mask_left_aligned", ServedKind::kMetadata, true},
    ServedOverload{"_copy_from", ServedKind::kTransfer, true},
    ServedOverload{"_copy_from_and_resize", ServedKind::kTransfer, true},
    ServedOverload{"_local_scalar_dense", ServedKind::kTransfer, true},
    ServedOverload{"_pin_memory", ServedKind::kTransfer, false},
    ServedOverload{"_to_copy", ServedKind::kTransfer, false},
    ServedOverload{"copy_", ServedKind::kTransfer, true},
    ServedOverload{"is_pinned", ServedKind::kTransfer, false},
    ServedOverload{"record_stream", ServedKind::kTransfer, true},
};

/// Numbers of device-served overloads in the counters start here, beyond any router entry.
inline constexpr uint32_t kFirstServedNumber = 1u << 15;

/// Number of a device-served overload; a name that is not in the table does not compile.
consteval uint32_t served_number(std::string_view overload) {
  for (uint32_t i = 0; i < kServedOverloads.size(); ++i) {
    if (kServedOverloads[i].name == overload) {
      return kFirstServedNumber + i;
    }
  }
  throw "not in the table of device-served overloads";
}

bool is_served_by_device(std::string_view overload);

const char* served_kind_text(ServedKind kind);

/// Registers their kernels. Called once.
void register_served_operators();

}  // namespace flagos
