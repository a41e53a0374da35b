// The worker's side of the isolated runner: what a freshly forked process does until it leaves.
#pragma once

#include "survey/board.h"
#include "survey/isolated_runner.h"

#include <sys/types.h>

#include <chrono>
#include <cstdint>

namespace flagos {

/// What a worker gets from its runner. The descriptors are the runner's; they are open in the worker.
struct WorkerDuty {
  Board* board;
  Slot* slot;
  uint32_t owner;   // number of this process, from 1
  pid_t runner;     // its parent
  int report_pipe;  // where reports go
  int capture;      // file that takes stdout and stderr
  const std::function<CaseResult(size_t)>* body;
  const std::function<void()>* set_up;
};

/// Status with which a worker leaves when it cannot report; its reason is in the captured output.
inline constexpr int kCannotReport = 120;

/// Takes cases until none is left, then leaves by _exit. Never returns and lets no exception out.
[[noreturn]] void work(const WorkerDuty& duty) noexcept;

/// CLOCK_MONOTONIC in nanoseconds, the same clock in every process.
int64_t monotonic_nanoseconds();

/// Everything in the captured output, from its beginning; cut beyond kLongestText, and says so. `captured` stays as it
/// is. On an error of the system what was read so far, with the error as its last line.
std::string read_capture(int captured);

}  // namespace flagos
