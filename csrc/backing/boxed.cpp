// Aliasing of whole stacks.
#include "backing/boxed.h"

#include "backing/call_frame.h"
#include "backing/values.h"

#include <ATen/core/List.h>

namespace flagos {
namespace {

c10::IValue convert(CallFrame& frame, const c10::IValue& value, size_t position) {
  if (value.isDevice()) {
    return frame.backing_device(value.toDevice()).value();
  }
  return map_tensors(value, [&frame, position](const at::Tensor& tensor) { return frame.alias(tensor, position); });
}

c10::IValue finish_result(CallFrame& frame, c10::IValue value) {
  if (value.isTensor()) {
    at::Tensor result = std::move(value).toTensor();
    frame.finish_result(result);
    return result;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list = std::move(value).toTensorList();
    for (size_t i = 0; i < list.size(); ++i) {
      at::Tensor result = list.extract(i);
      frame.finish_result(result);
      list.set(i, std::move(result));
    }
    return list;
  }
  return value;
}

}  // namespace

uint64_t run_boxed_on_backing(const OperatorEntry& entry, torch::jit::Stack* stack) {
  CallFrame frame(entry);
  const size_t count = entry.op.schema().arguments().size();
  const size_t first = stack->size() - count;
  const std::vector<c10::IValue> fronts(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  std::vector<c10::IValue> aliases;  // alive until the results are told from them
  aliases.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    aliases.push_back(convert(frame, fronts[i], i));
  }
  if (entry.generator_argument >= 0) {
    const auto position = static_cast<size_t>(entry.generator_argument);
    const c10::IValue& given = fronts[position];
    aliases[position] = frame.backing_generator(given.isNone() ? std::nullopt : std::optional(given.toGenerator()));
  }
  stack->resize(first);
  stack->insert(stack->end(), aliases.begin(), aliases.end());
  entry.op.redispatchBoxed(c10::DispatchKeySet(backing_target.key), stack);
  for (size_t i = 0; i < count; ++i) {
    if (frame.writes(i)) {
      visit_tensor_pairs(aliases[i], fronts[i], [&frame](const at::Tensor& alias, const at::Tensor& front) {
        frame.finish_written(alias, front);
      });
    }
  }
  for (size_t i = first; i < stack->size(); ++i) {
    (*stack)[i] = finish_result(frame, std::move((*stack)[i]));
  }
  return frame.dtypes();
}

}  // namespace flagos
