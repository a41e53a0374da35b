// Composites of PyTorch that look at the device type, made to behave as they do on the backing device.
#pragma once

#include <string_view>

namespace flagos {

/// Whether `overload` is composed of other overloads here although the backing device has a kernel for it:
/// native_dropout, whose kernel draws from the backing device's default generator.
bool is_composed_here(std::string_view overload);

/// Registers them, for the backend and for its Autograd key: a backend kernel alone would switch their autograd off.
void register_composites();

}  // namespace flagos
