// Tests of the parser of routing files: what it takes, what it refuses, and where it says the fault is.
#include "route/language.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "memory_files.h"

namespace flagos::testing {
namespace {

constexpr const char* kNotALine =
    "expected 'overload = backend', 'default = backend', 'include path' or 'torch >= version'";
constexpr const char* kConditions = "conditions in parentheses are not part of the routing language of this version";
constexpr const char* kKnown = " (known: flaggems_cpp, flaggems, tileops, host, cuda, gcu, none)";
constexpr const char* kAfterNone = "nothing is reached after 'none', which accepts every call";

TEST(Language, GoodFiles) {
  struct Case {
    const char* name;
    std::string text;
    Strings lines;
  };
  const std::vector<Case> cases = {
      {"empty", "", {}},
      {"line ends alone", "\n\n\n", {}},
      {"blanks and comments", "  \t\n# a\n   # b = host\n#", {}},
      {"one line", "abs = host\n", {"abs = host"}},
      {"no line end at the end", "abs = host", {"abs = host"}},
      {"default", "default = host > none\n", {"default = host > none"}},
      {"default is not an overload", "abs = none\ndefault = host\n", {"default = host", "abs = none"}},
      {"no blanks", "abs=host>none", {"abs = host > none"}},
      {"many blanks", "  abs   =   host   >   none   ", {"abs = host > none"}},
      {"tabs", "\tabs\t=\thost\t>\tnone\t\n", {"abs = host > none"}},
      {"CRLF", "default = host\r\n\r\n# c\r\nabs = none\r\n", {"default = host", "abs = none"}},
      {"CRLF without the last", "abs = host\r", {"abs = host"}},
      {"byte order mark",
       "\xEF\xBB\xBF"
       "default = host\n",
       {"default = host"}},
      {"byte order mark alone", "\xEF\xBB\xBF", {}},
      {"comment behind a line", "abs = host # > none", {"abs = host"}},
      {"comment against a word", "abs = host#none", {"abs = host"}},
      {"comment in Latin-1", "abs = host # caf\xE9\n", {"abs = host"}},
      {"every backend",
       "abs = flaggems_cpp > flaggems > tileops > host > cuda > gcu > none",
       {"abs = flaggems_cpp > flaggems > tileops > host > cuda > gcu > none"}},
      {"names with underscores",
       "__and__.Scalar = host\n_softmax = host\nadd_.Tensor = host",
       {"__and__.Scalar = host", "_softmax = host", "add_.Tensor = host"}},
      {"a name that begins like a word",
       "include_me = host\ntorchlike.out = none",
       {"include_me = host", "torchlike.out = none"}},
      {"a third party's name", "mylib::conv.out = host", {"mylib::conv.out = host"}},
      {"version lines", "torch >= 2.10\ntorch < 3\nabs = host", {"abs = host"}},
  };
  for (const Case& c : cases) {
    const RoutingFile file = parse_text(c.text);
    EXPECT_EQ(messages(file.problems), Strings{}) << c.name;
    EXPECT_EQ(print_lines(file), c.lines) << c.name;
    EXPECT_EQ(file.files, Strings{"r.conf"}) << c.name;
  }
}

TEST(Language, BadLines) {
  struct Case {
    const char* name;
    std::string text;
    Strings problems;  ///< without "r.conf:"
    Strings lines;     ///< what is understood beside the problems
  };
  const auto unknown = [](const std::string& rest) { return "error: unknown backend " + rest + kKnown; };
  const std::string missing = "error: a backend is missing here";
  const std::string conditions = std::string("error: ") + kConditions;
  const std::string not_a_line = std::string("error: ") + kNotALine;
  const std::string after_none = std::string("error: ") + kAfterNone;
  const std::vector<Case> cases = {
      {"no equals sign", "abs host", {"1:1: " + not_a_line}, {}},
      {"no equals sign, indented, third line", "\nabs = host\n \tneg", {"3:3: " + not_a_line}, {"abs = host"}},
      {"a lone word", "default", {"1:1: " + not_a_line}, {}},
      {"equals sign alone", "=", {"1:1: error: an overload is missing before '='"}, {}},
      {"no overload", "  = host", {"1:3: error: an overload is missing before '='"}, {}},
      {"two names", "abs neg = host", {"1:1: error: 'abs neg' is not one overload name"}, {}},
      {"two names by tab", "abs\tneg = host", {R"(1:1: error: 'abs\x09neg' is not one overload name)"}, {}},
      {"no route", "abs =", {"1:6: " + missing}, {}},
      {"no route, blanks", "abs =   ", {"1:6: " + missing}, {}},
      {"no route, comment", "abs = # host", {"1:6: " + missing}, {}},
      {"no route, indented", "\t abs=", {"1:7: " + missing}, {}},
      {"nothing after >", "abs = host >", {"1:13: " + missing}, {}},
      {"nothing before >", "abs = > host", {"1:7: " + missing}, {}},
      {"nothing between", "abs = host > > none", {"1:13: " + missing}, {}},
      {"> alone", "abs = >", {"1:7: " + missing, "1:8: " + missing}, {}},
      {"unknown backend", "abs = hots", {"1:7: " + unknown("'hots'; did you mean 'host'?")}, {}},
      {"unknown backend, none near", "abs = quantum", {"1:7: " + unknown("'quantum'")}, {}},
      {"upper case", "abs = HOST", {"1:7: " + unknown("'HOST'")}, {}},
      {"two backends without >", "abs = host none", {"1:7: " + unknown("'host none'")}, {}},
      {"a comma between", "abs = host, none", {"1:7: " + unknown("'host, none'")}, {}},
      {"two equals signs", "abs == host", {"1:6: " + unknown("'= host'; did you mean 'host'?")}, {}},
      {"second is unknown", "abs = host > gpu", {"1:14: " + unknown("'gpu'; did you mean 'gcu'?")}, {}},
      {"all unknown ones",
       "\tabs  =  hots>cdua >none",
       {"1:10: " + unknown("'hots'; did you mean 'host'?"), "1:15: " + unknown("'cdua'; did you mean 'cuda'?")},
       {}},
      {"backend twice",
       "abs = host > host",
       {"1:14: error: 'host' stands earlier in this route and accepts every call"},
       {}},
      {"none twice",
       "abs = none > none",
       {"1:14: error: 'none' stands earlier in this route and accepts every call"},
       {}},
      {"after none", "abs = none > host", {"1:14: " + after_none}, {}},
      {"two after none", "abs = none > host > cuda", {"1:14: " + after_none, "1:21: " + after_none}, {}},
      {"condition", "abs = host(f32)", {"1:7: " + conditions}, {}},
      {"condition, second", "abs = host > cuda(f16|bf16) > none", {"1:14: " + conditions}, {}},
      {"condition with >= is one problem", "abs = host(rank >= 2) > none", {"1:7: " + conditions}, {}},
      {"condition with two >",
       "abs = host(rank > 2, dim > 1, size[0] > 3) > hots",
       {"1:7: " + conditions, "1:46: " + unknown("'hots'; did you mean 'host'?")},
       {}},
      {"parenthesis not closed", "abs = host(rank > 2", {"1:7: " + conditions}, {}},
      {"parenthesis not opened", "abs = host) > none", {"1:7: " + conditions}, {}},
      {"parentheses around nothing", "abs = host()", {"1:7: " + conditions}, {}},
      {"duplicate",
       "abs = host\nneg = host\nabs = none",
       {"3:1: error: 'abs' has a route already, in line 1"},
       {"abs = host", "neg = host"}},
      {"duplicate with the same route",
       "abs = host\n  abs = host",
       {"2:3: error: 'abs' has a route already, in line 1"},
       {"abs = host"}},
      {"duplicate default",
       "default = host\ndefault = none",
       {"2:1: error: 'default' has a route already, in line 1"},
       {"default = host"}},
      {"three times",
       "abs = host\nabs = host\nabs = host",
       {"2:1: error: 'abs' has a route already, in line 1", "3:1: error: 'abs' has a route already, in line 1"},
       {"abs = host"}},
      {"duplicate of a bad line",
       "abs = hots\nabs = host",
       {"1:7: " + unknown("'hots'; did you mean 'host'?"), "2:1: error: 'abs' has a route already, in line 1"},
       {}},
      {"duplicate that is bad itself",
       "abs = host\nabs = hots",
       {"2:7: " + unknown("'hots'; did you mean 'host'?"), "2:1: error: 'abs' has a route already, in line 1"},
       {"abs = host"}},
      {"a bad line does not hide the next",
       "abs\nneg = \nexp = host",
       {"1:1: " + not_a_line, "2:6: " + missing},
       {"exp = host"}},
      {"not UTF-8", "abs = h\xFFst", {"1:7: " + unknown(R"('h\xffst'; did you mean 'host'?)")}, {}},
      {"control characters", "abs = \x1B[31mhost", {"1:7: " + unknown(R"('\x1b[31mhost')")}, {}},
      {"columns count bytes", "\xC3\xA9 = host > x", {"1:13: " + unknown("'x'")}, {}},
      {"NUL",
       std::string("abs = host\nneg = ho\0st\nexp = host", 32),
       {"2:9: error: a NUL byte: this is not a text file in UTF-8"},
       {"abs = host"}},
      {"NUL in a comment",
       std::string("# \0\nabs = host", 14),
       {"1:3: error: a NUL byte: this is not a text file in UTF-8"},
       {}},
      {"UTF-16",
       std::string("a\0b\0s\0 \0=\0 \0h\0\n\0a\0", 18),
       {"1:2: error: a NUL byte: this is not a text file in UTF-8"},
       {}},
      {"byte order mark, columns",
       "\xEF\xBB\xBF"
       "abs = x",
       {"1:7: " + unknown("'x'")},
       {}},
      {"byte order mark, second line", "abs = host\n\xEF\xBB\xBF", {"2:1: " + not_a_line}, {"abs = host"}},
      {"include without a path", "include", {"1:1: error: include needs a path"}, {}},
      {"include without a path, comment", " include # base.conf", {"1:2: error: include needs a path"}, {}},
      {"include without a path, CRLF", "include \r\n", {"1:1: error: include needs a path"}, {}},
  };
  for (const Case& c : cases) {
    const RoutingFile file = parse_text(c.text);
    Strings expected;
    for (const std::string& problem : c.problems) {
      expected.push_back("r.conf:" + problem);
    }
    EXPECT_EQ(messages(file.problems), expected) << c.name;
    EXPECT_EQ(print_lines(file), c.lines) << c.name;
  }
}

TEST(Language, VersionLines) {
  struct Case {
    std::string line;
    std::string torch;
    std::string message;  ///< empty: the line holds
  };
  const auto is_for = [](const std::string& condition, const std::string& torch) {
    return "this file is for torch " + condition + "; torch here is " + torch;
  };
  const std::string comparison = "expected a comparison such as 'torch >= 2.11'";
  const auto no_version = [](const std::string& text) { return text + " is not a version such as 2.11"; };
  const std::vector<Case> cases = {
      {"torch >= 2.13", "2.13.0+cpu", ""},
      {"torch >= 2.13.0", "2.13.0", ""},
      {"torch >= 2.13.1", "2.13.0+cpu", is_for(">= 2.13.1", "2.13.0+cpu")},
      {"torch >= 2.9", "2.13.0", ""},  // numbers, not text
      {"torch > 2.13", "2.13.0+cpu", is_for("> 2.13", "2.13.0+cpu")},
      {"torch > 2.13", "2.13.1", ""},
      {"torch <= 2.13", "2.13.0+cu130", ""},
      {"torch <= 2.13", "2.13.1", is_for("<= 2.13", "2.13.1")},
      {"torch < 2.13", "2.12.9", ""},
      {"torch < 2.13", "2.13.0", is_for("< 2.13", "2.13.0")},
      {"torch == 2.13", "2.13.0+cpu", ""},
      {"torch == 2.13", "2.13.1", is_for("== 2.13", "2.13.1")},
      {"torch >= 3", "2.13.0", is_for(">= 3", "2.13.0")},
      {"torch >= 2", "2.13.0", ""},
      {"torch >= 2.14", "2.14.0a0+git1234", ""},
      {"torch >= 2.14", "2.14.0.dev20260101", ""},
      {"torch\t>=\t2.13\t", "2.13.0", ""},
      {"torch >=2.13", "2.13.0", ""},
      {"torch>=2.13", "2.13.0", ""},
      {"torch<2.13", "2.13.0", is_for("< 2.13", "2.13.0")},
      {"torch==2.13", "2.13.0", ""},
      {"torch>2.13 # later ones", "2.14.0", ""},
      {"torch", "2.13.0", comparison},
      {"torch 2.13", "2.13.0", comparison},
      {"torch = 2.13", "2.13.0", comparison},
      {"torch => 2.13", "2.13.0", comparison},
      {"torch != 2.13", "2.13.0", comparison},
      {"torch >=", "2.13.0", no_version("''")},
      {"torch >= two", "2.13.0", no_version("'two'")},
      {"torch >= 2.", "2.13.0", no_version("'2.'")},
      {"torch >= .2", "2.13.0", no_version("'.2'")},
      {"torch >= 2..1", "2.13.0", no_version("'2..1'")},
      {"torch >= 2.13.0.1", "2.13.0", no_version("'2.13.0.1'")},
      {"torch >= -2", "2.13.0", no_version("'-2'")},
      {"torch >= 2.-1", "2.13.0", no_version("'2.-1'")},
      {"torch >= 2.13, < 2.14", "2.13.0", no_version("'2.13, < 2.14'")},  // not half of it
      {"torch >= 2.13 < 2.14", "2.13.0", no_version("'2.13 < 2.14'")},
      {"torch >= 2.13a0", "2.13.0", no_version("'2.13a0'")},
      {"torch >= 2.13+cpu", "2.13.0", no_version("'2.13+cpu'")},
      {"torch >= 99999999999", "2.13.0", no_version("'99999999999'")},
      {"torch >>= 2.13", "2.13.0", no_version("'>= 2.13'")},
  };
  for (const Case& c : cases) {
    const Files files = {{"r.conf", "\n  " + c.line + "\nabs = host"}};
    const RoutingFile file = parse_routing_file("r.conf", c.torch, reader_of(files));
    const Strings expected = c.message.empty() ? Strings{} : Strings{"r.conf:2:3: error: " + c.message};
    EXPECT_EQ(messages(file.problems), expected) << c.line << " with " << c.torch;
    EXPECT_EQ(print_lines(file), Strings{"abs = host"}) << c.line;
  }
}

TEST(Language, PlacesOfNamesAndCandidates) {
  const Files files = {{"a.conf", "include b.conf\n\tdefault=host>none"},
                       {"b.conf", "\n  abs  =  flaggems > host>none"}};
  const RoutingFile file = parse_files(files, "a.conf");
  const RouteLine& abs = file.lines.at("abs");
  EXPECT_EQ(abs.name, "abs");
  EXPECT_EQ(to_string(abs.place), "b.conf:2:3");
  ASSERT_EQ(abs.candidate_places.size(), 3U);
  EXPECT_EQ(to_string(abs.candidate_places[0]), "b.conf:2:11");
  EXPECT_EQ(to_string(abs.candidate_places[1]), "b.conf:2:22");
  EXPECT_EQ(to_string(abs.candidate_places[2]), "b.conf:2:27");
  ASSERT_TRUE(file.default_line.has_value());
  EXPECT_EQ(to_string(file.default_line->place), "a.conf:2:2");
  ASSERT_EQ(file.default_line->candidate_places.size(), 2U);
  EXPECT_EQ(to_string(file.default_line->candidate_places[1]), "a.conf:2:15");
}

TEST(Language, OldForm) {
  struct Case {
    const char* name;
    Files files;
    bool old_form;
  };
  const std::vector<Case> cases = {
      {"nothing", {{"a.conf", ""}}, true},
      {"one backend a line", {{"a.conf", "# old\ndefault = host\nabs = none"}}, true},
      {"a chain", {{"a.conf", "abs = none\nneg = host > none"}}, false},
      {"a chain in the default", {{"a.conf", "default = host > none\nabs = none"}}, false},
      {"a chain in an included file", {{"a.conf", "include b.conf"}, {"b.conf", "abs = host > none"}}, false},
      {"includes of old files", {{"a.conf", "include b.conf\nneg = host"}, {"b.conf", "abs = none"}}, true},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(parse_files(c.files, "a.conf").old_form, c.old_form) << c.name;
  }
}

TEST(Language, HugeFiles) {
  const std::string name(1 << 20, 'x');
  EXPECT_EQ(print_lines(parse_text(name + " = host")), Strings{name + " = host"});
  EXPECT_EQ(messages(parse_text(name).problems), Strings{std::string("r.conf:1:1: error: ") + kNotALine});
  EXPECT_EQ(messages(parse_text("abs = " + name).problems),
            Strings{"r.conf:1:7: error: unknown backend '" + name + "'" + kKnown});
  const std::string blanks(1 << 20, ' ');
  EXPECT_EQ(messages(parse_text(blanks + "abs = " + blanks + "x").problems),
            Strings{"r.conf:1:2097159: error: unknown backend 'x'" + std::string(kKnown)});

  std::string many;
  for (int i = 0; i < 100000; ++i) {
    many += "op" + std::to_string(i) + " = host\n";
  }
  const RoutingFile file = parse_text(many + "op7 = none\n");
  EXPECT_EQ(file.lines.size(), 100000U);
  EXPECT_EQ(messages(file.problems), Strings{"r.conf:100001:1: error: 'op7' has a route already, in line 8"});

  std::string chain = "abs = none";
  for (int i = 0; i < 10000; ++i) {
    chain += ">none";
  }
  EXPECT_EQ(parse_text(chain).problems.size(), 10000U);
}

TEST(Language, ParseRouteOfAVariable) {
  const Place variable{"FLAGOS_OP_abs", 0, 0};
  std::vector<Problem> problems;
  EXPECT_EQ(intern_route(parse_route(" host>none ", variable, problems))->text, "host > none");
  EXPECT_EQ(messages(problems), Strings{});
  parse_route("", variable, problems);
  parse_route("hots > none > host", variable, problems);
  EXPECT_EQ(messages(problems),
            (Strings{"FLAGOS_OP_abs: error: a backend is missing here",
                     std::string("FLAGOS_OP_abs: error: unknown backend 'hots'; did you mean 'host'?") + kKnown,
                     std::string("FLAGOS_OP_abs: error: ") + kAfterNone}));
  EXPECT_EQ(problems[2].place.column, 14);
}

TEST(Language, ProblemsAsText) {
  EXPECT_EQ(to_string(Problem{{"a.conf", 3, 9}, Severity::kError, "m"}), "a.conf:3:9: error: m");
  EXPECT_EQ(to_string(Problem{{"a.conf", 3, 9}, Severity::kWarning, "m"}), "a.conf:3:9: warning: m");
  EXPECT_EQ(to_string(Problem{{"a.conf", 0, 9}, Severity::kNote, "m"}), "a.conf: note: m");
}

}  // namespace
}  // namespace flagos::testing
