// Decompositions and round trips.
#include "backend/none.h"

#include "backing/call_frame.h"
#include "backing/values.h"
#include "device/generator.h"
#include "device/guard.h"
#include "route/settings.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include <chrono>

namespace flagos {
namespace {

bool is_view(const OperatorEntry& entry) {
  for (const c10::Argument& result : entry.op.schema().returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) {
      return true;
    }
  }
  return false;
}

// Composites that only raise, or that lead to one which does.
bool decomposition_raises(const OperatorEntry& entry) {
  return entry.name.find("_overrideable") != std::string::npos || entry.name == "convolution" ||
         entry.name == "convolution_backward";
}

// One trip to the CPU and back: which tensors went, and how many bytes.
class RoundTrip {
 public:
  explicit RoundTrip(const OperatorEntry& entry) : frame_(entry) {}

  c10::IValue to_cpu(const c10::IValue& value, size_t position) {
    if (value.isDevice() && value.toDevice().type() == c10::DeviceType::PrivateUse1) {
      frame_.backing_device(value.toDevice());
      return c10::Device(c10::DeviceType::CPU);
    }
    return map_tensors(value, [this, position](const at::Tensor& tensor) { return to_cpu(tensor, position); });
  }

  // Draws happen on the CPU from a seed reserved in the flagos generator, so that they replay with it.
  c10::IValue cpu_generator(const c10::IValue& given) {
    const std::optional<at::Generator> asked = given.isNone() ? std::nullopt : std::optional(given.toGenerator());
    at::Generator source = frame_.backing_generator(asked);
    drew_ = true;
    if (backing_target.type == c10::DeviceType::CPU) {
      return source;  // already a CPU generator
    }
    const std::lock_guard lock(source.mutex());
    auto* engine = at::check_generator<at::CPUGeneratorImpl>(source);
    return at::detail::createCPUGenerator(engine->random64());
  }

  void write_back(const c10::IValue& computed, const c10::IValue& front) {
    visit_tensor_pairs(computed, front, [this](const at::Tensor& from, const at::Tensor& to) { write_back(from, to); });
  }

  c10::IValue from_cpu(const c10::IValue& value, const std::vector<c10::IValue>& sent,
                       const std::vector<c10::IValue>& fronts) {
    return map_tensors(value, [&](const at::Tensor& tensor) { return from_cpu(tensor, sent, fronts); });
  }

  uint64_t dtypes() const { return frame_.dtypes(); }
  uint64_t bytes_to_host() const { return to_host_; }
  uint64_t bytes_from_host() const { return from_host_; }
  bool drew() const { return drew_; }

 private:
  at::Tensor to_cpu(const at::Tensor& tensor, size_t position) {
    if (!frame_.admit(tensor, position)) {
      return tensor;
    }
    to_host_ += tensor.nbytes();
    at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
    at::_ops::copy_::call(copy, tensor, false);
    return copy;
  }

  void write_back(const at::Tensor& computed, const at::Tensor& front) {
    if (!front.defined() || front.device().is_cpu()) {
      return;
    }
    if (computed.sizes() != front.sizes()) {
      front.resize_(computed.sizes());
    }
    from_host_ += computed.nbytes();
    at::Tensor to = front;
    at::_ops::copy_::call(to, computed, false);
  }

  at::Tensor from_cpu(const at::Tensor& tensor, const std::vector<c10::IValue>& sent,
                      const std::vector<c10::IValue>& fronts) {
    if (!tensor.defined()) {
      return tensor;
    }
    for (size_t i = 0; i < sent.size(); ++i) {
      if (sent[i].isTensor() && sent[i].toTensor().is_same(tensor)) {
        return fronts[i].toTensor();
      }
    }
    from_host_ += tensor.nbytes();
    return tensor.to(c10::Device(c10::DeviceType::PrivateUse1, frame_.index()));
  }

  CallFrame frame_;
  uint64_t to_host_ = 0;
  uint64_t from_host_ = 0;
  bool drew_ = false;
};

void run_round_trip(const OperatorEntry& entry, torch::jit::Stack* stack) {
  const auto start = std::chrono::steady_clock::now();
  RoundTrip trip(entry);
  const size_t count = entry.op.schema().arguments().size();
  const size_t first = stack->size() - count;
  const std::vector<c10::IValue> fronts(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  std::vector<c10::IValue> sent;
  for (size_t i = 0; i < count; ++i) {
    sent.push_back(trip.to_cpu(fronts[i], i));
  }
  if (entry.generator_argument >= 0) {
    const auto position = static_cast<size_t>(entry.generator_argument);
    sent[position] = trip.cpu_generator(fronts[position]);
  }
  stack->resize(first);
  stack->insert(stack->end(), sent.begin(), sent.end());
  entry.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (size_t i = 0; i < count; ++i) {
    if (i < 64 && (entry.written >> i & 1) != 0) {
      trip.write_back(sent[i], fronts[i]);
    }
  }
  for (size_t i = first; i < stack->size(); ++i) {
    (*stack)[i] = trip.from_cpu((*stack)[i], sent, fronts);
  }
  const auto elapsed = std::chrono::steady_clock::now() - start;
  const Reason reason = trip.drew() || trip.bytes_to_host() == 0 ? Reason::kHostFill : Reason::kRoundTrip;
  count_call({entry.number, Backend::kNone, reason, trip.dtypes()}, trip.bytes_to_host(), trip.bytes_from_host(),
             listens(kKeepTime) ? static_cast<uint64_t>(std::chrono::nanoseconds(elapsed).count()) : 0);
}

}  // namespace

NonePath none_path(const OperatorEntry& entry) {
  const auto has = [&entry](c10::DispatchKey key) { return entry.op.hasKernelForDispatchKey(key); };
  const bool composite = has(c10::DispatchKey::CompositeExplicitAutograd) ||
                         has(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) ||
                         has(c10::DispatchKey::CompositeImplicitAutograd);
  if (composite && !decomposition_raises(entry)) {
    return NonePath::kDecomposition;
  }
  const bool cpu = has(c10::DispatchKey::CPU) || composite;
  return cpu && !is_view(entry) ? NonePath::kRoundTrip : NonePath::kNothing;
}

void run_none(const OperatorEntry& entry, torch::jit::Stack* stack) {
  switch (none_path(entry)) {
    case NonePath::kDecomposition:
      entry.op.redispatchBoxed(c10::DispatchKeySet(), stack);
      count_call({entry.number, Backend::kNone, Reason::kDecomposition, 0});
      return;
    case NonePath::kRoundTrip:
      TORCH_CHECK_NOT_IMPLEMENTED(!settings().refuse_round_trips, "flagos: '", entry.name,
                                  "' would make a trip to the CPU, which FLAGOS_FALLBACK=error refuses");
      if (listens(kLogFallback)) {
        write_log("[flagos cpu_fallback] " + entry.full_name);
      }
      run_round_trip(entry, stack);
      return;
    case NonePath::kNothing:
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, "flagos: '", entry.name, "' has no kernel for this device",
          is_view(entry) ? ", and a view cannot make a trip to the CPU" : ", no decomposition and no CPU kernel");
  }
}

}  // namespace flagos
