// Recurrent networks: layers with dropout between them, and the fused cells that a CPU lacks.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <string_view>

namespace flagos {

/// Runs a call of lstm, gru, rnn_tanh or rnn_relu layer by layer where it draws dropout masks between layers, since
/// those must come from the flagos generator and a composite on aliases would draw from the CPU's. Returns false,
/// having done nothing, for every other call.
bool run_recurrent_layers(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Registers `_thnn_fused_lstm_cell`, `_thnn_fused_gru_cell` and their backward operators, composed of others. PyTorch
/// asks for them where the parts of lstm and gru are watched (dispatch modes, fake tensors, functorch) and its CPU has
/// none.
void register_recurrent_cells(torch::Library& library);

bool is_recurrent_cell(std::string_view overload);

}  // namespace flagos
