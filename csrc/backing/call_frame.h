// The state of one call that runs on the backing device: which arguments were aliased, on which device, with which
// dtypes.
#pragma once

#include "backing/alias.h"
#include "route/torch_entry.h"

#include <ATen/core/Generator.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <optional>

namespace flagos {

class CallFrame {
 public:
  explicit CallFrame(const OperatorEntry& entry) : entry_(entry) {}
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;

  /// The tensor that the backing kernel gets for argument `position`: an alias, or the tensor itself where it is
  /// undefined or a CPU tensor that may mix in. Keep it alive as long as the frame. Throws where devices are mixed.
  at::Tensor alias(const at::Tensor& tensor, size_t position) {
    if (!admit(tensor, position)) {
      return tensor;
    }
    c10::TensorImpl* front = tensor.unsafeGetTensorImpl();
    // Kernels compare identities: attention projects once where query, key and value are one tensor, and a tensor that
    // is written must be known among those that are read. Long lists that are only read are not searched to their end.
    const size_t searched = entry_.written != 0 ? pairs_.size() : std::min(pairs_.size(), kInlinePairs);
    for (size_t i = 0; i < searched; ++i) {
      if (pairs_[i].front == front) {
        return at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(pairs_[i].alias));
      }
    }
    at::Tensor result = make_alias(tensor);
    pairs_.push_back({front, result.unsafeGetTensorImpl()});
    return result;
  }

  /// Checks the device of argument `position` and notes its dtype. False where the backing kernel gets it as it is.
  bool admit(const at::Tensor& tensor, size_t position) {
    if (!tensor.defined()) {
      return false;
    }
    const c10::Device device = tensor.device();
    note_dtype(tensor.scalar_type());
    if (C10_UNLIKELY(device.type() != c10::DeviceType::PrivateUse1)) {
      admit_foreign(tensor, position);
      return false;
    }
    note_device(device.index(), tensor);
    return true;
  }

  /// Names the device of a call that has a device argument.
  std::optional<c10::Device> backing_device(std::optional<c10::Device> device);

  /// The backing generator of `generator`, or of the device where there is none. Call when all tensors are aliased.
  at::Generator backing_generator(const std::optional<at::Generator>& generator);

  /// Index of the flagos device that the call runs on. Call when all arguments are converted.
  c10::DeviceIndex index();

  /// Makes a result of the kernel the caller's: the caller's own tensor where the kernel returned an alias, else the
  /// relabelled result.
  void finish_result(at::Tensor& result) {
    if (!result.defined()) {
      return;
    }
    if (C10_UNLIKELY(result.use_count() != 1) && restore_front(result)) {
      return;
    }
    check_result(result);
    if (C10_LIKELY(result.device().type() == backing_target.type)) {
      give_back(result, index(), &shared_);
    }
  }

  /// Sizes, strides and storage of a written argument become the caller's.
  void finish_written(const at::Tensor& alias, const at::Tensor& front) {
    if (front.defined() && !alias.is_same(front)) {
      sync_back(alias, front);
    }
  }

  /// Whether the operator writes to argument `position`.
  bool writes(size_t position) const { return position < 64 && (entry_.written >> position & 1) != 0; }

  uint64_t dtypes() const { return dtypes_; }

 private:
  static constexpr size_t kInlinePairs = 6;

  struct Pair {
    c10::TensorImpl* front;  // alive: the caller holds it
    c10::TensorImpl* alias;  // alive: the converted arguments hold it
  };

  void note_dtype(c10::ScalarType type) { dtypes_ = dtypes_ << 8 | (static_cast<uint64_t>(type) + 1); }
  void note_device(c10::DeviceIndex index, const at::Tensor& tensor) {
    if (index_ < 0) {
      index_ = index;
    } else if (C10_UNLIKELY(index_ != index)) {
      reject_mixed(tensor.device());
    }
  }
  void admit_foreign(const at::Tensor& tensor, size_t position) const;
  bool restore_front(at::Tensor& result) const;
  // A kernel's result must be something that a flagos tensor can be.
  void check_result(const at::Tensor& result) const {
    const bool dense = result.key_set().has(c10::DispatchKey::Dense);
    const c10::DeviceType type = result.device().type();
    if (C10_UNLIKELY(!dense || (type != backing_target.type && type != c10::DeviceType::PrivateUse1))) {
      reject_result(result);
    }
  }
  [[noreturn]] void reject_result(const at::Tensor& result) const;
  [[noreturn]] void reject_mixed(c10::Device other) const;

  const OperatorEntry& entry_;
  c10::SmallVector<Pair, kInlinePairs> pairs_;
  uint64_t dtypes_ = 0;
  c10::DeviceIndex index_ = -1;
  SharedFronts shared_;
};

}  // namespace flagos
