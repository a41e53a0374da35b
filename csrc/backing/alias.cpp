// Aliases of flagos tensors, and the way back.
#include "backing/alias.h"

#include "device/allocator.h"

#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

namespace flagos {
namespace {

// The few fields of TensorImpl that torch gives only to derived classes.
struct TensorAccess : c10::TensorImpl {
  static c10::intrusive_ptr<c10::TensorImpl> copy(const c10::TensorImpl* source, c10::Storage storage,
                                                  c10::Device device) {
    // Constructed with a bare backend key, which makes no version counter of its own; the caller's keys follow.
    auto result = c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(storage),
                                                       c10::DispatchKeySet(c10::DispatchKey::CPU), source->dtype());
    copy_generic_tensor_metadata(source, result.get());
    constexpr auto keys = &TensorAccess::key_set_;
    result.get()->*keys = source->key_set() - c10::python_ks;
    result->set_allow_tensor_metadata_change(true);
    relabel(result.get(), device);
    if (!result->is_inference()) {
      result->set_version_counter(source->version_counter());
    }
    return result;
  }

  static void relabel(c10::TensorImpl* impl, c10::Device device) {
    impl->_change_backend_component_keys(device);
    constexpr auto field = &TensorAccess::device_opt_;
    impl->*field = device;
  }
};

c10::Device front_device(c10::DeviceIndex index) {
  return c10::Device(c10::DeviceType::PrivateUse1, index);
}

// The front storage that stands for `storage`, whoever else holds that one.
c10::Storage front_of(const c10::Storage& storage, c10::DeviceIndex index, SharedFronts* shared) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  if (BackingStorage* backing = as_backing(impl); backing != nullptr && backing->front() != nullptr) {
    return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(backing->front()));
  }
  if (shared == nullptr) {
    return wrap_shared_storage(storage, index);
  }
  for (const auto& [wrapped, front] : *shared) {
    if (wrapped == impl) {
      return front;
    }
  }
  return shared->emplace_back(impl, wrap_shared_storage(storage, index)).second;
}

}  // namespace

at::Tensor make_alias(const at::Tensor& tensor) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  TORCH_CHECK_NOT_IMPLEMENTED(impl->has_storage(), "flagos: a tensor of layout ", tensor.layout(),
                              " has no memory that a kernel could use");
  c10::StorageImpl* front = impl->unsafe_storage().unsafeGetStorageImpl();
  const c10::DeviceIndex index = impl->device().index();
  BackingStorage* backing = backing_of(front);
  c10::intrusive_ptr<c10::StorageImpl> storage;
  if (C10_LIKELY(backing != nullptr)) {
    backing->set_front(front);
    storage = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(backing);
  } else {
    storage = adopt_front(front, index);
  }
  return at::Tensor(TensorAccess::copy(impl, c10::Storage(std::move(storage)), backing_target.device(index)));
}

void give_back(at::Tensor& tensor, c10::DeviceIndex index, SharedFronts* shared) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const c10::Storage& storage = impl->unsafe_storage();
  if (C10_LIKELY(tensor.use_count() == 1)) {
    c10::StorageImpl* bytes = storage.unsafeGetStorageImpl();
    if (bytes->device_type() != c10::DeviceType::PrivateUse1) {
      if (C10_LIKELY(storage.use_count() == 1 && bytes->allocator() != backing_storage_allocator())) {
        relabel_storage(bytes, index);
      } else {
        impl->set_storage_keep_dtype(front_of(storage, index, shared));
      }
    }
    TensorAccess::relabel(impl, front_device(index));
    return;
  }
  // Somebody else holds this tensor too (a module constant, a cache of the kernel's): it keeps its label.
  tensor = at::Tensor(TensorAccess::copy(impl, front_of(storage, index, shared), front_device(index)));
}

void sync_back(const at::Tensor& alias, const at::Tensor& front) {
  c10::TensorImpl* from = alias.unsafeGetTensorImpl();
  c10::TensorImpl* to = front.unsafeGetTensorImpl();
  c10::StorageImpl* from_storage = from->unsafe_storage().unsafeGetStorageImpl();
  BackingStorage* backing = as_backing(from_storage);
  // The geometry first: refreshing the storage may report that the memory limit was passed.
  if (!from->sizes().equals(to->sizes()) || !from->strides().equals(to->strides()) ||
      from->storage_offset() != to->storage_offset()) {
    to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  }
  if (C10_LIKELY(backing != nullptr && backing->front() == to->unsafe_storage().unsafeGetStorageImpl())) {
    refresh_front(backing->front(), backing);
  } else {
    // The kernel gave the alias another storage.
    to->set_storage_keep_dtype(front_of(from->unsafe_storage(), to->device().index(), nullptr));
  }
}

}  // namespace flagos
