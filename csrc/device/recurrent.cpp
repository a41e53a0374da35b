// Splitting a recurrent call into calls of one layer.
#include "device/recurrent.h"

#include <ATen/core/List.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>

#include <optional>
#include <string>

namespace flagos {
namespace {

// Where the arguments of one overload stand; the packed (`data`) spellings have no batch_first.
struct Positions {
  size_t hidden;
  size_t weights;
  size_t has_biases;
  size_t layers;
  size_t dropout;
  size_t train;
  size_t bidirectional;
};

std::optional<Positions> positions_of(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const auto at = [&schema](const char* name) { return schema.argumentIndexWithName(name); };
  if (!at("params").has_value() || !at("num_layers").has_value()) {
    return std::nullopt;  // a single cell, or no recurrent operator at all
  }
  const auto position = [&at](const char* name) { return static_cast<size_t>(at(name).value()); };
  return Positions{position("hx"),      position("params"), position("has_biases"),   position("num_layers"),
                   position("dropout"), position("train"),  position("bidirectional")};
}

// Layer `layer`'s part of a hidden state of shape (layers * directions, batch, features).
at::Tensor layer_part(const at::Tensor& hidden, int64_t layer, int64_t directions) {
  return hidden.narrow(0, layer * directions, directions);
}

}  // namespace

bool run_recurrent_layers(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::optional<Positions> positions = positions_of(op);
  if (!positions.has_value()) {
    return false;
  }
  const size_t count = op.schema().arguments().size();
  const size_t first = stack->size() - count;
  const std::vector<c10::IValue> arguments(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  const int64_t layers = arguments[positions->layers].toInt();
  const double dropout = arguments[positions->dropout].toDouble();
  if (layers < 2 || dropout == 0 || !arguments[positions->train].toBool()) {
    return false;
  }
  const int64_t directions = arguments[positions->bidirectional].toBool() ? 2 : 1;
  const std::vector<at::Tensor> weights = arguments[positions->weights].toTensorVector();
  const bool is_lstm = arguments[positions->hidden].isTensorList();
  const std::vector<at::Tensor> hidden = is_lstm ? arguments[positions->hidden].toTensorVector()
                                                 : std::vector<at::Tensor>{arguments[positions->hidden].toTensor()};
  TORCH_CHECK(weights.size() % static_cast<size_t>(layers) == 0, "expected the same number of weights for each of ",
              layers, " layers, got ", weights.size(), " in all");
  const size_t per_layer = weights.size() / static_cast<size_t>(layers);

  c10::IValue input = arguments[0];
  std::vector<std::vector<at::Tensor>> final_states(hidden.size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    torch::jit::Stack call = arguments;
    call[0] = input;
    if (is_lstm) {
      c10::List<at::Tensor> part;
      for (const at::Tensor& state : hidden) {
        part.push_back(layer_part(state, layer, directions));
      }
      call[positions->hidden] = part;
    } else {
      call[positions->hidden] = layer_part(hidden[0], layer, directions);
    }
    const auto begin = weights.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(layer) * per_layer);
    call[positions->weights] = c10::List<at::Tensor>(at::ArrayRef<at::Tensor>(&*begin, per_layer));
    call[positions->layers] = int64_t{1};
    call[positions->dropout] = 0.0;
    op.callBoxed(&call);
    at::Tensor output = call[0].toTensor();
    for (size_t i = 0; i < hidden.size(); ++i) {
      final_states[i].push_back(call[i + 1].toTensor());
    }
    input = layer + 1 < layers ? at::dropout(output, dropout, /*train=*/true) : output;
  }
  stack->resize(first);
  stack->push_back(std::move(input));
  for (const std::vector<at::Tensor>& states : final_states) {
    stack->push_back(at::cat(states, 0));
  }
  return true;
}

}  // namespace flagos
