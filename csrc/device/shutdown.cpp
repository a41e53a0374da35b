// Waiting for the backward threads.
#include "device/shutdown.h"

#include "accelerator/accelerator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <exception>
#include <thread>

namespace flagos {

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
        at::empty({0}, options).requires_grad_().view({0, 1}).backward(at::empty({0, 1}, options));
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
