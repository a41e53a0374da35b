// Making, recognising and refreshing front and backing storages.
#include "backing/storage.h"

#include "accelerator/accelerator.h"
#include "device/allocator.h"

namespace flagos {
namespace {

// Kernels grow a storage through the allocator that the storage names. Backing storages name this one, which hands
// everything to the backing device's allocator.
class BackingStorageAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return accelerator().backing_allocator()->allocate(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return accelerator().backing_allocator()->raw_deleter(); }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    accelerator().backing_allocator()->copy_data(destination, source, bytes);
  }
};

}  // namespace

c10::Allocator* backing_storage_allocator() {
  static BackingStorageAllocator& allocator = *new BackingStorageAllocator;  // never destroyed: storages may outlive us
  return &allocator;
}

void release_backing(void* context) {
  auto* backing = static_cast<BackingStorage*>(context);
  backing->set_front(nullptr);
  c10::raw::intrusive_ptr::decref(backing);
}

BackingStorage::BackingStorage(c10::DataPtr data, size_t bytes, bool resizable, c10::DeviceIndex index)
    : c10::StorageImpl(use_byte_size_t(), static_cast<int64_t>(bytes), std::move(data), backing_storage_allocator(),
                       resizable),
      index_(index) {
  charge_memory(index_, bytes);
  charged_ = bytes;
}

BackingStorage::~BackingStorage() {
  uncharge();
}

void BackingStorage::release_resources() {
  uncharge();
  c10::StorageImpl::release_resources();
}

void BackingStorage::uncharge() {
  discharge_memory(index_, charged_);
  charged_ = 0;
}

void BackingStorage::disown() {
  uncharge();
}

void BackingStorage::recharge() {
  const size_t before = charged_;
  const size_t now = nbytes();
  if (now != before) {
    charged_ = now;
    discharge_memory(index_, before);
    charge_existing_memory(index_, now, now > before);
  }
}

BackingStorage* as_backing(c10::StorageImpl* storage) {
  // A kernel may have taken our allocator from an input for a storage of its own, hence the cast.
  return storage->allocator() == backing_storage_allocator() ? dynamic_cast<BackingStorage*>(storage) : nullptr;
}

c10::DataPtr front_data(c10::intrusive_ptr<BackingStorage> backing) {
  const c10::Device device(c10::DeviceType::PrivateUse1, backing->index());
  void* data = backing->_mutable_data_ptr_no_checks().get();
  return c10::DataPtr(data, backing.release(), &release_backing, device);
}

c10::intrusive_ptr<BackingStorage> adopt_front(c10::StorageImpl* front, c10::DeviceIndex index) {
  c10::DataPtr data(front->_mutable_data_ptr_no_checks().get(), backing_target.device(index));
  auto backing = c10::make_intrusive<BackingStorage>(std::move(data), 0, front->resizable(), index);
  backing->set_nbytes(front->nbytes());
  backing->disown();
  backing->set_front(front);
  return backing;
}

void relabel_storage(c10::StorageImpl* storage, c10::DeviceIndex index) {
  const size_t bytes = storage->nbytes();
  check_memory_limit(index, bytes);
  // mutable_data_ptr materialises a copy-on-write storage, whose state could not move along.
  c10::DataPtr data = std::move(storage->mutable_data_ptr());
  auto backing = c10::make_intrusive<BackingStorage>(std::move(data), bytes, storage->resizable(), index);
  backing->set_front(storage);
  storage->set_data_ptr_noswap(front_data(std::move(backing)));
  storage->set_allocator(flagos_allocator());
}

c10::Storage wrap_shared_storage(const c10::Storage& storage, c10::DeviceIndex index) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  const size_t bytes = impl->nbytes();
  check_memory_limit(index, bytes);
  c10::raw::intrusive_ptr::incref(impl);
  c10::DataPtr data(
      impl->mutable_data(), impl,
      [](void* context) { c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(context)); }, impl->device());
  auto backing = c10::make_intrusive<BackingStorage>(std::move(data), bytes, /*resizable=*/true, index);
  auto front = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, front_data(backing),
                                                     flagos_allocator(), /*resizable=*/true);
  backing->set_front(front.get());
  return c10::Storage(std::move(front));
}

void refresh_front(c10::StorageImpl* front, BackingStorage* backing) {
  const bool same_data = front->_mutable_data_ptr_no_checks().get() == backing->_mutable_data_ptr_no_checks().get();
  if (same_data && front->nbytes() == backing->nbytes()) {
    return;
  }
  front->set_data_ptr_noswap(front_data(c10::intrusive_ptr<BackingStorage>::reclaim_copy(backing)));
  front->set_nbytes(backing->nbytes());
  backing->set_front(front);  // the old DataPtr, dropped just now, has cleared it
  backing->recharge();
}

}  // namespace flagos
