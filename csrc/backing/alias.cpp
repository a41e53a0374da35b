// Aliases of flagos tensors, and the way back.
#include "backing/alias.h"

#include "device/allocator.h"

#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

namespace flagos {
namespace {

// What makes a tensor one of a device.
struct Label {
  c10::Device device;
  c10::DispatchKeySet own_keys;
};

Label front_label(c10::DeviceIndex index) {
  return {c10::Device(c10::DeviceType::PrivateUse1, index),
          BackingTarget::device_keys(c10::BackendComponent::PrivateUse1Bit)};
}

Label backing_label(c10::DeviceIndex index) {
  return {backing_target.device(index), backing_target.own_keys};
}

// The few fields of TensorImpl that torch gives only to derived classes.
struct TensorAccess : c10::TensorImpl {
  static c10::intrusive_ptr<c10::TensorImpl> copy(const c10::TensorImpl* source, c10::Storage storage,
                                                  const Label& label) {
    // Constructed with a bare backend key, which makes no version counter of its own; the caller's keys follow.
    auto result = c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(storage),
                                                       c10::DispatchKeySet(c10::DispatchKey::CPU), source->dtype());
    copy_generic_tensor_metadata(source, result.get());
    relabel(result.get(), label, source->key_set() - c10::python_ks);
    result->set_allow_tensor_metadata_change(true);
    if (!result->is_inference()) {
      result->set_version_counter(source->version_counter());
    }
    return result;
  }

  // `keys` with those of front or backing device replaced: what _change_backend_component_keys does for any two
  // devices.
  static void relabel(c10::TensorImpl* impl, const Label& label, c10::DispatchKeySet keys) {
    const uint64_t device_bits =
        (BackingTarget::device_keys(c10::BackendComponent::PrivateUse1Bit) | backing_target.own_keys).raw_repr();
    constexpr auto key_field = &TensorAccess::key_set_;
    constexpr auto device_field = &TensorAccess::device_opt_;
    impl->*key_field =
        c10::DispatchKeySet(c10::DispatchKeySet::RAW, (keys.raw_repr() & ~device_bits) | label.own_keys.raw_repr());
    impl->*device_field = label.device;
  }
};

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
  return at::Tensor(TensorAccess::copy(impl, c10::Storage(std::move(storage)), backing_label(index)));
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
    TensorAccess::relabel(impl, front_label(index), impl->key_set());
    return;
  }
  // Somebody else holds this tensor too (a module constant, a cache of the kernel's): it keeps its label.
  tensor = at::Tensor(TensorAccess::copy(impl, front_of(storage, index, shared), front_label(index)));
}

void sync_back(const at::Tensor& alias, const at::Tensor& front) {
  c10::TensorImpl* from = alias.unsafeGetTensorImpl();
  c10::TensorImpl* to = front.unsafeGetTensorImpl();
  c10::StorageImpl* from_storage = from->unsafe_storage().unsafeGetStorageImpl();
  c10::StorageImpl* to_storage = to->unsafe_storage().unsafeGetStorageImpl();
  // Some kernels conjugate what they have written lazily.
  constexpr c10::DispatchKeySet math_bits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
  if (C10_UNLIKELY((from->key_set() & math_bits) != (to->key_set() & math_bits))) {
    to->_set_conj(from->is_conj());
    to->_set_neg(from->is_neg());
  }
  // The geometry first: refreshing the storage may report that the memory limit was passed.
  if (!from->sizes().equals(to->sizes()) || !from->strides().equals(to->strides()) ||
      from->storage_offset() != to->storage_offset()) {
    to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  }
  BackingStorage* backing = backing_of(to_storage);
  if (C10_UNLIKELY(backing != from_storage)) {
    backing = as_backing(from_storage);  // memory from outside, or a storage that the kernel gave the alias
  }
  if (C10_LIKELY(backing != nullptr && backing->front() == to_storage)) {
    refresh_front(to_storage, backing);
  } else {
    // The kernel gave the alias another storage.
    to->set_storage_keep_dtype(front_of(from->unsafe_storage(), to->device().index(), nullptr));
  }
}

}  // namespace flagos
