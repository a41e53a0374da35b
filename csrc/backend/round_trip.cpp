// Sending memory regions to the CPU, and bringing back what was written.
#include "backend/round_trip.h"

#include "accelerator/accelerator.h"
#include "backing/values.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/resize_ops.h>
#include <ATen/ops/set_ops.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>

namespace flagos {
namespace {

constexpr c10::DispatchKeySet kFlagos(c10::DispatchKey::PrivateUse1);
// No dtype has larger elements, so a region that starts at a multiple of this is aligned for every view of it.
constexpr int64_t kAlignment = 16;

struct Extent {
  int64_t first;
  int64_t last;
};

// The bytes of its storage that a tensor touches.
Extent extent_of(const at::Tensor& tensor) {
  const auto item = static_cast<int64_t>(tensor.dtype().itemsize());
  const int64_t begin = tensor.storage_offset() * item;
  if (tensor.numel() == 0) {
    return {begin, begin};
  }
  int64_t elements = 1;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    elements += (tensor.size(i) - 1) * tensor.stride(i);
  }
  return {begin, begin + elements * item};
}

// A tensor over `storage`; below autograd, so no version counter moves.
at::Tensor view_of(const c10::Storage& storage, const at::TensorOptions& options, int64_t offset, at::IntArrayRef size,
                   at::IntArrayRef stride) {
  at::Tensor view = at::empty({0}, options);
  view.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
  view.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return view;
}

at::Tensor bytes_of(const c10::Storage& storage, c10::Device device, int64_t first, int64_t last) {
  return view_of(storage, at::TensorOptions().dtype(at::kByte).device(device), first, {last - first}, {1});
}

// On the device whatever the caller's modes; torch's copy_ would count as a write of the caller's.
void copy(const at::Tensor& to, const at::Tensor& from) {
  at::Tensor destination = to;
  at::_ops::copy_::redispatch(kFlagos, destination, from, /*non_blocking=*/false);
}

}  // namespace

std::vector<c10::IValue> RoundTrip::send(const std::vector<c10::IValue>& fronts) {
  for (size_t i = 0; i < fronts.size(); ++i) {
    if (fronts[i].isDevice() && fronts[i].toDevice().type() == c10::DeviceType::PrivateUse1) {
      frame_.backing_device(fronts[i].toDevice());
    }
    map_tensors(fronts[i], [this, i](const at::Tensor& tensor) {
      note(tensor, i);
      return tensor;
    });
  }
  for (Region& region : regions_) {
    region.first -= region.first % kAlignment;
    region.bytes = at::empty({region.last - region.first}, at::kByte);
    copy(region.bytes, bytes_of(region.storage, region.storage.device(), region.first, region.last));
    to_host_ += static_cast<uint64_t>(region.last - region.first);
  }
  for (Sent& sent : sent_) {
    const Region& region = regions_[sent.region];
    const at::Tensor& front = sent.front;
    const int64_t offset = front.storage_offset() - region.first / static_cast<int64_t>(front.dtype().itemsize());
    sent.cpu = view_of(region.bytes.storage(), front.options().device(at::kCPU), front.numel() == 0 ? 0 : offset,
                       front.sizes(), front.strides());
    sent.cpu._set_conj(front.is_conj());
    sent.cpu._set_neg(front.is_neg());
  }
  std::vector<c10::IValue> result;
  for (size_t i = 0; i < fronts.size(); ++i) {
    if (entry_.generator_argument == static_cast<int>(i)) {
      result.push_back(cpu_generator(fronts[i]));
    } else if (fronts[i].isDevice() && fronts[i].toDevice().type() == c10::DeviceType::PrivateUse1) {
      result.emplace_back(c10::Device(c10::DeviceType::CPU));
    } else {
      result.push_back(map_tensors(fronts[i], [this](const at::Tensor& tensor) { return sent_tensor(tensor); }));
    }
  }
  return result;
}

