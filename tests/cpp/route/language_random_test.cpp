// Properties of the parser over random files: what is printed reads back, and no bytes break it.
#include "route/language.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "memory_files.h"

namespace flagos::testing {
namespace {

// Any file that the grammar allows parses without a problem, and what is printed of it parses to the same.
TEST(LanguageRandom, RandomFilesReadBackAsPrinted) {
  std::mt19937 random(20260711);
  const auto below = [&random](size_t limit) { return static_cast<size_t>(random() % limit); };
  const auto blank = [&below] { return std::string(below(3), below(2) == 0 ? ' ' : '\t'); };
  const Strings words = {"add", "_softmax", "include", "torch", "default", "__and__", "x"};
  const Strings overloads = {"", ".Tensor", ".out", ".dimname_out", "_.Scalar"};
  const Strings empty_lines = {"", "  \t", "# c = host", "torch >= 2.1", "\ttorch<3 # below", " # \xFF > ("};
  for (int round = 0; round < 500; ++round) {
    std::map<std::string, std::string> expected;
    std::string text = below(4) == 0 ? "\xEF\xBB\xBF" : "";
    const std::string line_end = below(2) == 0 ? "\n" : "\r\n";
    for (size_t count = below(12); count > 0; --count) {
      if (below(3) == 0) {
        text += empty_lines[below(empty_lines.size())] + line_end;
      }
      const std::string name = words[below(words.size())] + overloads[below(overloads.size())];
      if (name == "include" || name == "torch" || expected.contains(name)) {
        continue;  // no overload names, or a duplicate
      }
      std::vector<Backend>
          backends;  // a random part of the backends but `none`, shuffled, with or without `none` behind
      for (const BackendName& row : kBackendNames) {
        if (row.backend != Backend::kNone && below(3) == 0) {
          backends.insert(backends.begin() + static_cast<std::ptrdiff_t>(below(backends.size() + 1)), row.backend);
        }
      }
      if (backends.empty() || below(2) == 0) {
        backends.push_back(Backend::kNone);
      }
      std::string canonical;
      text += blank() + name + blank() + "=" + blank();
      for (const Backend backend : backends) {
        if (!canonical.empty()) {
          canonical += " > ";
          text += blank() + ">" + blank();
        }
        canonical += backend_name(backend);
        text += backend_name(backend);
      }
      text += blank() + (below(3) == 0 ? "# why" : "") + line_end;
      expected.emplace(name, canonical);
    }
    if (below(2) == 0 && text.ends_with(line_end)) {
      text.resize(text.size() - line_end.size());
    }
    const RoutingFile first = parse_text(text);
    ASSERT_EQ(messages(first.problems), Strings{}) << text;
    Strings lines;
    if (const auto found = expected.find("default"); found != expected.end()) {
      lines.push_back("default = " + found->second);
      expected.erase(found);
    }
    for (const auto& [name, route] : expected) {
      lines.push_back(name + " = " + route);
    }
    ASSERT_EQ(print_lines(first), lines) << text;
    std::string printed;
    for (const std::string& line : print_lines(first)) {
      printed += line + "\n";
    }
    const RoutingFile second = parse_text(printed);
    ASSERT_EQ(messages(second.problems), Strings{}) << printed;
    ASSERT_EQ(print_lines(second), lines) << printed;
    ASSERT_EQ(second.old_form, first.old_form) << text;
  }
}

// Whatever bytes a file has, parsing ends, places lie inside the text and messages can be shown.
TEST(LanguageRandom, RandomBytesNeverBreakTheParser) {
  std::mt19937 random(7);
  const std::string letters = std::string("ahost=>#() \t\r\n.\"\\\xC3\xA9\xFF\x01", 22);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t length = random() % 80; length > 0; --length) {
      text += random() % 8 == 0 ? std::string("host > none") : std::string(1, letters[random() % letters.size()]);
    }
    const RoutingFile file = parse_text(text);
    const size_t lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
    for (const Problem& problem : file.problems) {
      ASSERT_GE(problem.place.line, 1) << text;
      ASSERT_LE(static_cast<size_t>(problem.place.line), lines) << text;
      ASSERT_GE(problem.place.column, 1) << text;
      ASSERT_LE(static_cast<size_t>(problem.place.column), text.size() + 1) << text;
      for (const char c : to_string(problem)) {
        ASSERT_GE(static_cast<unsigned char>(c), 0x20U) << text;
      }
    }
    for (const auto& [name, line] : file.lines) {
      ASSERT_FALSE(line.candidates.empty()) << text;
      ASSERT_EQ(line.candidates.size(), line.candidate_places.size()) << text;
    }
  }
}

}  // namespace
}  // namespace flagos::testing
