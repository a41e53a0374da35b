// What an alias of an argument and the way back of a result cost, without PyTorch's dispatcher around them.
//
// Budgets (nanoseconds over the same call on the backing device): alias 70 an input, give back 90 an output. Run by
// `make bench`.
#include "accelerator/accelerator.h"
#include "backing/alias.h"
#include "device/allocator.h"
#include "device/guard.h"
#include "route/settings.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>

#include <benchmark/benchmark.h>

namespace {

at::Tensor on_flagos() {
  at::Tensor tensor = at::detail::empty_generic({4, 4}, c10::GetCPUAllocator(),
                                                c10::DispatchKeySet(c10::DispatchKey::CPU), at::kFloat, std::nullopt);
  flagos::give_back(tensor, 0);
  return tensor;
}

at::Tensor on_backing_device() {
  return at::detail::empty_generic({4, 4}, c10::GetCPUAllocator(), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                   at::kFloat, std::nullopt);
}

// An alias, made and dropped.
void alias(benchmark::State& state) {
  const at::Tensor tensor = on_flagos();
  for (auto _ : state) {
    benchmark::DoNotOptimize(flagos::make_alias(tensor));
  }
}
BENCHMARK(alias);

// What a kernel's fresh result costs anyway: subtract it from `give_back`.
void result_alone(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(on_backing_device());
  }
}
BENCHMARK(result_alone);

// A kernel's fresh result, given back and dropped.
void give_back(benchmark::State& state) {
  for (auto _ : state) {
    at::Tensor tensor = on_backing_device();
    flagos::give_back(tensor, 0);
    benchmark::DoNotOptimize(tensor);
  }
}
BENCHMARK(give_back);

// What follows an in-place kernel, on an alias that was not resized.
void sync_back(benchmark::State& state) {
  const at::Tensor tensor = on_flagos();
  const at::Tensor written = flagos::make_alias(tensor);
  for (auto _ : state) {
    flagos::sync_back(written, tensor);
  }
}
BENCHMARK(sync_back);

}  // namespace

int main(int argc, char** argv) {
  flagos::Settings settings;
  settings.accelerator = "host";
  settings.host_devices = 1;
  flagos::install_settings(settings);
  flagos::select_accelerator("host");
  flagos::register_guard();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 2;
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
