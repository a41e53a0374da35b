// Recurrent networks with dropout between their layers, one layer at a time.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace flagos {

/// Runs a call of lstm, gru, rnn_tanh or rnn_relu layer by layer where it draws dropout masks between layers, since
/// those must come from the flagos generator and a composite on aliases would draw from the CPU's. Returns false,
/// having done nothing, for every other call.
bool run_recurrent_layers(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace flagos
