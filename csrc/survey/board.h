// The memory that the isolated runner and its workers share: who does what since when.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace flagos {

/// Where a worker stands. What a dead worker's slot says decides whether a case is to blame.
enum class Stage : uint32_t {
  kStarting,  // in `set_up`
  kBetween,   // the report of the case before is out, the next case has not begun
  kRunning,   // in the body of a case, or writing its report
  kFinished,  // nothing was left to take
};

/// One worker's line on the board. Written by the worker, and by the runner only while it has no process.
struct alignas(64) Slot {
  std::atomic<uint64_t> case_index;  // valid in kRunning
  std::atomic<int64_t> since;        // CLOCK_MONOTONIC nanoseconds at which the stage began; set before `stage`
  std::atomic<Stage> stage;
};

/// A shared anonymous mapping that lives in the runner and in every process it forks. Workers take cases from it
/// without asking the runner, so handing one out costs an atomic addition. A worker that crashes may have scribbled
/// over it, so the runner believes no number from it without a check.
class Board {
 public:
  /// Room for `cases` cases and `workers` workers. Throws std::system_error when the mapping cannot be made.
  Board(size_t cases, size_t workers);
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  ~Board();

  /// Puts `cases` up to be taken, in this order. Only while no worker runs.
  void put_up(std::span<const uint64_t> cases);

  /// The next case in `case_index`, marked as taken by the worker process with number `owner`; false when none is left.
  bool take(uint32_t owner, uint64_t& case_index);

  /// Whether every case that was put up has been taken.
  bool exhausted() const;

  /// Number of the worker process that took the case last; 0 for none.
  uint32_t owner(size_t case_index) const { return owners_[case_index].load(); }

  Slot& slot(size_t worker) { return slots_[worker]; }

 private:
  struct Head;
  void* mapping_;
  size_t bytes_;
  size_t capacity_;
  Head* head_;
  Slot* slots_;
  uint64_t* queue_;
  std::atomic<uint32_t>* owners_;
};

}  // namespace flagos
