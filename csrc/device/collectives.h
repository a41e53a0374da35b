// Collectives of torch.distributed on flagos tensors.
#pragma once

namespace flagos {

/// On host: runs every c10d operator on aliases, by the process group's CPU backend (gloo), and gives results back as
/// flagos tensors. Called once; does nothing where torch is built without torch.distributed.
void register_collectives();

}  // namespace flagos
