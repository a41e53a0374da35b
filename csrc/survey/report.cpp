// Frames of the pipe between a worker and the runner.
#include "survey/report.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <type_traits>

namespace flagos {
namespace {

constexpr uint64_t kMark = 0x74726f7065723a66;  // a case may write into the descriptor by mistake; few texts hold this

// Both ends are one program on one machine, so the struct goes as it stands.
struct FrameHead {
  uint64_t mark;
  uint64_t case_index;
  int64_t nanoseconds;
  uint64_t detail_bytes;
  uint64_t output_bytes;
  uint32_t kind;
  uint32_t verdict;
};
static_assert(std::is_trivially_copyable_v<FrameHead> && std::has_unique_object_representations_v<FrameHead>);

int write_whole(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

int write_report(int descriptor, const Report& report) {
  const FrameHead head{
      .mark = kMark,
      .case_index = report.case_index,
      .nanoseconds = report.nanoseconds,
      .detail_bytes = report.detail.size(),
      .output_bytes = report.output.size(),
      .kind = static_cast<uint32_t>(report.kind),
      .verdict = static_cast<uint32_t>(report.verdict),
  };
  std::string start(reinterpret_cast<const char*>(&head), sizeof head);
  const bool one_write = report.detail.size() + report.output.size() < 4096;  // usually nothing but a verdict
  if (one_write) {
    start += report.detail;
    start += report.output;
  }
  int error = write_whole(descriptor, start);
  if (error == 0 && !one_write) {
    error = write_whole(descriptor, report.detail);
  }
  if (error == 0 && !one_write) {
    error = write_whole(descriptor, report.output);
  }
  return error;
}

void ReportReader::add(std::string_view bytes) {
  if (begin_ > 0) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
  bytes_ += bytes;
}

std::optional<Report> ReportReader::next() {
  FrameHead head;
  if (!garbled_.empty() || bytes_.size() - begin_ < sizeof head) {
    return std::nullopt;
  }
  std::memcpy(&head, bytes_.data() + begin_, sizeof head);
  if (head.mark != kMark) {
    garbled_ = "foreign bytes in the pipe";
  } else if (head.kind > static_cast<uint32_t>(ReportKind::kSetUpFailed)) {
    garbled_ = "kind " + std::to_string(head.kind) + " of a report";
  } else if (head.verdict >= all_verdicts().size()) {
    garbled_ = "verdict number " + std::to_string(head.verdict);
  } else if (head.detail_bytes > kLongestText || head.output_bytes > kLongestText) {
    garbled_ = "a text of " + std::to_string(head.detail_bytes > kLongestText ? head.detail_bytes : head.output_bytes) +
               " bytes, of at most " + std::to_string(kLongestText);
  }
  const size_t texts = begin_ + sizeof head;
  if (!garbled_.empty() || bytes_.size() - texts < head.detail_bytes + head.output_bytes) {
    return std::nullopt;
  }
  Report report{
      .kind = static_cast<ReportKind>(head.kind),
      .verdict = static_cast<Verdict>(head.verdict),
      .case_index = head.case_index,
      .nanoseconds = head.nanoseconds,
      .detail = bytes_.substr(texts, head.detail_bytes),
      .output = bytes_.substr(texts + head.detail_bytes, head.output_bytes),
  };
  begin_ = texts + head.detail_bytes + head.output_bytes;
  return report;
}

}  // namespace flagos
