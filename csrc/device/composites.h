// Composites of PyTorch that look at the device type, made to behave as they do on the backing device.
#pragma once

namespace flagos {

/// Registers them, for the backend and for its Autograd key: a backend kernel alone would switch their autograd off.
void register_composites();

}  // namespace flagos
