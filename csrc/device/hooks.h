// What PyTorch's generic code asks of the device through PrivateUse1HooksInterface.
#pragma once

namespace flagos {

/// Registers the hooks, the device allocator and the pinned allocator. Called once.
void register_hooks();

}  // namespace flagos
