// One trip of a call to the CPU and back.
//
// Note [Round trips copy memory, not tensors]
// The arguments of a call may share memory: views of one tensor, a tensor twice, an expanded gradient, an output that
// overlaps an input. Copying each for itself would hide that from the CPU kernel, which would then give other values or
// miss an error. So the bytes that the arguments touch in one storage go to one CPU storage, once, and every argument
// becomes a view of that, with its own sizes, strides and math bits.
#pragma once

#include "backing/call_frame.h"

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

namespace flagos {

class RoundTrip {
 public:
  explicit RoundTrip(const OperatorEntry& entry) : entry_(entry), frame_(entry) {}

  /// The CPU's values for the arguments `fronts`, in order. Throws where devices are mixed.
  std::vector<c10::IValue> send(const std::vector<c10::IValue>& fronts);

  /// After the kernel: what it wrote to arguments goes back, in size, strides and elements.
  void write_back();

  /// A result for the caller: the argument that it stands for, else a copy on the device.
  c10::IValue receive(const c10::IValue& result);

  uint64_t dtypes() const { return frame_.dtypes(); }
  uint64_t bytes_to_host() const { return to_host_; }
  uint64_t bytes_from_host() const { return from_host_; }
  /// Whether the call drew random numbers.
  bool drew() const { return drew_; }

 private:
  // The bytes [first, last) of a front storage that the call touches, and their copy.
  struct Region {
    c10::Storage storage;
    int64_t first;
    int64_t last;
    at::Tensor bytes;  // uint8, on the CPU
  };
  struct Sent {
    at::Tensor front;
    at::Tensor cpu;
    size_t region;
    bool written;
  };

  void note(const at::Tensor& tensor, size_t position);
  at::Tensor sent_tensor(const at::Tensor& tensor) const;
  c10::IValue cpu_generator(const c10::IValue& given);
  void write_back(const Sent& sent);
  at::Tensor receive(const at::Tensor& result);

  const OperatorEntry& entry_;
  CallFrame frame_;
  std::vector<Region> regions_;
  std::vector<Sent> sent_;  // one for each different tensor
  uint64_t to_host_ = 0;
  uint64_t from_host_ = 0;
  bool drew_ = false;
};

}  // namespace flagos
