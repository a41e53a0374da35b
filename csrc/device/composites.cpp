// Dropout, recurrent networks, group_norm and the choice among attention kernels.
//
// Note [Composites on backing tensors]
// PyTorch decomposes these operators above the backend, by the device type it sees, so flagos tensors would take
// another path than the backing device's tensors and give other numbers (dropout), or reach kernels that the backing
// device lacks
// (`_thnn_fused_lstm_cell` on a CPU). They are therefore run on aliases, by the very composite that the backing device
// uses. AsBacking and AsFront are the differentiable way in and out: the graph between them is the backing device's
// own. This holds where the backing device needs no stream of its own in the autograd engine, that is on the host.
#include "device/composites.h"

#include "accelerator/accelerator.h"
#include "backing/call_frame.h"
#include "backing/values.h"
#include "device/recurrent.h"
#include "route/torch_registry.h"

#include <ATen/FuncTorchTLS.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/List.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/group_norm_native.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>

namespace flagos {
namespace {

constexpr std::array kRunOnBacking = {
    "gru.data",           "gru.input",      "gru_cell",        "lstm.data",     "lstm.input",     "lstm_cell",
    "nanquantile",  // the range of q is checked on a CPU only
    "nanquantile.scalar", "quantile",       "quantile.scalar", "rnn_relu.data", "rnn_relu.input", "rnn_relu_cell",
    "rnn_tanh.data",      "rnn_tanh.input", "rnn_tanh_cell",
};

at::Tensor as_front(const at::Tensor& tensor, c10::DeviceIndex index) {
  at::Tensor result = tensor;  // a second holder, so that the backing device's own graph keeps its tensor as it is
  give_back(result, index);
  return result;
}

struct AsBacking : torch::autograd::Function<AsBacking> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& tensor);
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients);
};

struct AsFront : torch::autograd::Function<AsFront> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& tensor, int64_t index) {
    context->set_materialize_grads(false);  // what has no gradient on the backing device has none here
    return as_front(tensor, static_cast<c10::DeviceIndex>(index));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor& gradient = gradients[0];
    return {gradient.defined() ? AsBacking::apply(gradient) : gradient, at::Tensor()};
  }
};

at::Tensor AsBacking::forward(torch::autograd::AutogradContext* context, const at::Tensor& tensor) {
  context->set_materialize_grads(false);
  context->saved_data["index"] = static_cast<int64_t>(tensor.device().index());
  return make_alias(tensor);
}

torch::autograd::variable_list AsBacking::backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
  const at::Tensor& gradient = gradients[0];
  return {gradient.defined() ? AsFront::apply(gradient, context->saved_data["index"].toInt()) : gradient};
}

// Autocast was asked for flagos; between the aliases it holds for the backing device.
class AutocastOnBacking {
 public:
  AutocastOnBacking()
      : enabled_(at::autocast::is_autocast_enabled(backing_target.type)),
        dtype_(at::autocast::get_autocast_dtype(backing_target.type)) {
    at::autocast::set_autocast_enabled(backing_target.type,
                                       at::autocast::is_autocast_enabled(c10::DeviceType::PrivateUse1));
    at::autocast::set_autocast_dtype(backing_target.type,
                                     at::autocast::get_autocast_dtype(c10::DeviceType::PrivateUse1));
  }
  AutocastOnBacking(const AutocastOnBacking&) = delete;
  AutocastOnBacking& operator=(const AutocastOnBacking&) = delete;
  ~AutocastOnBacking() {
    at::autocast::set_autocast_enabled(backing_target.type, enabled_);
    at::autocast::set_autocast_dtype(backing_target.type, dtype_);
  }

 private:
  bool enabled_;
  at::ScalarType dtype_;
};

// One call on the backing device with its autograd graph.
class CompositeCall {
 public:
  explicit CompositeCall(const OperatorEntry& entry) : frame_(entry) {}

  c10::IValue in(const c10::IValue& value, size_t position) {
    return map_tensors(value, [this, position](const at::Tensor& tensor) { return in(tensor, position); });
  }

  at::Tensor out(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != backing_target.type) {
      return tensor;
    }
    return tensor.requires_grad() ? AsFront::apply(tensor, static_cast<int64_t>(frame_.index()))
                                  : as_front(tensor, frame_.index());
  }

  uint64_t dtypes() const { return frame_.dtypes(); }

 private:
  at::Tensor in(const at::Tensor& tensor, size_t position) {
    if (!frame_.admit(tensor, position)) {
      return tensor;
    }
    if (at::GradMode::is_enabled() && tensor.requires_grad()) {
      return AsBacking::apply(tensor);
    }
    at::Tensor alias = make_alias(tensor);
    if (tensor.requires_grad()) {
      alias.set_requires_grad(true);  // matmul folds by this flag, also where no gradient is recorded
    }
    return alias;
  }

  CallFrame frame_;
};

// Whether a functorch transform is under way in this thread: no autograd::Function of C++ may run in one.
bool in_functorch_transform() {
  const auto& functorch = at::functorch::functorchTLSAccessor();
  if (functorch == nullptr) {
    return false;
  }
  try {
    functorch
        ->checkSupportsCppAutogradFunction();  // the only question that can be asked without functorch's own headers
  } catch (const c10::Error&) {
    return true;
  }
  return false;
}

