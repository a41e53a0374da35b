// The fused LSTM and GRU cells, composed of ATen operators.
//
// Shapes: gates (batch, 4 * hidden) for LSTM and (batch, 3 * hidden) for GRU, states (batch, hidden). Formulas:
// Hochreiter and Schmidhuber 1997 with forget gate, and Cho et al. 2014 with the reset gate after the product, as
// nn.LSTM and nn.GRU document them. The workspace holds the activated gates for the backward operator.
#include "device/recurrent.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

namespace flagos {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

constexpr std::array kCells = {
    "_thnn_fused_gru_cell",
    "_thnn_fused_gru_cell_backward",
    "_thnn_fused_lstm_cell",
    "_thnn_fused_lstm_cell_backward_impl",
};

at::Tensor with_bias(const at::Tensor& gates, const OptionalTensor& bias) {
  return bias.has_value() && bias->defined() ? gates.add(*bias) : gates;
}

// The derivative of sigmoid and tanh by their values.
at::Tensor sigmoid_slope(const at::Tensor& value) {
  return value * (1 - value);
}
at::Tensor tanh_slope(const at::Tensor& value) {
  return 1 - value * value;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                                         const at::Tensor& cell, const OptionalTensor& input_bias,
                                                         const OptionalTensor& hidden_bias) {
  const at::Tensor gates = with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias);
  const std::vector<at::Tensor> part = gates.chunk(4, 1);
  const at::Tensor in = part[0].sigmoid();
  const at::Tensor forget = part[1].sigmoid();
  const at::Tensor candidate = part[2].tanh();
  const at::Tensor out = part[3].sigmoid();
  const at::Tensor new_cell = forget * cell + in * candidate;
  return {out * new_cell.tanh(), new_cell, at::cat({in, forget, candidate, out}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const OptionalTensor& grad_hidden,
                                                                  const OptionalTensor& grad_cell,
                                                                  const at::Tensor& cell, const at::Tensor& new_cell,
                                                                  const at::Tensor& workspace, bool has_bias) {
  const std::vector<at::Tensor> part = workspace.chunk(4, 1);
  const at::Tensor& in = part[0];
  const at::Tensor& forget = part[1];
  const at::Tensor& candidate = part[2];
  const at::Tensor& out = part[3];
  const auto given = [&new_cell](const OptionalTensor& gradient) {
    return gradient.has_value() && gradient->defined() ? *gradient : at::zeros_like(new_cell);
  };
  const at::Tensor active = new_cell.tanh();
  const at::Tensor hidden = given(grad_hidden);
  const at::Tensor through_cell = hidden * out * tanh_slope(active) + given(grad_cell);
  const at::Tensor gates =
      at::cat({through_cell * candidate * sigmoid_slope(in), through_cell * cell * sigmoid_slope(forget),
               through_cell * in * tanh_slope(candidate), hidden * active * sigmoid_slope(out)},
              1);
  return {gates, through_cell * forget, has_bias ? gates.sum(0) : at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                            const at::Tensor& hidden, const OptionalTensor& input_bias,
                                            const OptionalTensor& hidden_bias) {
  const std::vector<at::Tensor> from_input = with_bias(input_gates, input_bias).chunk(3, 1);
  const std::vector<at::Tensor> from_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const at::Tensor reset = (from_input[0] + from_hidden[0]).sigmoid();
  const at::Tensor update = (from_input[1] + from_hidden[1]).sigmoid();
  const at::Tensor candidate = (from_input[2] + reset * from_hidden[2]).tanh();
  return {candidate + update * (hidden - candidate), at::cat({reset, update, candidate, hidden, from_hidden[2]}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(const at::Tensor& gradient,
                                                                                         const at::Tensor& workspace,
                                                                                         bool has_bias) {
  const std::vector<at::Tensor> part = workspace.chunk(5, 1);
  const at::Tensor& reset = part[0];
  const at::Tensor& update = part[1];
  const at::Tensor& candidate = part[2];
  const at::Tensor& hidden = part[3];
  const at::Tensor& hidden_candidate = part[4];
  const at::Tensor to_candidate = gradient * (1 - update) * tanh_slope(candidate);
  const at::Tensor to_update = gradient * (hidden - candidate) * sigmoid_slope(update);
  const at::Tensor to_reset = to_candidate * hidden_candidate * sigmoid_slope(reset);
  const at::Tensor input_gates = at::cat({to_reset, to_update, to_candidate}, 1);
  const at::Tensor hidden_gates = at::cat({to_reset, to_update, to_candidate * reset}, 1);
  return {input_gates, hidden_gates, gradient * update, has_bias ? input_gates.sum(0) : at::Tensor(),
          has_bias ? hidden_gates.sum(0) : at::Tensor()};
}

}  // namespace

bool is_recurrent_cell(std::string_view overload) {
  for (const std::string_view cell : kCells) {
    if (overload == cell) {
      return true;
    }
  }
  return false;
}

void register_recurrent_cells(torch::Library& library) {
  library.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  library.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  library.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  library.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace flagos
