// Mixed precision: torch.autocast("flagos").
#pragma once

namespace flagos {

/// Registers PyTorch's own cast lists for AutocastPrivateUse1. Called once.
void register_autocast();

}  // namespace flagos
