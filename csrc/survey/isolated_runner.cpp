// The calling process's side of the isolated runner: forks workers, hears their reports, and says what killed them.
#include "survey/isolated_runner.h"

#include "survey/board.h"
#include "survey/descriptor.h"
#include "survey/report.h"
#include "survey/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

namespace flagos {
namespace {

// How often deaths are looked for where the kernel has no descriptors of processes.
constexpr std::chrono::milliseconds kLookForDeaths{5};
// A case whose report is lost through no fault of its own (its worker's pipe was garbled by another) runs again; twice
// is enough to know that it is not chance.
constexpr int kAttempts = 2;

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), std::string("isolated runner: ") + what);
}

void add_flags(int descriptor, int flags) {
  const int before = ::fcntl(descriptor, F_GETFL);
  if (before < 0 || ::fcntl(descriptor, F_SETFL, before | flags) != 0) {
    throw_errno("fcntl");
  }
}

// One worker process as its runner sees it. Killed and reaped when it goes.
class WorkerProcess {
 public:
  WorkerProcess() = default;
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess() { end(); }

  bool alive() const { return pid_ > 0; }

  // Before the fork.
  void open() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw_errno("a pipe");
    }
    reports_ = Descriptor(ends[0]);
    report_end_ = Descriptor(ends[1]);
    add_flags(reports_.number(), O_NONBLOCK);
    capture_ = Descriptor(::memfd_create("flagos-case-output", MFD_CLOEXEC));
    if (!capture_) {
      throw_errno("memfd_create");
    }
    add_flags(capture_.number(), O_APPEND);  // truncating it is then enough to begin anew, for grandchildren too
  }

  // In the runner, after the fork.
  void started(pid_t pid) {
    pid_ = pid;
    report_end_.reset();
    if (::setpgid(pid, pid) != 0 && errno != EACCES && errno != ESRCH) {  // it does so too; whoever comes first
      throw_errno("setpgid");
    }
    process_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!process_ && errno != ENOSYS && errno != EPERM) {  // kernels before 5.3, and sandboxes that forbid it
      throw_errno("pidfd_open");
    }
  }

  // In another worker, after the fork: that process is no child of this one.
  void forget() {
    pid_ = 0;
    process_.reset();
    reports_.reset();
    report_end_.reset();
    capture_.reset();
  }

  int report_end() const { return report_end_.number(); }
  int capture() const { return capture_.number(); }
  int reports() const { return reports_.number(); }
  int process() const { return process_.number(); }

  // Everything in the pipe now. False at its end.
  bool read_reports() {
    std::array<char, 65536> bytes;
    for (;;) {
      const ssize_t got = ::read(reports_.number(), bytes.data(), bytes.size());
      if (got > 0) {
        reader.add({bytes.data(), static_cast<size_t>(got)});
      } else if (got == 0) {
        return false;
      } else if (errno == EAGAIN) {
        return true;
      } else if (errno != EINTR) {
        throw_errno("reading a report");
      }
    }
  }

  bool died() const {
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
      if (errno != EINTR) {
        throw_errno("waitid (is SIGCHLD ignored, or did somebody else reap a worker?)");
      }
    }
    return info.si_pid == pid_;
  }

  // Kills what is left of the group, then reaps. The order matters: the number of a process that is not reaped is not
  // given to another. Returns the status of waitpid, or nullopt when somebody else has reaped it.
  std::optional<int> end() {
    if (pid_ <= 0) {
      return std::nullopt;
    }
    const pid_t pid = std::exchange(pid_, 0);
    ::kill(-pid, SIGKILL);
    ::kill(pid, SIGKILL);  // in case it died before it had a group
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0) {
      if (errno != EINTR) {
        return std::nullopt;
      }
    }
    return status;
  }

  ReportReader reader;
  uint32_t owner = 0;        // its number on the board
  bool reports_open = true;  // no end of the pipe seen yet

 private:
  pid_t pid_ = 0;
  Descriptor process_, reports_, report_end_, capture_;
};