// Whether somebody above the backend must see the parts of the composite: fake tensors, tensor subclasses, functorch.
bool parts_are_watched(const torch::jit::Stack& stack, size_t first) {
  if (in_functorch_transform()) {
    return true;
  }
  const auto watched = [](const at::Tensor& tensor) {
    return tensor.defined() &&
           tensor.key_set().has_any(c10::python_ks | c10::DispatchKeySet(c10::DispatchKey::Functionalize));
  };
  for (size_t i = first; i < stack.size(); ++i) {
    if (stack[i].isTensor() && watched(stack[i].toTensor())) {
      return true;
    }
    if (stack[i].isTensorList()) {
      for (const at::Tensor& tensor : stack[i].toTensorVector()) {
        if (watched(tensor)) {
          return true;
        }
      }
    }
  }
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Python);
}

void run_on_backing(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::DispatchKeySet composite(backing_target.key);  // that slot of the operator holds PyTorch's composite
  const size_t first = stack->size() - op.schema().arguments().size();
  if (parts_are_watched(*stack, first)) {
    op.redispatchBoxed(composite, stack);
    return;
  }
  if (run_recurrent_layers(op, stack)) {
    return;
  }
  const OperatorEntry& entry = entry_of(op);
  CompositeCall call(entry);
  for (size_t i = first; i < stack->size(); ++i) {
    (*stack)[i] = call.in((*stack)[i], i - first);
  }
  {
    const AutocastOnBacking autocast;
    op.redispatchBoxed(composite, stack);
  }
  for (size_t i = first; i < stack->size(); ++i) {
    (*stack)[i] = call.out((*stack)[i].toTensor());
  }
  if (listens(kLogDispatch)) {
    write_log("[flagos dispatch] " + entry.name + " -> " + std::string(backend_name(accelerator_backend)));
  }
  count_call({entry.number, accelerator_backend, Reason::kRouted, call.dtypes()});
}

// Whether the derivative of group_norm would drop the channels-last format: PyTorch's formula for native_group_norm
// keeps it for tensors that say they are on a CPU. Where somebody else than the accelerator normalises, that one's
// format counts.
bool group_norm_drops_format(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                             const std::optional<at::Tensor>& bias) {
  static const OperatorEntry& normalisation =
      entry_of(c10::Dispatcher::singleton().findSchemaOrThrow("aten::native_group_norm", ""));
  const auto differentiates = [](const std::optional<at::Tensor>& tensor) {
    return tensor.has_value() && tensor->defined() && tensor->requires_grad();
  };
  return at::GradMode::is_enabled() && input.suggest_memory_format() != at::MemoryFormat::Contiguous &&
         (input.requires_grad() || differentiates(weight) || differentiates(bias)) &&
         normalisation.direct.load(std::memory_order_acquire);
}

at::Tensor group_norm(const at::Tensor& input, int64_t groups, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps, bool cudnn_enabled) {
  if (!group_norm_drops_format(input, weight, bias)) {
    return at::native::group_norm(input, groups, weight, bias, eps, cudnn_enabled);
  }
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::group_norm", "");
  torch::jit::Stack stack{input, groups, weight, bias, eps, cudnn_enabled};
  run_on_backing(op, &stack);
  return stack.back().toTensor();
}

// The CPU's dropout; for other device types PyTorch fuses it into native_dropout, which draws other numbers.
at::Tensor dropout(const at::Tensor& input, double p, bool train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (p == 0 || !train || input.sym_numel() == 0) {
    return input;
  }
  if (p == 1) {
    return input.mul(at::zeros({}, input.options()));
  }
  const at::Tensor noise = at::empty_like(input).bernoulli_(1 - p).div_(1 - p);
  return input.mul(noise);
}

// The CPU's native_dropout, whose kernel would draw from the CPU's default generator.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  if (input.sym_numel() == 0) {
    return {input, at::empty_like(input, input.options())};
  }
  const at::TensorOptions mask_options = input.options().dtype(at::kBool);
  if (!train.value_or(true)) {
    return {input.clone(), at::ones_like(input, mask_options)};
  }
  const double kept = 1 - p;
  const at::Tensor mask = at::empty_like(input, mask_options).bernoulli_(kept);
  return {input.mul(mask).mul_(kept == 0 ? 0.0 : 1 / kept), mask};
}

int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal,
                         std::optional<double> scale, bool enable_gqa) {
  // The CPU's function looks at sizes and flags only. It gets the caller's tensors, not aliases: which kernel can be
  // differentiated is asked of the tensors that require gradients, and functorch asks with its wrappers.
  if (backing_target.type == c10::DeviceType::CPU) {
    return at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa);
  }
  return at::_ops::_fused_sdp_choice::call(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa);
}

}  // namespace

bool is_composed_here(std::string_view overload) {
  return backing_target.type == c10::DeviceType::CPU && (overload == "native_dropout" || is_recurrent_cell(overload));
}

void register_composites() {
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choose_attention);
  if (backing_target.type != c10::DeviceType::CPU) {
    return;
  }
  static torch::Library backend(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  static torch::Library autograd(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1, __FILE__,
                                 __LINE__);
  backend.impl("native_dropout", TORCH_FN(native_dropout));
  register_recurrent_cells(backend);
  for (torch::Library* library : {&backend, &autograd}) {
    library->impl("dropout", TORCH_FN(dropout));
    library->impl("group_norm", TORCH_FN(group_norm));
    for (const char* overload : kRunOnBacking) {
      library->impl(overload, torch::CppFunction::makeFromBoxedFunction<&run_on_backing>());
    }
  }
}

}  // namespace flagos
