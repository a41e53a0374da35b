// Runs cases in forked worker processes, so that a case that crashes, hangs or ends its process costs only itself.
#pragma once

#include "survey/verdict.h"

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace flagos {

/// What the body of a case found.
struct CaseResult {
  Verdict verdict = Verdict::kError;
  std::string detail{};  // bytes, of any length; beyond 1 GiB it is cut, and says so
};

/// What came of a case, as the calling process hears of it.
struct Outcome {
  size_t case_index = 0;
  Verdict verdict = Verdict::kError;
  std::string detail{};
  std::string output{};  // everything the worker's process group wrote to stdout and stderr during the case, in order
  int signal = 0;        // that ended the worker by itself; 0: none
  double seconds = 0;    // in the body; for a crash or a hang, until the runner saw it
  int worker = 0;        // 0 to workers - 1
};

struct IsolatedRunnerOptions {
  size_t workers = 1;  // processes at a time, at least 1; no more than there are cases are forked
  std::chrono::nanoseconds case_limit = std::chrono::seconds(60);   // beyond it a case is a hang
  std::chrono::nanoseconds set_up_limit = std::chrono::minutes(5);  // beyond it the run fails
  std::chrono::nanoseconds check_every = std::chrono::milliseconds(100);
  std::function<void()> set_up{};  // at the start of each worker; may be empty
  std::function<void()> check{};   // in the caller, at least every `check_every`, to throw when it was interrupted
  std::function<pid_t()> fork{};   // like fork(2), which is taken where this is empty; may throw in the caller
};

/// Runs `body` once for each case 0 to `cases` - 1 and calls `on_outcome` once for each, in order of completion.
///
/// Where they run: `body` and `set_up` in a worker, a fork of the caller that lives from case to case until it dies;
/// `on_outcome`, `check` and `fork` in the calling thread. What workers change in memory the caller never sees.
///
/// What is charged to a case: an exception that `body` lets out (kError; std::bad_alloc is kOutOfMemory); the end of
/// its worker by a signal or by leaving (kCrash); the time limit, after which it is killed (kHang). A worker that dies
/// between two cases charges nobody, and the run goes on with a new one. What a case leaves behind in its worker, such
/// as a background thread that crashes later, is charged to the case under way then.
///
/// The workers: each leads a process group of its own, and the group is killed with it, so its children go too
/// unless they leave the group. stdin is /dev/null; no core files. A worker is killed when the thread that called
/// this function ends. It leaves by _exit, so no handler of atexit runs in it.
///
/// The caller must not hold what a fork does not carry over: a thread pool in use (OpenMP), a device, a locked mutex.
///
/// Errors: what `on_outcome`, `check` or `fork` throw comes through, after every worker was killed and reaped; the
/// cases left have no outcome. std::invalid_argument for options out of range; std::system_error when the system
/// refuses memory, a pipe or a process; std::runtime_error when `set_up` fails or hangs, or workers keep dying before
/// they finish a case. Leaves no process and no descriptor behind in any of these.
///
/// Thread safety: may be called from any thread, with the reservations of fork(2); several calls do not meet.
void run_isolated(size_t cases, const std::function<CaseResult(size_t)>& body,
                  const std::function<void(Outcome)>& on_outcome, const IsolatedRunnerOptions& options = {});

}  // namespace flagos