// Why a worker's time is over.
enum class End { kDied, kGarbled, kLate };

class Run {
 public:
  Run(size_t cases, const std::function<CaseResult(size_t)>& body, const std::function<void(Outcome)>& on_outcome,
      const IsolatedRunnerOptions& options)
      : body_(body),
        on_outcome_(on_outcome),
        options_(options),
        workers_(std::min(options.workers, cases)),
        board_(cases, workers_),
        done_(cases, false),
        attempts_(cases, 0) {
    processes_.reserve(workers_);
    for (size_t i = 0; i < workers_; ++i) {
      processes_.emplace_back(std::make_unique<WorkerProcess>());
    }
  }

  void run() {
    for (std::vector<uint64_t> left = cases_left(); !left.empty(); left = cases_left()) {
      board_.put_up(left);
      for (size_t i = 0; i < std::min(workers_, left.size()); ++i) {
        start(i);
      }
      while (any_alive()) {
        wait();
      }
    }
  }

 private:
  std::vector<uint64_t> cases_left() {
    std::vector<uint64_t> left;
    for (size_t i = 0; i < done_.size(); ++i) {
      if (done_[i]) {
        continue;
      }
      if (attempts_[i] == kAttempts) {
        settle(0, {.case_index = i,
                   .verdict = Verdict::kError,
                   .detail = "no report of this case arrived in " + std::to_string(kAttempts) + " attempts"});
        continue;
      }
      ++attempts_[i];
      left.push_back(i);
    }
    return left;
  }

  bool any_alive() const {
    return std::any_of(processes_.begin(), processes_.end(), [](const auto& process) { return process->alive(); });
  }

  void start(size_t i) {
    processes_[i] = std::make_unique<WorkerProcess>();
    WorkerProcess& process = *processes_[i];
    process.open();
    process.owner = ++started_;
    Slot& slot = board_.slot(i);
    slot.since.store(monotonic_nanoseconds());
    slot.stage.store(Stage::kStarting);
    std::fflush(stdout);  // or the worker would write what waits there once more
    std::fflush(stderr);
    const pid_t runner = ::getpid();
    const pid_t pid = options_.fork ? options_.fork() : ::fork();
    if (pid < 0) {
      throw_errno("fork");
    }
    if (pid == 0) {
      for (size_t other = 0; other < processes_.size(); ++other) {
        if (other != i) {
          processes_[other]->forget();
        }
      }
      work({.board = &board_,
            .slot = &slot,
            .owner = process.owner,
            .runner = runner,
            .report_pipe = process.report_end(),
            .capture = process.capture(),
            .body = &body_,
            .set_up = &options_.set_up});
    }
    process.started(pid);
  }

