// Tests of the call counters: exact under threads, readable while they run, and after threads have ended.
#include "route/counters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace flagos {
namespace {

constexpr int kThreads = 8;

CallKey key_of(uint32_t overload, uint64_t dtypes = 0) {
  return {overload, Backend::kHost, Reason::kRouted, dtypes};
}

/// The totals of one key; zeros if it has no row. Fails if it has two.
CallTotals totals(const CallKey& key) {
  CallTotals found;
  int rows = 0;
  for (const CallTotals& row : read_counters()) {
    if (row.key == key) {
      found = row;
      ++rows;
    }
  }
  EXPECT_LE(rows, 1);
  return found;
}

/// Runs `body(0)` to `body(count - 1)` in threads of their own, none before all have started.
void run_threads(int count, const std::function<void(int)>& body) {
  std::atomic<int> started{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      started.fetch_add(1);
      while (started.load() < count) {
        std::this_thread::yield();
      }
      body(t);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

class Counters : public ::testing::Test {
 protected:
  void SetUp() override { reset_counters(); }
};

TEST_F(Counters, NothingCountedReadsAsNothing) {
  EXPECT_TRUE(read_counters().empty());
}

TEST_F(Counters, AddsCallsBytesAndTime) {
  count_call(key_of(1));
  count_call(key_of(1), 10, 20, 30);
  count_call(key_of(1), 1, 0, 0);
  count_call(key_of(1), 0, 2, 0);
  count_call(key_of(1), 0, 0, 3);
  const CallTotals row = totals(key_of(1));
  EXPECT_EQ(row.calls, 5U);
  EXPECT_EQ(row.bytes_to_host, 11U);
  EXPECT_EQ(row.bytes_from_host, 22U);
  EXPECT_EQ(row.nanoseconds, 33U);
  EXPECT_EQ(read_counters().size(), 1U);
}

TEST_F(Counters, SumsAreOfSixtyFourBits) {
  const uint64_t large = uint64_t{3} << 61;
  count_call(key_of(1), large, 0, 0);
  count_call(key_of(1), 5, 0, 0);
  EXPECT_EQ(totals(key_of(1)).bytes_to_host, large + 5);
}

TEST_F(Counters, EveryPartOfTheKeyCounts) {
  const std::vector<CallKey> keys = {
      {7, Backend::kHost, Reason::kRouted, 0},
      {8, Backend::kHost, Reason::kRouted, 0},
      {7, Backend::kNone, Reason::kRouted, 0},
      {7, Backend::kHost, Reason::kRoundTrip, 0},
      {7, Backend::kHost, Reason::kRouted, 1},
      {7, Backend::kHost, Reason::kRouted, uint64_t{1} << 63},
      // Numbers that are equal modulo a page, modulo all pages, and the largest.
      {7 + 256, Backend::kHost, Reason::kRouted, 0},
      {7 + 256 * 256, Backend::kHost, Reason::kRouted, 0},
      {std::numeric_limits<uint32_t>::max(), Backend::kHost, Reason::kRouted, 0},
  };
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t n = 0; n <= i; ++n) {
      count_call(keys[i]);
    }
  }
  EXPECT_EQ(read_counters().size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(totals(keys[i]).calls, i + 1) << i;
  }
}

TEST_F(Counters, ResetStartsAgainAndLeavesOutWhatIsZero) {
  count_call(key_of(1), 5, 6, 7);
  count_call(key_of(2));
  reset_counters();
  EXPECT_TRUE(read_counters().empty());
  count_call(key_of(1), 1, 0, 0);
  const std::vector<CallTotals> rows = read_counters();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].key, key_of(1));
  EXPECT_EQ(rows[0].calls, 1U);
  EXPECT_EQ(rows[0].bytes_to_host, 1U);
  EXPECT_EQ(rows[0].bytes_from_host, 0U);
  EXPECT_EQ(rows[0].nanoseconds, 0U);
  reset_counters();
  reset_counters();
  EXPECT_TRUE(read_counters().empty());
}

