// Tests of the isolated runner: each way in which a case can end, and what the calling process is left with.
#include "survey/isolated_runner.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace flagos {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Body = std::function<CaseResult(size_t)>;

size_t open_descriptors() {
  const std::filesystem::directory_iterator folder("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(folder), end(folder)));
}

bool has_children() {
  return ::waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD;
}

/// Outcomes by case index; fails the test when one comes twice, or when a process or a descriptor is left.
std::map<size_t, Outcome> run(size_t cases, const Body& body, const IsolatedRunnerOptions& options = {}) {
  std::map<size_t, Outcome> outcomes;
  const size_t descriptors = open_descriptors();
  run_isolated(
      cases, body,
      [&](Outcome outcome) {
        const size_t index = outcome.case_index;
        EXPECT_TRUE(outcomes.emplace(index, std::move(outcome)).second) << "case " << index << " came twice";
      },
      options);
  EXPECT_EQ(outcomes.size(), cases);
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_FALSE(has_children());
  return outcomes;
}

CaseResult pass(size_t) {
  return {Verdict::kPass, ""};
}

/// A counter or flag that workers and the test share.
template <class Value>
class Shared {
 public:
  Shared() {
    void* memory =
        ::mmap(nullptr, sizeof(std::atomic<Value>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw std::system_error(errno, std::generic_category(), "mmap");
    }
    value_ = new (memory) std::atomic<Value>{};
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { ::munmap(value_, sizeof(std::atomic<Value>)); }
  std::atomic<Value>& operator*() const { return *value_; }
  std::atomic<Value>* operator->() const { return value_; }

 private:
  std::atomic<Value>* value_;
};

// A page that nobody may touch faults under every sanitizer too, once their own handler is gone.
void segfault() {
  std::signal(SIGSEGV, SIG_DFL);
  auto* page = static_cast<volatile int*>(::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  *page = 1;
}

[[noreturn]] void sleep_for_ever() {
  for (;;) {
    ::pause();
  }
}

struct Ending {
  std::string name;
  std::function<CaseResult()> body;
  Verdict verdict;
  std::string detail;  // must be in the detail
  int signal;
};

const std::vector<Ending>& endings() {
  static const std::vector<Ending> all = {
      {"pass", [] { return CaseResult{Verdict::kPass, "fine"}; }, Verdict::kPass, "fine", 0},
      {"wrong", [] { return CaseResult{Verdict::kWrong, "3 != 4"}; }, Verdict::kWrong, "3 != 4", 0},
      {"nul", [] { return CaseResult{Verdict::kPass, std::string("a\0b", 3)}; }, Verdict::kPass, std::string("a\0b", 3),
       0},
      {"throw", []() -> CaseResult { throw std::runtime_error("no kernel"); }, Verdict::kError, "no kernel", 0},
      {"throw_int", []() -> CaseResult { throw 7; }, Verdict::kError, "no std::exception", 0},
      {"bad_alloc", []() -> CaseResult { throw std::bad_alloc(); }, Verdict::kOutOfMemory, "", 0},
      {"segfault",
       []() -> CaseResult {
         segfault();
         return {};
       },
       Verdict::kCrash, "signal 11", SIGSEGV},
      {"abort",
       []() -> CaseResult {
         std::signal(SIGABRT, SIG_DFL);
         std::abort();
       },
       Verdict::kCrash, "signal 6", SIGABRT},
      {"exit_zero", []() -> CaseResult { ::_exit(0); }, Verdict::kCrash, "exit status 0", 0},
      {"exit_three", []() -> CaseResult { ::_exit(3); }, Verdict::kCrash, "exit status 3", 0},
      {"killed",
       []() -> CaseResult {
         ::kill(::getpid(), SIGKILL);
         return {};
       },
       Verdict::kCrash, "signal 9", SIGKILL},
      {"hang", []() -> CaseResult { sleep_for_ever(); }, Verdict::kHang, "no result after 0.3 s", 0},
      {"stop",
       []() -> CaseResult {
         ::raise(SIGSTOP);
         return {Verdict::kPass, ""};
       },
       Verdict::kHang, "killed", 0},
  };
  return all;
}

TEST(RunIsolated, ChargesEachEndToItsCaseAlone) {
  for (const size_t workers : {1, 3}) {
    // Between two cases that end somehow stands one that passes.
    const auto outcomes =
        run(2 * endings().size(),
            [](size_t i) {
              std::cout << "out of " << i << std::endl;
              std::fprintf(stderr, "err of %zu\n", i);
              return i % 2 == 0 ? endings()[i / 2].body() : CaseResult{Verdict::kPass, std::to_string(i)};
            },
            {.workers = workers, .case_limit = milliseconds(300)});
    for (const auto& [i, outcome] : outcomes) {
      const Ending expected =
          i % 2 == 0 ? endings()[i / 2] : Ending{"between", {}, Verdict::kPass, std::to_string(i), 0};
      SCOPED_TRACE(expected.name + ", " + std::to_string(workers) + " workers");
      EXPECT_EQ(verdict_name(outcome.verdict), verdict_name(expected.verdict));
      EXPECT_NE(outcome.detail.find(expected.detail), std::string::npos) << outcome.detail;
      EXPECT_EQ(outcome.signal, expected.signal);
      EXPECT_EQ(outcome.output, "out of " + std::to_string(i) + "\nerr of " + std::to_string(i) + "\n");
      EXPECT_LT(outcome.worker, static_cast<int>(workers));
      EXPECT_GE(outcome.seconds, expected.verdict == Verdict::kHang ? 0.3 : 0.0);
    }
  }
}

TEST(RunIsolated, RunsEachOfManyCasesOnce) {
  constexpr size_t kCases = 5000;
  const Shared<uint64_t> runs;
  std::set<int> workers;
  const auto outcomes = run(kCases,
                            [&](size_t i) {
                              ++*runs;
                              if (i % 500 == 499) {
                                ::_exit(1);
                              }
                              return CaseResult{Verdict::kPass, std::to_string(i)};
                            },
                            {.workers = 4});
  EXPECT_EQ(runs->load(), kCases);
  for (const auto& [i, outcome] : outcomes) {
    EXPECT_EQ(outcome.verdict, i % 500 == 499 ? Verdict::kCrash : Verdict::kPass);
    EXPECT_EQ(outcome.detail, i % 500 == 499 ? "exit status 1" : std::to_string(i));
    EXPECT_EQ(outcome.output, "");
  }
}

TEST(RunIsolated, AWorkerLivesFromCaseToCase) {
  const Shared<int> set_ups;
  const auto outcomes = run(6,
                            [](size_t i) -> CaseResult {
                              if (i == 2) {
                                ::_exit(1);
                              }
                              return {Verdict::kPass, std::to_string(::getpid())};
                            },
                            {.set_up = [&] { ++*set_ups; }});
  EXPECT_EQ(set_ups->load(), 2);
  EXPECT_EQ(outcomes.at(0).detail, outcomes.at(1).detail);
  EXPECT_EQ(outcomes.at(3).detail, outcomes.at(5).detail);
  EXPECT_NE(outcomes.at(0).detail, outcomes.at(3).detail);
}

TEST(RunIsolated, CarriesLargeTexts) {
  constexpr size_t kBytes = 9'000'001;
  const auto outcomes = run(3,
                            [](size_t i) -> CaseResult {
                              std::cerr << std::string(kBytes + i, static_cast<char>('a' + i)) << std::flush;
                              if (i == 1) {
                                std::signal(SIGABRT, SIG_DFL);
                                std::abort();
                              }
                              return {Verdict::kWrong, std::string(kBytes - i, static_cast<char>('A' + i))};
                            },
                            {.workers = 2});
  for (const size_t i : {0, 1, 2}) {
    EXPECT_EQ(outcomes.at(i).output, std::string(kBytes + i, static_cast<char>('a' + i)));
    if (i != 1) {
      EXPECT_EQ(outcomes.at(i).detail, std::string(kBytes - i, static_cast<char>('A' + i)));
    }
  }
}

TEST(RunIsolated, BlamesNobodyForAWorkerThatDiesOutsideOfACase) {
  const Shared<int> set_ups;
  const auto outcomes = run(3, pass, {.set_up = [&] {
                              if (++*set_ups <= 2) {
                                ::_exit(1);
                              }
                            }});
  EXPECT_EQ(set_ups->load(), 3);
  for (const auto& [i, outcome] : outcomes) {
    EXPECT_EQ(outcome.verdict, Verdict::kPass) << i;
  }
}

TEST(RunIsolated, GoesOnWhileWorkersThatDieOutsideOfCasesAlternateWithOutcomes) {
  const Shared<int> set_ups;
  const auto outcomes = run(12, [](size_t) -> CaseResult { ::_exit(1); }, {.set_up = [&] {
                              if (++*set_ups % 2 == 1) {
                                ::_exit(1);
                              }
                            }});
  EXPECT_EQ(set_ups->load(), 24);
}

/// State letter of a process as /proc has it; '-' for none. A zombie counts as none: its new parent will reap it.
char process_state(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  const char state = name_end == std::string::npos ? '-' : line.at(name_end + 2);
  return state == 'Z' || state == 'X' ? '-' : state;
}

/// Waits until the process is in that state; gives up after ten seconds.
bool reaches_state(pid_t pid, char state) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    if (process_state(pid) == state) {
      return true;
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

TEST(RunIsolated, BlamesTheCaseUnderWayWhenItsWorkerIsKilledFromOutside) {
  const Shared<pid_t> begun;
  std::map<size_t, Outcome> outcomes;
  run_isolated(
      3,
      [&](size_t i) -> CaseResult {
        if (i == 1) {
          *begun = ::getpid();
          sleep_for_ever();
        }
        return pass(i);
      },
      [&](const Outcome& outcome) {
        outcomes[outcome.case_index] = outcome;
        if (outcome.case_index == 0) {
          while (begun->load() == 0) {
          }
          ::kill(*begun, SIGTERM);
        }
      });
  EXPECT_EQ(outcomes.size(), 3U);
  EXPECT_EQ(outcomes.at(0).verdict, Verdict::kPass);
  EXPECT_EQ(outcomes.at(1).verdict, Verdict::kCrash);
  EXPECT_EQ(outcomes.at(1).signal, SIGTERM);
  EXPECT_EQ(outcomes.at(2).verdict, Verdict::kPass);
}

TEST(RunIsolated, BlamesTheCaseWhoseWorkerDiesInTheMiddleOfItsReport) {
  const Shared<pid_t> writer;
  const Shared<bool> go;
  std::map<size_t, Outcome> outcomes;
  run_isolated(
      3,
      [&](size_t i) -> CaseResult {
        if (i == 0) {
          *writer = ::getpid();
          while (!go->load()) {  // without sleeping: the first sleep is that of a full pipe
          }
          return {Verdict::kPass, std::string(9'000'000, 'x')};
        }
        while (writer->load() == 0) {
        }
        return pass(i);
      },
      [&](const Outcome& outcome) {
        outcomes[outcome.case_index] = outcome;
        if (!go->load()) {  // nobody reads the pipe before this returns
          *go = true;
          EXPECT_TRUE(reaches_state(*writer, 'S'));
          ::kill(*writer, SIGKILL);
        }
      },
      {.workers = 2});
  EXPECT_EQ(outcomes.size(), 3U);
  EXPECT_EQ(outcomes.at(0).verdict, Verdict::kCrash);
  EXPECT_EQ(outcomes.at(0).signal, SIGKILL);
  EXPECT_EQ(outcomes.at(1).verdict, Verdict::kPass);
  EXPECT_EQ(outcomes.at(2).verdict, Verdict::kPass);
}

TEST(RunIsolated, KillsTheChildrenOfAWorker) {
  const Shared<pid_t> grandchild;
  const auto outcomes = run(2, [&](size_t i) -> CaseResult {
    if (i == 1) {
      return pass(i);
    }
    const pid_t child = ::fork();
    if (child == 0) {
      sleep_for_ever();
    }
    *grandchild = child;
    ::_exit(5);
  });
  EXPECT_EQ(outcomes.at(0).detail, "exit status 5");
  EXPECT_TRUE(reaches_state(*grandchild, '-'));
}

TEST(RunIsolated, WorkersDieWithTheirRunner) {
  const Shared<pid_t> worker;
  const pid_t runner = ::fork();
  if (runner == 0) {
    run_isolated(
        1,
        [&](size_t) -> CaseResult {
          *worker = ::getpid();
          sleep_for_ever();
        },
        [](const Outcome&) {});
    ::_exit(0);
  }
  while (worker->load() == 0) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_NE(process_state(*worker), '-');
  ::kill(runner, SIGKILL);
  ::waitpid(runner, nullptr, 0);
  EXPECT_TRUE(reaches_state(*worker, '-'));
}

TEST(RunIsolated, BlamesTheCaseThatWritesIntoTheReports) {
  // Whoever writes into every descriptor hits the pipe among them.
  const auto outcomes = run(4, [](size_t i) -> CaseResult {
    if (i == 1) {
      const std::string rubbish(100, '?');
      for (int descriptor = 3; descriptor < 64; ++descriptor) {
        [[maybe_unused]] const ssize_t written = ::write(descriptor, rubbish.data(), rubbish.size());
      }
    }
    return {Verdict::kPass, ""};
  });
  for (const size_t i : {0, 2, 3}) {
    EXPECT_EQ(outcomes.at(i).verdict, Verdict::kPass) << i;
  }
  EXPECT_EQ(outcomes.at(1).verdict, Verdict::kError);
  EXPECT_NE(outcomes.at(1).detail.find("garbled"), std::string::npos) << outcomes.at(1).detail;
}

TEST(RunIsolated, BlamesNoCaseOfAnotherWorkerForARubbishReport) {
  const Shared<bool> heard;
  std::map<size_t, Outcome> outcomes;
  run_isolated(
      2,
      [&](size_t i) -> CaseResult {
        if (i == 1) {
          const std::string rubbish(100, '?');
          for (int descriptor = 3; descriptor < 64; ++descriptor) {
            [[maybe_unused]] const ssize_t written = ::write(descriptor, rubbish.data(), rubbish.size());
          }
        }
        while (i == 0 && !heard->load()) {
        }
        return pass(i);
      },
      [&](const Outcome& outcome) {
        outcomes[outcome.case_index] = outcome;
        *heard = true;
      },
      {.workers = 2});
  EXPECT_EQ(outcomes.at(0).verdict, Verdict::kPass);
  EXPECT_EQ(outcomes.at(1).verdict, Verdict::kError);
}

TEST(RunIsolated, BlamesTheCaseThatClosesTheReports) {
  const auto outcomes = run(3, [](size_t i) -> CaseResult {
    if (i == 1) {
      for (int descriptor = 3; descriptor < 64; ++descriptor) {
        ::close(descriptor);
      }
    }
    return {Verdict::kPass, ""};
  });
  EXPECT_EQ(outcomes.at(0).verdict, Verdict::kPass);
  EXPECT_EQ(outcomes.at(1).verdict, Verdict::kCrash);
  EXPECT_EQ(outcomes.at(2).verdict, Verdict::kPass);
}

/// Runs, expects an exception, and returns its text; nothing may be left behind.
template <class Error>
std::string failure(size_t cases, const Body& body, const std::function<void(Outcome)>& on_outcome,
                    const IsolatedRunnerOptions& options) {
  const size_t descriptors = open_descriptors();
  std::string text;
  EXPECT_THROW(
      {
        try {
          run_isolated(cases, body, on_outcome, options);
        } catch (const std::exception& error) {
          text = error.what();
          throw;
        }
      },
      Error);
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_FALSE(has_children());
  return text;
}

TEST(RunIsolated, LetsExceptionsOfTheCallerThroughAndKillsTheWorkers) {
  const Body sleepy = [](size_t i) -> CaseResult {
    if (i > 0) {
      sleep_for_ever();
    }
    return pass(i);
  };
  EXPECT_EQ(failure<std::domain_error>(50, sleepy, [](const Outcome&) { throw std::domain_error("stop here"); },
                                       {.workers = 3}),
            "stop here");
  EXPECT_EQ(failure<std::domain_error>(50, sleepy, [](const Outcome&) {},
                                       {.workers = 2,
                                        .check_every = milliseconds(20),
                                        .check =
                                            [checks = 0]() mutable {
                                              if (++checks == 5) {
                                                throw std::domain_error("interrupted");
                                              }
                                            }}),
            "interrupted");
}

TEST(RunIsolated, TellsWhyASetUpFailed) {
  const auto ignore = [](const Outcome&) {};
  testing::internal::CaptureStdout();
  std::printf("of the caller");  // and not yet written when the worker is forked
  const std::string thrown = failure<std::runtime_error>(3, pass, ignore, {.set_up = [] {
                                                           std::cerr << "looking for it\n";
                                                           throw std::runtime_error("no such library");
                                                         }});
  EXPECT_NE(thrown.find("no such library"), std::string::npos) << thrown;
  EXPECT_NE(thrown.find("looking for it"), std::string::npos) << thrown;
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "of the caller");
  EXPECT_EQ(thrown.find("of the caller"), std::string::npos) << thrown;
  const std::string died = failure<std::runtime_error>(3, pass, ignore, {.set_up = [] {
                                                         std::cerr << "bye\n";
                                                         ::_exit(9);
                                                       }});
  EXPECT_NE(died.find("workers in a row died outside of a case; the last one: exit status 9"), std::string::npos)
      << died;
  EXPECT_NE(died.find("bye"), std::string::npos) << died;
  const std::string hung = failure<std::runtime_error>(
      3, pass, ignore, {.set_up_limit = milliseconds(200), .set_up = [] { sleep_for_ever(); }});
  EXPECT_NE(hung.find("did not end in 0.2 s"), std::string::npos) << hung;
}

TEST(RunIsolated, TellsWhyNothingCanBeForked) {
  const auto ignore = [](const Outcome&) {};
  const std::string refused = failure<std::system_error>(3, pass, ignore, {.fork = [] {
                                                           errno = EAGAIN;
                                                           return pid_t{-1};
                                                         }});
  EXPECT_NE(refused.find("fork"), std::string::npos) << refused;
  EXPECT_EQ(failure<std::logic_error>(3, pass, ignore,
                                      {.workers = 2,
                                       .fork = [forks = 0]() mutable -> pid_t {
                                         return ++forks == 2 ? throw std::logic_error("not again") : ::fork();
                                       }}),
            "not again");
}

TEST(RunIsolated, RefusesOptionsOutOfRange) {
  const auto ignore = [](const Outcome&) {};
  failure<std::invalid_argument>(1, pass, ignore, {.workers = 0});
  failure<std::invalid_argument>(1, pass, ignore, {.case_limit = seconds(0)});
  failure<std::invalid_argument>(1, pass, {}, {});
  failure<std::invalid_argument>(1, {}, ignore, {});
}

TEST(RunIsolated, NoCasesAreNoWork) {
  run(0, pass, {.workers = 4, .fork = []() -> pid_t { throw std::logic_error("forked for nothing"); }});
}

TEST(RunIsolated, WritesNothingOfTheCallerTwice) {
  std::fflush(stdout);
  testing::internal::CaptureStdout();
  std::printf("once");
  const auto outcomes = run(2, [](size_t i) -> CaseResult {
    std::printf("case");
    return pass(i);
  });
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "once");
  EXPECT_EQ(outcomes.at(0).output, "case");
  EXPECT_EQ(outcomes.at(1).output, "case");
}

}  // namespace
}  // namespace flagos
