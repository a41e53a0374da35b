// Backward on the calling thread, and waiting for the threads of other backward passes.
#include "device/backward_threads.h"

#include "accelerator/accelerator.h"
#include "route/counters.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <exception>
#include <thread>

namespace flagos {

void register_backward_threads() {
  if (accelerator().backward_on_calling_thread()) {
    on_first_call_of_thread([] {
      // One of the engine's own threads has its state from the thread that called backward, for the time of one node.
      if (torch::autograd::get_current_graph_task_id() == -1) {
        c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
      }
    });
  }
}

void drain_backward_threads() {
  // A backward thread drops one graph before it takes the next, so a small backward on each device has the earlier ones
  // dropped. It runs from a thread of its own, whose state holds no Python object.
  std::exception_ptr failure;
  std::thread([&failure] {
    try {
      for (c10::DeviceIndex index = 0; index < accelerator().device_count(); ++index) {
        const c10::Device device(c10::DeviceType::PrivateUse1, index);
        // Only what the device serves itself: these calls are no business of routes and logs.
        const at::TensorOptions options = at::TensorOptions().device(device);
        const at::Tensor result = at::empty({0}, options).requires_grad_().view({0, 1});
        const at::Tensor gradient = at::empty({0, 1}, options);
        c10::AutogradState::get_tls_state().set_multithreading_enabled(true);  // the first call may have cleared it
        result.backward(gradient);
      }
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure != nullptr) {
    std::rethrow_exception(failure);
  }
}

}  // namespace flagos
