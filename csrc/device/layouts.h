// Sparse, quantized and nested tensors: one clear error where they cannot work.
#pragma once

namespace flagos {

/// Registers the fallback of every layout that flagos tensors cannot have. Called once.
void register_layout_errors();

}  // namespace flagos
