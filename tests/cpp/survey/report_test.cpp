// Tests of the frames between a worker and the runner: pieces of any size, and bytes that are no frame.
#include "survey/report.h"

#include "survey/descriptor.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace flagos {
namespace {

std::string frame(const Report& report) {
  const Descriptor file(::memfd_create("frame", MFD_CLOEXEC));
  EXPECT_EQ(write_report(file.number(), report), 0);
  std::string bytes(static_cast<size_t>(::lseek(file.number(), 0, SEEK_END)), '\0');
  EXPECT_EQ(::pread(file.number(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  return bytes;
}

Report report(uint64_t case_index, Verdict verdict, std::string detail, std::string output) {
  return {.kind = ReportKind::kCase,
          .verdict = verdict,
          .case_index = case_index,
          .nanoseconds = 1234,
          .detail = std::move(detail),
          .output = std::move(output)};
}

void expect_equal(const Report& left, const Report& right) {
  EXPECT_EQ(left.kind, right.kind);
  EXPECT_EQ(left.verdict, right.verdict);
  EXPECT_EQ(left.case_index, right.case_index);
  EXPECT_EQ(left.nanoseconds, right.nanoseconds);
  EXPECT_EQ(left.detail, right.detail);
  EXPECT_EQ(left.output, right.output);
}

TEST(ReportReader, PutsPiecesOfAnySizeTogether) {
  const std::vector<Report> sent = {
      report(0, Verdict::kPass, "", ""),
      report(1, Verdict::kWrong, std::string("a\0b", 3), "out"),
      report(UINT64_MAX, Verdict::kNotApplicable, std::string(5000, 'd'), std::string(7000, 'o')),
      {.kind = ReportKind::kSetUpFailed, .detail = "no device"},
  };
  std::string bytes;
  for (const Report& each : sent) {
    bytes += frame(each);
  }
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{48}, size_t{4096}, bytes.size()}) {
    SCOPED_TRACE(piece);
    ReportReader reader;
    std::vector<Report> received;
    for (size_t begin = 0; begin < bytes.size(); begin += piece) {
      EXPECT_EQ(reader.next(), std::nullopt);
      reader.add(std::string_view(bytes).substr(begin, piece));
      while (auto next = reader.next()) {
        received.push_back(*std::move(next));
      }
    }
    ASSERT_EQ(received.size(), sent.size());
    for (size_t i = 0; i < sent.size(); ++i) {
      expect_equal(received[i], sent[i]);
    }
    EXPECT_FALSE(reader.inside_frame());
    EXPECT_EQ(reader.garbled(), "");
  }
}

TEST(ReportReader, KnowsAnEndInsideAFrame) {
  const std::string bytes = frame(report(3, Verdict::kPass, "detail", ""));
  for (const size_t length : {size_t{1}, size_t{20}, bytes.size() - 1}) {
    ReportReader reader;
    reader.add(bytes.substr(0, length));
    EXPECT_EQ(reader.next(), std::nullopt);
    EXPECT_TRUE(reader.inside_frame());
    EXPECT_EQ(reader.garbled(), "");
  }
}

TEST(ReportReader, RefusesWhatIsNoFrame) {
  const std::string good = frame(report(3, Verdict::kPass, "detail", ""));
  struct Case {
    size_t at;  // where the frame is spoilt, and with what
    std::string bytes;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {0, "x", "foreign bytes in the pipe"},
      {24, std::string(8, '\x7f'), "a text of 9187201950435737471 bytes, of at most 1073741824"},
      {32, std::string("\x01\0\0\x40", 4), "a text of 1073741825 bytes, of at most 1073741824"},
      {40, "\x02", "kind 2 of a report"},
      {44, "\x0d", "verdict number 13"},
  };
  for (const Case& each : cases) {
    std::string spoilt = good;
    spoilt.replace(each.at, each.bytes.size(), each.bytes);
    ReportReader reader;
    reader.add(good + spoilt + good);
    EXPECT_NE(reader.next(), std::nullopt);
    EXPECT_EQ(reader.next(), std::nullopt);
    EXPECT_EQ(reader.garbled(), each.expected);
    reader.add(good);
    EXPECT_EQ(reader.next(), std::nullopt) << "what follows has no meaning";
  }
}

TEST(WriteReport, ReturnsTheErrorOfTheSystem) {
  EXPECT_EQ(write_report(-1, report(0, Verdict::kPass, "", "")), EBADF);
}

}  // namespace
}  // namespace flagos
