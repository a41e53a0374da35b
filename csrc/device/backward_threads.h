// On which thread a backward pass runs, and an orderly end of those threads.
//
// Note [Backward on the calling thread]
// PyTorch's autograd engine has a thread for each device that is not the CPU: the thread that calls `backward` hands
// the graph over and waits. That overlaps the devices of an accelerator whose calls return before they have finished.
// Where a call has finished when it returns, as on host, nothing overlaps, and each pass costs two changes of thread
// (40 to 100 us, as long as 50 small operators). The engine leaves the graph on the calling thread, as it does for CPU
// tensors, where the thread's state says so: torch.autograd.set_multithreading_enabled(False). That state belongs to
// each thread and is set at the first call that the thread makes on the device; what a program sets later holds.
#pragma once

namespace flagos {

/// Has threads that use the device run their backward passes themselves, if the accelerator wants that. Called once.
void register_backward_threads();

/// Returns when PyTorch's backward threads of this device have let go of every finished graph.
///
/// Such a thread may hold a graph's thread-local state, with Python objects in it, for a moment after `backward` has
/// returned. If the interpreter is torn down in that moment, the thread asks for the GIL, Python ends it, and unwinding
/// it through PyTorch's noexcept code aborts the process. Called at exit, without the GIL.
void drain_backward_threads();

}  // namespace flagos
