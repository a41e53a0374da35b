// Layout of the memory that the isolated runner and its workers share.
#include "survey/board.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>

namespace flagos {

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free &&
                  std::atomic<Stage>::is_always_lock_free,
              "an atomic with a lock is not shared between processes");

struct alignas(64) Board::Head {
  std::atomic<uint64_t> next;  // position in the queue; runs past `length` when several workers find it empty
  std::atomic<uint64_t> length;
};

Board::Board(size_t cases, size_t workers) : capacity_(cases) {
  const size_t slots_at = sizeof(Head);
  const size_t queue_at = slots_at + workers * sizeof(Slot);
  const size_t owners_at = queue_at + cases * sizeof(uint64_t);
  bytes_ = owners_at + cases * sizeof(std::atomic<uint32_t>);
  mapping_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(),
                            "isolated runner: " + std::to_string(bytes_) + " bytes of shared memory");
  }
  auto* base = static_cast<std::byte*>(mapping_);
  head_ = new (base) Head{};
  slots_ = reinterpret_cast<Slot*>(base + slots_at);
  for (size_t i = 0; i < workers; ++i) {
    new (slots_ + i) Slot{};
  }
  queue_ = reinterpret_cast<uint64_t*>(base + queue_at);
  owners_ = reinterpret_cast<std::atomic<uint32_t>*>(base + owners_at);
  for (size_t i = 0; i < cases; ++i) {
    new (queue_ + i) uint64_t{0};
    new (owners_ + i) std::atomic<uint32_t>{0};
  }
}

Board::~Board() {
  ::munmap(mapping_, bytes_);  // fails only for an address that is none of ours
}

void Board::put_up(std::span<const uint64_t> cases) {
  std::copy(cases.begin(), cases.end(), queue_);
  for (const uint64_t case_index : cases) {
    owners_[case_index].store(0);
  }
  head_->length.store(cases.size());
  head_->next.store(0);
}

bool Board::take(uint32_t owner, uint64_t& case_index) {
  const uint64_t position = head_->next.fetch_add(1);
  if (position >= head_->length.load() || position >= capacity_) {
    return false;
  }
  case_index = queue_[position];
  owners_[case_index].store(owner);
  return true;
}

bool Board::exhausted() const {
  return head_->next.load() >= head_->length.load();
}

}  // namespace flagos
