// Random number generators of the flagos device.
//
// A flagos generator owns a generator of the backing device and hands every question to it; kernels draw from that one.
// On host the numbers are therefore those of a CPU generator with the same seed, and the CPU's own default generator
// never moves. Thread safety is the backing generator's: draws hold its mutex.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>

namespace flagos {

/// The default generator of a device (-1: the current one); alive to the end of the process.
const at::Generator& default_generator(c10::DeviceIndex index);

/// A generator of its own, with the default seed.
at::Generator make_generator(c10::DeviceIndex index);

/// What a backing kernel draws from: the backing generator of `generator`, or of the device's default one where there
/// is none. Throws for a generator of another device type.
at::Generator backing_generator(const std::optional<at::Generator>& generator, c10::DeviceIndex index);

}  // namespace flagos
