// The c10d operators on aliases.
#include "device/collectives.h"

#include "backing/alias.h"
#include "backing/values.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace flagos {
namespace {

using Fronts = std::vector<at::Tensor>;

// Aliases every tensor of `value`, at any depth of lists, and keeps the callers' tensors in `fronts`.
c10::IValue to_backing(const c10::IValue& value, Fronts& fronts) {
  return map_tensors(value, [&fronts](const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != c10::DeviceType::PrivateUse1) {
      return tensor;
    }
    fronts.push_back(tensor);
    return make_alias(tensor);
  });
}

// The way back; the memory of each result is that of one of `fronts`, which also keeps its front storage alive.
c10::IValue to_front(const c10::IValue& value, const Fronts& fronts) {
  return map_tensors(value, [&fronts](const at::Tensor& tensor) {
    at::Tensor result = tensor;  // a second holder: the process group keeps its tensor as it is
    if (tensor.defined() && tensor.device().type() == backing_target.type && !fronts.empty()) {
      give_back(result, fronts.front().device().index());
    }
    return result;
  });
}

// Work of the CPU backend, whose results the caller sees as flagos tensors.
class FrontWork final : public c10d::Work {
 public:
  FrontWork(c10::intrusive_ptr<c10d::Work> work, Fronts fronts)
      : c10d::Work(-1, work->retrieveOpType()),
        work_(std::move(work)),
        fronts_(std::make_shared<const Fronts>(std::move(fronts))) {}

  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  std::exception_ptr exception() const override { return work_->exception(); }
  int sourceRank() const override { return work_->sourceRank(); }
  std::vector<at::Tensor> result() override {
    std::vector<at::Tensor> results;
    for (const at::Tensor& tensor : work_->result()) {
      results.push_back(to_front(tensor, *fronts_).toTensor());
    }
    return results;
  }
  void synchronize() override { work_->synchronize(); }
  bool wait(std::chrono::milliseconds timeout) override { return work_->wait(timeout); }
  void abort() override { work_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const c10::intrusive_ptr<c10::ivalue::Future> future = work_->getFuture();
    return future->then([fronts = fronts_](c10::ivalue::Future& done) { return to_front(done.value(), *fronts); },
                        future->elementType());
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::shared_ptr<const Fronts> fronts_;
};

class Collective final : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const size_t first = stack->size() - op.schema().arguments().size();
    Fronts fronts;
    for (size_t i = first; i < stack->size(); ++i) {
      (*stack)[i] = to_backing((*stack)[i], fronts);
    }
    op.redispatchBoxed(c10::DispatchKeySet(backing_target.key), stack);
    for (size_t i = first; i < stack->size(); ++i) {
      c10::IValue& value = (*stack)[i];
      if (value.isCustomClass()) {
        value = c10::IValue(
            c10::intrusive_ptr<c10d::Work>(c10::make_intrusive<FrontWork>(value.toCustomClass<c10d::Work>(), fronts)));
      } else {
        value = to_front(value, fronts);
      }
    }
  }
};

// torch registers kernels of its own for PrivateUse1, which want a backend for the device, and warns when they are
// replaced.
class Silent final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

}  // namespace

void register_collectives() {
  if (backing_target.type != c10::DeviceType::CPU) {
    return;
  }
  static auto& registrations = *new std::vector<c10::RegistrationHandleRAII>;
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  Silent silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("c10d::")) {
      continue;
    }
    const std::optional<c10::OperatorHandle> op = dispatcher.findSchema(name);
    if (op.has_value() && op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) &&
        op->hasKernelForDispatchKey(backing_target.key)) {
      registrations.push_back(dispatcher.registerImpl(
          name, c10::DispatchKey::PrivateUse1,
          c10::KernelFunction::makeFromBoxedKernel(c10::BoxedKernel::makeFromFunctor(std::make_unique<Collective>())),
          std::nullopt, nullptr, "torch_fl collectives"));
    }
  }
}

}  // namespace flagos
