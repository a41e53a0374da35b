// Front and backing storage: the same bytes, once labelled flagos for callers and once labelled as the backing device
// for kernels.
//
// Note [Front and backing storage]
// A flagos tensor has an ordinary StorageImpl, the *front*. Its DataPtr is labelled flagos and its context is a
// BackingStorage: a StorageImpl of the backing device that owns the memory. An alias of the tensor, made for the length
// of one call, uses the backing storage, so kernels that make views, read `storage().device()` or resize see a plain
// CPU or CUDA storage whose deleter and context are the backing allocator's own. Whoever holds an alias keeps the
// backing storage alive; whoever holds a tensor keeps the front alive, which owns the backing storage.
#pragma once

#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include <atomic>

namespace flagos {

/// The front DataPtr's deleter; also the mark by which a front storage is recognised.
void release_backing(void* context);

/// Storage of the backing device below one front storage. Charged against its device's memory statistics.
class BackingStorage final : public c10::StorageImpl {
 public:
  /// Takes over `data`; charges `bytes` on flagos device `index`, which may throw OutOfMemoryError before anything
  /// changes.
  BackingStorage(c10::DataPtr data, size_t bytes, bool resizable, c10::DeviceIndex index);
  ~BackingStorage() override;
  void release_resources() override;

  /// The storage that callers see. Valid while that storage lives, which the caller of an operator guarantees.
  c10::StorageImpl* front() const { return front_.load(std::memory_order_relaxed); }
  void set_front(c10::StorageImpl* front) {
    // Threads that share a tensor store the same value; the test keeps the cache line shared.
    if (front_.load(std::memory_order_relaxed) != front) {
      front_.store(front, std::memory_order_relaxed);
    }
  }

  c10::DeviceIndex index() const { return index_; }

  /// Charges what a kernel has grown or given back since the last call. Throws OutOfMemoryError past the limit, with
  /// the memory charged all the same, since it exists.
  void recharge();

  /// Records memory that is not owned (a foreign front, see `adopt_front`), so that nothing is charged for it.
  void disown();

 private:
  void uncharge();

  std::atomic<c10::StorageImpl*> front_{nullptr};
  c10::DeviceIndex index_;
  size_t charged_ = 0;
};

/// The allocator named by backing storages, by which they are told from a kernel's own storages.
c10::Allocator* backing_storage_allocator();

/// Null where the storage was not made by this allocator: memory from DLPack or `from_blob`.
inline BackingStorage* backing_of(c10::StorageImpl* front) {
  const c10::DataPtr& data = front->_mutable_data_ptr_no_checks();
  return data.get_deleter() == &release_backing ? static_cast<BackingStorage*>(data.get_context()) : nullptr;
}

/// The backing storage behind `storage` if it is one, else null.
BackingStorage* as_backing(c10::StorageImpl* storage);

/// A DataPtr labelled flagos that owns `backing`.
c10::DataPtr front_data(c10::intrusive_ptr<BackingStorage> backing);

/// A backing storage, alive for one call, for a front whose memory somebody else owns.
c10::intrusive_ptr<BackingStorage> adopt_front(c10::StorageImpl* front, c10::DeviceIndex index);

/// Turns a storage of the backing device that nobody else holds into a front storage of flagos device `index`, in
/// place. Throws OutOfMemoryError before anything changes.
void relabel_storage(c10::StorageImpl* storage, c10::DeviceIndex index);

/// A front storage over `storage`, which others hold too and which stays as it is.
c10::Storage wrap_shared_storage(const c10::Storage& storage, c10::DeviceIndex index);

/// After a kernel ran: makes the front see the backing storage's bytes again, should the kernel have resized it.
void refresh_front(c10::StorageImpl* front, BackingStorage* backing);

}  // namespace flagos