  // Sleeps until something happened, then deals with whatever did.
  void wait() {
    std::vector<pollfd> polled;
    int64_t sleep = options_.check_every.count();
    const int64_t now = monotonic_nanoseconds();
    for (size_t i = 0; i < processes_.size(); ++i) {
      const WorkerProcess& process = *processes_[i];
      if (!process.alive()) {
        continue;
      }
      if (process.reports_open) {
        polled.push_back({process.reports(), POLLIN, 0});
      }
      if (process.process() >= 0) {
        polled.push_back({process.process(), POLLIN, 0});
      } else {
        sleep = std::min<int64_t>(sleep, std::chrono::nanoseconds(kLookForDeaths).count());
      }
      sleep = std::clamp<int64_t>(deadline(i) - now, 0, sleep);
    }
    const auto milliseconds = static_cast<int>((sleep + 999'999) / 1'000'000);
    if (::poll(polled.data(), polled.size(), milliseconds) < 0 && errno != EINTR) {
      throw_errno("poll");
    }
    if (options_.check) {
      options_.check();
    }
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (processes_[i]->alive()) {
        attend(i);
      }
    }
  }

  // When the worker's stage has lasted too long. A stage without limit, and numbers that a crash left, are far away.
  int64_t deadline(size_t i) const {
    Slot& slot = board_.slot(i);
    const Stage stage = slot.stage.load();
    const int64_t since = slot.since.load();
    const int64_t limit = stage == Stage::kStarting ? options_.set_up_limit.count() : options_.case_limit.count();
    const bool limited = stage == Stage::kStarting || stage == Stage::kRunning;
    constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
    return !limited || since > kNever - limit ? kNever : since + limit;
  }

  void attend(size_t i) {
    WorkerProcess& process = *processes_[i];
    const bool dead = process.died();  // asked before reading, so that what a dead one wrote is read
    process.reports_open = process.reports_open && process.read_reports();
    take_reports(i);
    if (dead) {
      bury(i, End::kDied);
    } else if (!process.reader.garbled().empty()) {
      bury(i, End::kGarbled);
    } else {
      stop_if_late(i);
    }
  }

  void stop_if_late(size_t i) {
    WorkerProcess& process = *processes_[i];
    Slot& slot = board_.slot(i);
    const uint64_t case_index = slot.case_index.load();
    // The stage may change between the reads: only what looks the same afterwards was late.
    if (monotonic_nanoseconds() < deadline(i)) {
      return;
    }
    if (slot.stage.load() == Stage::kStarting) {
      throw std::runtime_error("isolated runner: set_up of a worker did not end in " +
                               seconds_text(options_.set_up_limit) + output_text(read_capture(process.capture())));
    }
    if (slot.stage.load() == Stage::kRunning && slot.case_index.load() == case_index &&
        monotonic_nanoseconds() >= deadline(i)) {
      bury(i, End::kLate, case_index);
    }
  }

  void take_reports(size_t i) {
    WorkerProcess& process = *processes_[i];
    while (std::optional<Report> report = process.reader.next()) {
      if (report->kind == ReportKind::kSetUpFailed) {
        throw std::runtime_error("isolated runner: set_up of a worker failed: " + report->detail +
                                 output_text(report->output));
      }
      if (report->case_index >= done_.size() || done_[report->case_index]) {
        continue;  // a frame with a number that no worker was given: rubbish with the right mark
      }
      settle(i, {.case_index = report->case_index,
                 .verdict = report->verdict,
                 .detail = std::move(report->detail),
                 .output = std::move(report->output),
                 .seconds = static_cast<double>(report->nanoseconds) * 1e-9});
    }
  }

  // Ends what is left of a worker, charges the case that was under way, and starts another worker where cases are left.
  void bury(size_t i, End end, uint64_t late_case = 0) {
    WorkerProcess& process = *processes_[i];
    const std::optional<int> status = process.end();
    // A report that was finished in the last moment counts.
    process.reports_open = process.reports_open && process.read_reports();
    take_reports(i);
    Slot& slot = board_.slot(i);
    const Stage stage = slot.stage.load();
    const uint64_t case_index = slot.case_index.load();
    const bool under_way = stage == Stage::kRunning && case_index < done_.size() && !done_[case_index];
    const size_t settled_before = settled_;
    if (!process.reader.garbled().empty() || (stage != Stage::kRunning && process.reader.inside_frame())) {
      charge_garbled(i);
    } else if (under_way && end == End::kLate) {
      if (case_index == late_case) {
        charge(i, case_index, Verdict::kHang, 0, "no result after " + seconds_text(options_.case_limit) + "; killed");
      }  // else it began in the last moment, and runs again
    } else if (under_way) {
      charge_death(i, case_index, status);
    }
    if (settled_ == settled_before && end == End::kDied && stage != Stage::kFinished) {
      died_for_nothing(process, status);
    }
    if (!board_.exhausted()) {
      start(i);
    }
  }

  void charge(size_t i, uint64_t case_index, Verdict verdict, int signal, std::string detail) {
    const int64_t nanoseconds = monotonic_nanoseconds() - board_.slot(i).since.load();
    settle(i, {.case_index = case_index,
               .verdict = verdict,
               .detail = std::move(detail),
               .output = read_capture(processes_[i]->capture()),
               .signal = signal,
               .seconds = static_cast<double>(std::max<int64_t>(nanoseconds, 0)) * 1e-9});
  }

  void charge_death(size_t i, uint64_t case_index, std::optional<int> status) {
    const int signal = status && WIFSIGNALED(*status) ? WTERMSIG(*status) : 0;
    charge(i, case_index, Verdict::kCrash, signal, status_text(status));
  }

  // The first case after the last whole report is what wrote into the pipe. Those after it run again.
  void charge_garbled(size_t i) {
    const WorkerProcess& process = *processes_[i];
    const std::string what = process.reader.garbled().empty() ? "it is incomplete" : process.reader.garbled();
    for (size_t case_index = 0; case_index < done_.size(); ++case_index) {
      if (!done_[case_index] && board_.owner(case_index) == process.owner) {
        charge(i, case_index, Verdict::kError, 0, "the worker's report is garbled: " + what);
        return;
      }
    }
  }

  // Nobody is to blame for a worker that dies between cases, but it must not go on like that.
  void died_for_nothing(const WorkerProcess& process, std::optional<int> status) {
    if (++deaths_for_nothing_ > static_cast<int>(workers_) + 2) {
      throw std::runtime_error("isolated runner: " + std::to_string(deaths_for_nothing_) +
                               " workers in a row died outside of a case; the last one: " + status_text(status) +
                               output_text(read_capture(process.capture())));
    }
  }

  void settle(size_t i, Outcome outcome) {
    done_[outcome.case_index] = true;
    ++settled_;
    deaths_for_nothing_ = 0;
    outcome.worker = static_cast<int>(i);
    on_outcome_(std::move(outcome));
  }

  static std::string status_text(std::optional<int> status) {
    if (!status) {
      return "the worker is gone, and somebody else has taken its exit status";
    }
    if (WIFSIGNALED(*status)) {
      const int signal = WTERMSIG(*status);
      return "signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
    }
    return "exit status " + std::to_string(WEXITSTATUS(*status));
  }

  static std::string seconds_text(std::chrono::nanoseconds limit) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%g s", std::chrono::duration<double>(limit).count());
    return text.data();
  }

