// Resizing by a new allocation and a copy, as every accelerator can.
#include "device/storage.h"

#include "accelerator/accelerator.h"
#include "device/allocator.h"
#include "device/guard.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace flagos {

void resize_storage(c10::StorageImpl* storage, size_t bytes) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  if (bytes == storage->nbytes()) {
    return;
  }
  const c10::DeviceGuard guard(storage->device());
  c10::DataPtr data = flagos_allocator()->allocate(bytes);
  accelerator().copy_bytes(data.get(), storage->data(), std::min(bytes, storage->nbytes()));
  storage->set_data_ptr_noswap(std::move(data));
  storage->set_nbytes(bytes);
}

}  // namespace flagos
