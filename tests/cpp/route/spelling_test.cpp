// Tests of splitting, trimming, quoting, edit distance and nearest names.
#include "route/spelling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace flagos {
namespace {

using Strings = std::vector<std::string>;

TEST(Trim, TakesBlanksFromBothEndsOnly) {
  struct Case {
    std::string text;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {"", ""},         {" ", ""},      {" \t\r\n\f\v", ""},        {"a", "a"},
      {" a b ", "a b"}, {"\ta\r", "a"}, {"a\xC2\xA0", "a\xC2\xA0"}, {std::string(" \0 ", 3), std::string("\0", 1)},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(trim(c.text), c.expected) << in_quotes(c.text);
  }
}

TEST(Trim, PointsIntoItsArgument) {
  const std::string text = "  word ";
  EXPECT_EQ(trim(text).data(), text.data() + 2);  // columns of messages are computed from this
}

TEST(SplitWords, LeavesOutEmptyParts) {
  struct Case {
    std::string text;
    char separator;
    Strings expected;
  };
  const std::vector<Case> cases = {
      {"", ',', {}},
      {",", ',', {}},
      {" , ,\t,", ',', {}},
      {"a", ',', {"a"}},
      {"a,b", ',', {"a", "b"}},
      {" a , b ", ',', {"a", "b"}},
      {",a,,b,", ',', {"a", "b"}},
      {"a b,c", ',', {"a b", "c"}},
      {"a b", ' ', {"a", "b"}},
      {"a;b", ',', {"a;b"}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(split_words(c.text, c.separator), c.expected) << in_quotes(c.text);
  }
}

TEST(InQuotes, EscapesWhatAMessageCannotHold) {
  struct Case {
    const char* name;
    std::string text;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {"empty", "", "''"},
      {"plain", "add.Tensor", "'add.Tensor'"},
      {"quote and backslash stay", "a'b\\", "'a'b\\'"},
      {"NUL", std::string("a\0b", 3), R"('a\x00b')"},
      {"controls", "\x01\t\n\x1F\x7F", R"('\x01\x09\x0a\x1f\x7f')"},
      {"two bytes", "\xC3\xA9", "'\xC3\xA9'"},
      {"three bytes", "\xE2\x82\xAC", "'\xE2\x82\xAC'"},
      {"four bytes", "\xF0\x9F\x94\xA5", "'\xF0\x9F\x94\xA5'"},
      {"last code point", "\xF4\x8F\xBF\xBF", "'\xF4\x8F\xBF\xBF'"},
      {"above the last", "\xF4\x90\x80\x80", R"('\xf4\x90\x80\x80')"},
      {"Latin-1", "caf\xE9", R"('caf\xe9')"},
      {"cut short", "\xE2\x82", R"('\xe2\x82')"},
      {"continuation alone", "\x80x", R"('\x80x')"},
      {"overlong, two bytes", "\xC0\xAF", R"('\xc0\xaf')"},
      {"overlong, three bytes", "\xE0\x80\xAF", R"('\xe0\x80\xaf')"},
      {"overlong, four bytes", "\xF0\x80\x80\xAF", R"('\xf0\x80\x80\xaf')"},
      {"surrogate", "\xED\xA0\x80", R"('\xed\xa0\x80')"},
      {"bad then good", "\xFFz\xC3\xA9", "'\\xffz\xC3\xA9'"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(in_quotes(c.text), c.expected) << c.name;
  }
}

TEST(EditDistance, Cases) {
  struct Case {
    std::string a;
    std::string b;
    size_t expected;
  };
  const std::vector<Case> cases = {
      {"", "", 0},         {"abc", "abc", 0},        {"", "abc", 3},      {"abc", "", 3},
      {"host", "hots", 1},  // a swap of neighbours is one edit
      {"host", "hst", 1},  {"host", "hosts", 1},     {"host", "hist", 1}, {"ab", "ba", 1},
      {"abcd", "badc", 2}, {"kitten", "sitting", 3}, {"ca", "abc", 3},  // a swapped pair is not edited again
      {"abc", "xyz", 3},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(edit_distance(c.a, c.b), c.expected) << c.a << " " << c.b;
    EXPECT_EQ(edit_distance(c.b, c.a), c.expected) << c.b << " " << c.a;
  }
}

// The definition, with no table: slow and plain.
size_t distance_by_definition(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) {
    return std::max(a.size(), b.size());
  }
  const std::string_view a1 = a.substr(0, a.size() - 1);
  const std::string_view b1 = b.substr(0, b.size() - 1);
  size_t best = std::min({distance_by_definition(a1, b1) + (a.back() == b.back() ? 0 : 1),
                          distance_by_definition(a1, b) + 1, distance_by_definition(a, b1) + 1});
  if (a1.size() > 0 && b1.size() > 0 && a.back() == b1.back() && a1.back() == b.back()) {
    best = std::min(best, distance_by_definition(a1.substr(0, a1.size() - 1), b1.substr(0, b1.size() - 1)) + 1);
  }
  return best;
}

TEST(EditDistance, AgreesWithItsDefinitionOnRandomWords) {
  std::mt19937 random(20240611);
  const auto word = [&random] {
    std::string result;
    for (size_t length = random() % 6; length > 0; --length) {
      result += static_cast<char>('a' + random() % 3);
    }
    return result;
  };
  for (int i = 0; i < 300; ++i) {
    const std::string a = word();
    const std::string b = word();
    ASSERT_EQ(edit_distance(a, b), distance_by_definition(a, b)) << in_quotes(a) << " " << in_quotes(b);
  }
}

TEST(DidYouMean, OffersTheNearestNameWithinReach) {
  struct Case {
    std::string word;
    Strings names;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {"hots", {"cuda", "host"}, "; did you mean 'host'?"},
      {"add.Tensr", {"add.Scalar", "add.Tensor"}, "; did you mean 'add.Tensor'?"},
      {"hos", {"host", "hose", "hos"}, "; did you mean 'hos'?"},
      {"ab", {"ax", "ay"}, "; did you mean 'ax'?"},                 // equally near: the first
      {"abc", {"xyz"}, ""},                                         // 3 edits of 3 characters
      {"abcdefghi", {"abcdefxyz"}, "; did you mean 'abcdefxyz'?"},  // a third of the word
      {"abcdefghi", {"abcdewxyz"}, ""},
      {"host", {}, ""},
      {"", {"a"}, "; did you mean 'a'?"},
      {"", {"abc"}, ""},
      {std::string(1 << 20, 'x'), {"host"}, ""},  // decided by length, without a table of a million rows
  };
  for (const Case& c : cases) {
    EXPECT_EQ(did_you_mean(c.word, c.names), c.expected) << c.word.substr(0, 20);
  }
}

}  // namespace
}  // namespace flagos
