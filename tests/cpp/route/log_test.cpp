// Tests of the log flags and of writing log lines.
#include "route/log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace flagos {
namespace {

class Log : public ::testing::Test {
 protected:
  void SetUp() override { listeners = 0; }
  void TearDown() override { listeners = 0; }
};

TEST_F(Log, WordsBecomeFlags) {
  struct Case {
    std::string words;
    uint32_t flags;
  };
  const std::vector<Case> cases = {
      {"dispatch", kLogDispatch},
      {"fallback", kLogFallback},
      {"device", kLogDevice},
      {"dispatch,fallback", kLogDispatch | kLogFallback},
      {" device ,\tdispatch,", kLogDispatch | kLogDevice},
      {"dispatch,dispatch", kLogDispatch},
      {"", 0},
      {" , ", 0},
  };
  for (const Case& c : cases) {
    set_log(c.words);
    EXPECT_EQ(listeners.load(), c.flags) << c.words;
    EXPECT_EQ(listens(kLogDispatch), (c.flags & kLogDispatch) != 0) << c.words;
    EXPECT_EQ(listens(kLogFallback), (c.flags & kLogFallback) != 0) << c.words;
    EXPECT_EQ(listens(kLogDevice), (c.flags & kLogDevice) != 0) << c.words;
    EXPECT_FALSE(listens(kKeepTime)) << c.words;
  }
}

TEST_F(Log, UnknownWordIsRefusedAndChangesNothing) {
  struct Case {
    std::string words;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"dispach", "FLAGOS_LOG: unknown word 'dispach'; did you mean 'dispatch'? (known: dispatch, fallback, device)"},
      {"device,falback",
       "FLAGOS_LOG: unknown word 'falback'; did you mean 'fallback'? (known: dispatch, fallback, device)"},
      {"everything", "FLAGOS_LOG: unknown word 'everything' (known: dispatch, fallback, device)"},
      {"Device", "FLAGOS_LOG: unknown word 'Device'; did you mean 'device'? (known: dispatch, fallback, device)"},
      {"dispatch fallback", "FLAGOS_LOG: unknown word 'dispatch fallback' (known: dispatch, fallback, device)"},
      {"1", "FLAGOS_LOG: unknown word '1' (known: dispatch, fallback, device)"},
  };
  set_log("fallback");
  set_timing(true);
  for (const Case& c : cases) {
    try {
      set_log(c.words);
      ADD_FAILURE() << "accepted: " << c.words;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), c.message);
    }
    EXPECT_EQ(listeners.load(), uint32_t{kLogFallback | kKeepTime}) << c.words;
  }
}

TEST_F(Log, TimingAndLogDoNotTouchEachOther) {
  set_timing(true);
  set_log("dispatch");
  EXPECT_EQ(listeners.load(), uint32_t{kLogDispatch | kKeepTime});
  set_log("");
  EXPECT_EQ(listeners.load(), uint32_t{kKeepTime});
  set_log("device");
  set_timing(true);
  set_timing(false);
  EXPECT_EQ(listeners.load(), uint32_t{kLogDevice});
  set_timing(false);
  EXPECT_EQ(listeners.load(), uint32_t{kLogDevice});
}

TEST_F(Log, ChangesFromTwoThreadsKeepBoth) {
  constexpr int kRounds = 200000;
  constexpr int kLooks = 50;
  std::atomic<bool> started{false};
  int lost_timing = 0;  // set_log in the other thread must not undo set_timing
  std::thread timing([&started, &lost_timing] {
    int lost = 0;
    started = true;
    for (int i = 0; i < kRounds; ++i) {
      // Looks for a while: right after the change, this core would only see its own copy.
      set_timing(true);
      for (int look = 0; look < kLooks; ++look) {
        lost += listens(kKeepTime) ? 0 : 1;
      }
      set_timing(false);
      for (int look = 0; look < kLooks; ++look) {
        lost += listens(kKeepTime) ? 1 : 0;
      }
    }
    lost_timing = lost;
  });
  while (!started.load()) {  // busy, so that the two truly overlap
  }
  int lost_log = 0;
  for (int i = 0; i < kRounds; ++i) {
    set_log("fallback");
    lost_log += listens(kLogFallback) ? 0 : 1;
    set_log("");
    lost_log += listens(kLogFallback) ? 1 : 0;
  }
  timing.join();
  EXPECT_EQ(lost_timing, 0);
  EXPECT_EQ(lost_log, 0);
  EXPECT_EQ(listeners.load(), 0U);
}

TEST_F(Log, WritesOneLineToStderr) {
  ::testing::internal::CaptureStderr();
  write_log("[flagos dispatch] add.Tensor -> host");
  write_log("");
  write_log(std::string("a\0b%s", 5));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "[flagos dispatch] add.Tensor -> host\n\n" + std::string("a\0b%s\n", 6));
}

TEST_F(Log, LinesOfManyThreadsAreNotMixed) {
  constexpr int kThreads = 8;
  constexpr int kLines = 200;
  constexpr size_t kLength = 700;
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kLines; ++i) {
        write_log(std::string(kLength, static_cast<char>('a' + t)));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const std::string written = ::testing::internal::GetCapturedStderr();
  ASSERT_EQ(written.size(), kThreads * kLines * (kLength + 1));
  for (size_t start = 0; start < written.size(); start += kLength + 1) {
    ASSERT_EQ(written.substr(start, kLength + 1), std::string(kLength, written[start]) + "\n") << "at byte " << start;
  }
}

}  // namespace
}  // namespace flagos
