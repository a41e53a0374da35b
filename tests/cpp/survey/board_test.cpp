// Tests of the memory that the runner and its workers share: each case is taken once.
#include "survey/board.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

namespace flagos {
namespace {

TEST(Board, HandsOutEachCaseOnceInOrder) {
  Board board(5, 2);
  const std::vector<uint64_t> queue = {4, 1, 3};
  board.put_up(queue);
  std::vector<uint64_t> taken;
  uint64_t case_index = 99;
  EXPECT_FALSE(board.exhausted());
  while (board.take(7, case_index)) {
    taken.push_back(case_index);
  }
  EXPECT_EQ(taken, queue);
  EXPECT_TRUE(board.exhausted());
  EXPECT_FALSE(board.take(8, case_index));
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(board.owner(i), std::count(queue.begin(), queue.end(), i) == 1 ? 7U : 0U) << i;
  }
  board.put_up(std::vector<uint64_t>{1});
  EXPECT_EQ(board.owner(1), 0U);
  EXPECT_TRUE(board.take(9, case_index));
  EXPECT_EQ(case_index, 1U);
  EXPECT_EQ(board.owner(1), 9U);
}

TEST(Board, HandsOutEachCaseOnceToManyAtOnce) {
  constexpr size_t kCases = 400'000;
  constexpr size_t kTakers = 4;
  Board board(kCases, kTakers);
  std::vector<uint64_t> queue(kCases);
  std::iota(queue.begin(), queue.end(), 0);
  board.put_up(queue);
  std::vector<std::vector<uint64_t>> taken(kTakers);
  std::atomic<size_t> ready{0};
  std::vector<std::thread> takers;
  for (size_t i = 0; i < kTakers; ++i) {
    takers.emplace_back([&, i] {
      ++ready;
      while (ready < kTakers) {
      }
      for (uint64_t case_index = 0; board.take(static_cast<uint32_t>(i + 1), case_index);) {
        taken[i].push_back(case_index);
      }
    });
  }
  for (std::thread& taker : takers) {
    taker.join();
  }
  std::vector<uint64_t> all;
  for (size_t i = 0; i < kTakers; ++i) {
    all.insert(all.end(), taken[i].begin(), taken[i].end());
    EXPECT_TRUE(std::all_of(taken[i].begin(), taken[i].end(),
                            [&](uint64_t case_index) { return board.owner(case_index) == i + 1; }));
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, queue);
}

TEST(Board, SlotsStandOnLinesOfTheirOwn) {
  Board board(1, 3);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(&board.slot(0)) % 64, 0U);
  EXPECT_EQ(&board.slot(2) - &board.slot(0), 2);
  EXPECT_EQ(board.slot(2).stage.load(), Stage::kStarting);
}

}  // namespace
}  // namespace flagos