TEST_F(Counters, ReadingChangesNothing) {
  count_call(key_of(1));
  EXPECT_EQ(totals(key_of(1)).calls, 1U);
  EXPECT_EQ(totals(key_of(1)).calls, 1U);
}

TEST_F(Counters, ReasonsHaveDistinctTexts) {
  const std::map<Reason, std::string> expected = {
      {Reason::kRouted, "routed"},        {Reason::kDecomposition, "decomposition"},
      {Reason::kRoundTrip, "round trip"}, {Reason::kHostFill, "host_fill"},
      {Reason::kDevice, "device"},
  };
  for (const auto& [reason, text] : expected) {
    EXPECT_EQ(reason_text(reason), text);
  }
}

TEST_F(Counters, ExactUnderThreadsWithAReader) {
  constexpr uint64_t kCalls = 300000;
  for (int round = 0; round < 3; ++round) {  // later rounds run in the shards that threads of the earlier ones left
    reset_counters();
    std::atomic<bool> done{false};
    std::thread reader([&done] {
      uint64_t last = 0;
      while (!done.load()) {
        const CallTotals row = totals(key_of(1));
        EXPECT_GE(row.calls, last);
        EXPECT_LE(row.calls, kThreads * kCalls);
        EXPECT_LE(row.bytes_from_host, 2 * kThreads * kCalls);
        last = row.calls;
      }
    });
    run_threads(kThreads, [](int t) {
      for (uint64_t i = 0; i < kCalls; ++i) {
        count_call(key_of(1), 1, 2, 3);
        count_call(key_of(100 + static_cast<uint32_t>(t)));              // a key of one thread
        count_call(key_of(2, i % 50));                                   // lists grow while they are read
        count_call(key_of(static_cast<uint32_t>(i % 40) * 256 + 1000));  // and pages
      }
    });
    done = true;
    reader.join();
    const CallTotals row = totals(key_of(1));
    EXPECT_EQ(row.calls, kThreads * kCalls) << round;
    EXPECT_EQ(row.bytes_to_host, kThreads * kCalls) << round;
    EXPECT_EQ(row.bytes_from_host, 2 * kThreads * kCalls) << round;
    EXPECT_EQ(row.nanoseconds, 3 * kThreads * kCalls) << round;
    for (uint32_t t = 0; t < kThreads; ++t) {
      EXPECT_EQ(totals(key_of(100 + t)).calls, kCalls) << round;
    }
    for (uint64_t i = 0; i < 50; ++i) {
      EXPECT_EQ(totals(key_of(2, i)).calls, kThreads * kCalls / 50) << round;
    }
    for (uint32_t i = 0; i < 40; ++i) {
      EXPECT_EQ(totals(key_of(i * 256 + 1000)).calls, kThreads * kCalls / 40) << round;
    }
  }
}