  static std::string output_text(const std::string& output) {
    return output.empty() ? std::string() : "\n--- output of the worker\n" + output;
  }

  const std::function<CaseResult(size_t)>& body_;
  const std::function<void(Outcome)>& on_outcome_;
  const IsolatedRunnerOptions& options_;
  size_t workers_;
  mutable Board board_;
  std::vector<bool> done_;
  std::vector<uint8_t> attempts_;
  std::vector<std::unique_ptr<WorkerProcess>> processes_;  // one a slot; declared last: workers go before the board
  size_t settled_ = 0;
  uint32_t started_ = 0;
  int deaths_for_nothing_ = 0;
};

}  // namespace

void run_isolated(size_t cases, const std::function<CaseResult(size_t)>& body,
                  const std::function<void(Outcome)>& on_outcome, const IsolatedRunnerOptions& options) {
  if (options.workers < 1) {
    throw std::invalid_argument("isolated runner: workers must be 1 or more");
  }
  if (options.case_limit.count() <= 0 || options.set_up_limit.count() <= 0 || options.check_every.count() <= 0) {
    throw std::invalid_argument("isolated runner: a time limit must be more than 0");
  }
  if (!body || !on_outcome) {
    throw std::invalid_argument("isolated runner: body and on_outcome must be callable");
  }
  if (cases > 0) {
    Run(cases, body, on_outcome, options).run();
  }
}

}  // namespace flagos
