// A worker: prepares its process, then body after body, each with its own output and report.
#include "survey/worker.h"

#include "survey/report.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>

namespace flagos {
namespace {

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void prepare_process(const WorkerDuty& duty) {
  if (::setpgid(0, 0) != 0) {
    throw_errno("setpgid");
  }
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    throw_errno("prctl(PR_SET_PDEATHSIG)");
  }
  if (::getppid() != duty.runner) {
    ::_exit(kCannotReport);  // the runner died before the line above: nobody is left to tell
  }
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || ::dup2(nothing, STDIN_FILENO) < 0) {
    throw_errno("stdin from /dev/null");
  }
  ::close(nothing);
  if (::dup2(duty.capture, STDOUT_FILENO) < 0 || ::dup2(duty.capture, STDERR_FILENO) < 0) {
    throw_errno("stdout and stderr into a file");
  }
  const rlimit no_core_files{0, 0};
  if (::setrlimit(RLIMIT_CORE, &no_core_files) != 0) {
    throw_errno("setrlimit(RLIMIT_CORE)");
  }
}

void enter(Slot& slot, Stage stage) {
  slot.since.store(monotonic_nanoseconds());
  slot.stage.store(stage);
}

// The runner's copy of stdio buffers was empty at the fork, so only this case's bytes come out.
std::string take_capture(int capture) {
  std::fflush(stdout);
  std::fflush(stderr);
  struct stat status{};
  if (::fstat(capture, &status) == 0 && status.st_size == 0) {
    return {};
  }
  std::string output = read_capture(capture);
  if (::ftruncate(capture, 0) != 0) {  // it is open for appending: the next byte goes to the beginning
    throw_errno("ftruncate of the captured output");
  }
  return output;
}

void cut(std::string& text) {
  if (text.size() > kLongestText) {
    const std::string note = "\n[cut: " + std::to_string(text.size()) + " bytes]";
    text.resize(kLongestText - note.size());
    text += note;
  }
}

CaseResult run_body(const WorkerDuty& duty, size_t case_index) {
  try {
    return (*duty.body)(case_index);
  } catch (const std::bad_alloc& error) {
    return {Verdict::kOutOfMemory, error.what()};
  } catch (const std::exception& error) {
    return {Verdict::kError, error.what()};
  } catch (...) {
    return {Verdict::kError, "an exception that is no std::exception"};
  }
}

void send(const WorkerDuty& duty, Report report) {
  cut(report.detail);
  if (const int error = write_report(duty.report_pipe, report); error != 0) {
    throw std::system_error(error, std::generic_category(), "writing the report of a case");
  }
}

void set_up(const WorkerDuty& duty) {
  enter(*duty.slot, Stage::kStarting);
  Report failure{.kind = ReportKind::kSetUpFailed};
  try {
    prepare_process(duty);
    if (*duty.set_up) {
      (*duty.set_up)();
    }
    take_capture(duty.capture);  // what set_up printed belongs to no case
    enter(*duty.slot, Stage::kBetween);
    return;
  } catch (const std::exception& error) {
    failure.detail = error.what();
  } catch (...) {
    failure.detail = "an exception that is no std::exception";
  }
  failure.output = take_capture(duty.capture);
  send(duty, std::move(failure));
  ::_exit(0);
}

void run_cases(const WorkerDuty& duty) {
  Slot& slot = *duty.slot;
  for (uint64_t case_index = 0; duty.board->take(duty.owner, case_index);) {
    slot.case_index.store(case_index);
    enter(slot, Stage::kRunning);
    Report report{.kind = ReportKind::kCase, .case_index = case_index};
    CaseResult result = run_body(duty, case_index);
    report.nanoseconds = monotonic_nanoseconds() - slot.since.load();
    report.verdict = result.verdict;
    report.detail = std::move(result.detail);
    report.output = take_capture(duty.capture);
    send(duty, std::move(report));
    enter(slot, Stage::kBetween);
  }
  enter(slot, Stage::kFinished);
}

}  // namespace

void work(const WorkerDuty& duty) noexcept {
  int status = 0;
  try {
    set_up(duty);
    run_cases(duty);
  } catch (const std::exception& error) {
    const std::string line = std::string("isolated runner: ") + error.what() + "\n";
    [[maybe_unused]] const ssize_t written = ::write(duty.capture, line.data(), line.size());  // the last resort
    status = kCannotReport;
  }
  ::_exit(status);
}

int64_t monotonic_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string read_capture(int captured) {
  std::string text;
  struct stat status{};
  if (::fstat(captured, &status) != 0) {
    return std::string("[the captured output cannot be read: ") + std::strerror(errno) + "]";
  }
  const auto size = static_cast<uint64_t>(status.st_size);
  const uint64_t wanted = size > kLongestText ? kLongestText - 256 : size;
  text.resize(wanted);
  uint64_t done = 0;
  while (done < wanted) {
    const ssize_t got = ::pread(captured, text.data() + done, wanted - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      break;
    }
    done += static_cast<uint64_t>(got);
  }
  text.resize(done);
  if (done < size) {
    text += "\n[cut: " + std::to_string(size) + " bytes]";
  }
  return text;
}

}  // namespace flagos
