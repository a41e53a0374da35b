// What a worker tells the runner over its pipe: one frame for each case, or that its set-up failed.
#pragma once

#include "survey/verdict.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace flagos {

enum class ReportKind : uint8_t { kCase, kSetUpFailed };

struct Report {
  ReportKind kind = ReportKind::kCase;
  Verdict verdict = Verdict::kError;
  uint64_t case_index = 0;
  int64_t nanoseconds = 0;  // time in the body
  std::string detail{};     // bytes as the body gave them; for kSetUpFailed the error
  std::string output{};     // bytes written to stdout and stderr
};

/// Most bytes of `detail` or of `output` in one report. A length beyond it is taken for rubbish.
inline constexpr uint64_t kLongestText = uint64_t{1} << 30;

/// Writes the frame whole, however often the system cuts the write. Returns 0 or an errno.
int write_report(int descriptor, const Report& report);

/// Puts frames together from pieces of any size. Not thread-safe.
class ReportReader {
 public:
  void add(std::string_view bytes);

  /// The next whole report; nullopt where bytes are missing, or from the first garbled frame on.
  std::optional<Report> next();

  /// What is wrong with the bytes; empty while nothing is. After that the rest of the pipe has no meaning.
  const std::string& garbled() const { return garbled_; }

  /// Whether the bytes end inside a frame.
  bool inside_frame() const { return begin_ < bytes_.size(); }

 private:
  std::string bytes_;
  size_t begin_ = 0;  // of the frame that comes next
  std::string garbled_;
};

}  // namespace flagos
