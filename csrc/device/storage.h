// Growing and shrinking of front storages.
#pragma once

#include <c10/core/StorageImpl.h>

namespace flagos {

/// Gives `storage` room for `bytes`, keeping the first bytes of what it held. Throws OutOfMemoryError, or an error
/// where the storage cannot be resized, before anything changes.
void resize_storage(c10::StorageImpl* storage, size_t bytes);

}  // namespace flagos