// A call that had ended before the last reset is on its far side, one that began after it is on this side, and one that
// ran meanwhile is on either: what is read at the end has exactly these bounds.
TEST_F(Counters, ConcurrentResetsLoseNoCallAndCountNoneTwice) {
  constexpr uint64_t kCalls = 200000;
  struct alignas(64) Progress {
    std::atomic<uint64_t> begun{0};
    std::atomic<uint64_t> ended{0};
  };
  std::array<Progress, kThreads> progress;
  std::array<uint64_t, kThreads> ended_before{};
  std::array<uint64_t, kThreads> begun_after{};
  std::atomic<int> running{kThreads};
  std::thread resetter([&] {
    int resets = 0;
    // Stops while threads still count, where there is time for that: a last reset after them would show nothing.
    do {
      for (size_t t = 0; t < kThreads; ++t) {
        ended_before[t] = progress[t].ended.load();
      }
      reset_counters();
      for (size_t t = 0; t < kThreads; ++t) {
        begun_after[t] = progress[t].begun.fetch_add(0);
      }
      for (const CallTotals& row : read_counters()) {
        EXPECT_LE(row.calls, kThreads * kCalls);  // a difference below zero would wrap to a number far above
      }
      ++resets;
    } while (running.load() == kThreads && (resets < 200 || progress[0].ended.load() < kCalls / 2));
  });
  run_threads(kThreads, [&](int t) {
    Progress& mine = progress[static_cast<size_t>(t)];
    for (uint64_t i = 0; i < kCalls; ++i) {
      mine.begun.fetch_add(1);
      count_call(key_of(static_cast<uint32_t>(t)));
      count_call(key_of(500));
      mine.ended.fetch_add(1);
    }
    running.fetch_sub(1);
  });
  resetter.join();
  uint64_t at_least = 0;
  uint64_t at_most = 0;
  for (size_t t = 0; t < kThreads; ++t) {
    const uint64_t calls = totals(key_of(static_cast<uint32_t>(t))).calls;
    EXPECT_GE(calls, kCalls - begun_after[t]) << t;
    EXPECT_LE(calls, kCalls - ended_before[t]) << t;
    at_least += kCalls - begun_after[t];
    at_most += kCalls - ended_before[t];
  }
  EXPECT_GE(totals(key_of(500)).calls, at_least);
  EXPECT_LE(totals(key_of(500)).calls, at_most);
}

TEST_F(Counters, ThreadsThatEndedStillCount) {
  for (int round = 0; round < 50; ++round) {
    run_threads(4, [](int) { count_call(key_of(1), 1, 1, 1); });
  }
  EXPECT_EQ(totals(key_of(1)).calls, 200U);
  reset_counters();
  run_threads(1, [](int) { count_call(key_of(1)); });  // in a shard that another thread left
  EXPECT_EQ(totals(key_of(1)).calls, 1U);
}

TEST_F(Counters, ThreadsMayCountNothing) {
  run_threads(kThreads, [](int) {});
  EXPECT_TRUE(read_counters().empty());
}

constexpr int kLateRounds = 100;
constexpr int kLateCalls = 10000;  // a round

// Counts while its thread's thread-local objects are destroyed, beside a thread that was started then.
struct LateCounter {
  LateCounter() = default;
  LateCounter(const LateCounter&) = delete;
  LateCounter& operator=(const LateCounter&) = delete;
  ~LateCounter() {
    std::atomic<int> arrived{0};
    const auto count = [&arrived] {
      for (int round = 1; round <= kLateRounds; ++round) {
        count_call(key_of(2));
        arrived.fetch_add(1);
        while (arrived.load() <
               2 * round) {  // busy, so that the system gives each thread a core and they truly overlap
        }
        for (int i = 0; i < kLateCalls; ++i) {
          count_call(key_of(1));
        }
      }
    };
    std::thread other(count);
    count();
    other.join();
  }
};

// What the action of the test below has counted; of the thread that runs it.
thread_local int first_calls = 0;

TEST_F(Counters, TheFirstCallOfAThreadRunsTheActionOnce) {
  count_call(key_of(1));  // this thread's first call may have been earlier
  on_first_call_of_thread([] { ++first_calls; });
  count_call(key_of(1));
  EXPECT_EQ(first_calls, 0);
  int seen = 0;
  std::thread([&seen] {
    count_call(key_of(1));
    count_call(key_of(2));
    seen = first_calls;
  }).join();
  on_first_call_of_thread(nullptr);
  EXPECT_EQ(seen, 1);
}

TEST_F(Counters, CallsFromDestructorsAtTheEndOfAThreadAreCounted) {
  run_threads(1, [](int) {
    thread_local LateCounter late;  // made before the thread's first call, so destroyed after what that call made
    static_cast<void>(&late);
    count_call(key_of(3));
  });
  EXPECT_EQ(totals(key_of(1)).calls, uint64_t{2} * kLateRounds * kLateCalls);
  EXPECT_EQ(totals(key_of(2)).calls, uint64_t{2} * kLateRounds);
  EXPECT_EQ(totals(key_of(3)).calls, 1U);
}

}  // namespace
}  // namespace flagos
