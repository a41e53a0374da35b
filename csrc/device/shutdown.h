// An orderly end of the process.
#pragma once

namespace flagos {

/// Returns when PyTorch's backward threads of this device have let go of every finished graph.
///
/// Such a thread may hold a graph's thread-local state, with Python objects in it, for a moment after `backward` has
/// returned. If the interpreter is torn down in that moment, the thread asks for the GIL, Python ends it, and unwinding
/// it through PyTorch's noexcept code aborts the process. Called at exit, without the GIL.
void drain_backward_threads();

}  // namespace flagos