void RoundTrip::note(const at::Tensor& tensor, size_t position) {
  if (!frame_.admit(tensor, position)) {
    return;
  }
  const bool written = frame_.writes(position) || (position < 64 && (entry_.written_unannounced >> position & 1) != 0);
  const auto known =
      std::find_if(sent_.begin(), sent_.end(), [&tensor](const Sent& sent) { return sent.front.is_same(tensor); });
  if (known != sent_.end()) {
    known->written = known->written || written;
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.has_storage(), "flagos: '", entry_.name, "' got a tensor of layout ",
                              tensor.layout(), ", which cannot make a trip to the CPU");
  const c10::Storage& storage = tensor.storage();
  const Extent extent = extent_of(tensor);
  TORCH_CHECK(extent.last <= static_cast<int64_t>(storage.nbytes()), "flagos: an argument of '", entry_.name,
              "' of sizes ", tensor.sizes(), " and strides ", tensor.strides(), " reaches beyond its storage of ",
              storage.nbytes(), " bytes");
  auto region = std::find_if(regions_.begin(), regions_.end(), [&storage](const Region& other) {
    return other.storage.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl();
  });
  if (region == regions_.end()) {
    region = regions_.insert(regions_.end(), Region{storage, extent.first, extent.last, at::Tensor()});
  } else {
    region->first = std::min(region->first, extent.first);
    region->last = std::max(region->last, extent.last);
  }
  sent_.push_back({tensor, at::Tensor(), static_cast<size_t>(region - regions_.begin()), written});
}

at::Tensor RoundTrip::sent_tensor(const at::Tensor& tensor) const {
  for (const Sent& sent : sent_) {
    if (tensor.defined() && sent.front.is_same(tensor)) {
      return sent.cpu;
    }
  }
  return tensor;  // undefined, or a CPU tensor that may mix in
}

c10::IValue RoundTrip::cpu_generator(const c10::IValue& given) {
  // Draws happen on the CPU from a seed reserved in the flagos generator, so that they replay with it.
  const std::optional<at::Generator> asked = given.isNone() ? std::nullopt : std::optional(given.toGenerator());
  at::Generator source = frame_.backing_generator(asked);
  drew_ = true;
  if (backing_target.type == c10::DeviceType::CPU) {
    return source;  // already a CPU generator
  }
  const std::lock_guard lock(source.mutex());
  return at::detail::createCPUGenerator(at::check_generator<at::CPUGeneratorImpl>(source)->random64());
}

void RoundTrip::write_back() {
  for (const Sent& sent : sent_) {
    if (sent.written) {
      write_back(sent);
    }
  }
}

void RoundTrip::write_back(const Sent& sent) {
  const at::Tensor& front = sent.front;
  if (sent.cpu.sizes() != front.sizes()) {
    // The kernel has resized its output.
    at::_ops::resize_::redispatch(kFlagos, front, c10::fromIntArrayRefSlow(sent.cpu.sizes()), std::nullopt);
    if (sent.cpu.is_non_overlapping_and_dense()) {
      front.unsafeGetTensorImpl()->set_sizes_and_strides(sent.cpu.sizes(), sent.cpu.strides());
    }
  } else if (at::has_internal_overlap(front) != at::MemOverlap::No) {
    // Elements that share memory cannot be copied one by one.
    const Region& region = regions_[sent.region];
    copy(bytes_of(region.storage, region.storage.device(), region.first, region.last), region.bytes);
    from_host_ += static_cast<uint64_t>(region.last - region.first);
    return;
  }
  copy(front, sent.cpu);
  from_host_ += sent.cpu.nbytes();
}

c10::IValue RoundTrip::receive(const c10::IValue& result) {
  return map_tensors(result, [this](const at::Tensor& tensor) { return receive(tensor); });
}

at::Tensor RoundTrip::receive(const at::Tensor& result) {
  if (!result.defined()) {
    return result;
  }
  for (const Sent& sent : sent_) {
    if (sent.cpu.is_same(result)) {
      return sent.front;
    }
  }
  from_host_ += result.nbytes();
  return result.to(c10::Device(c10::DeviceType::PrivateUse1, frame_.index()));
}

}  // namespace flagos
