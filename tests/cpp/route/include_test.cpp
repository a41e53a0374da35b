// Tests of routing files that include others, in memory and on a disk.
#include "route/language.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "memory_files.h"

namespace flagos::testing {
namespace {

constexpr const char* kNotALine =
    "expected 'overload = backend', 'default = backend', 'include path' or 'torch >= version'";
constexpr const char* kKnown = " (known: flaggems_cpp, flaggems, tileops, host, cuda, gcu, none)";

TEST(Include, FilesOfFiles) {
  struct Case {
    const char* name;
    Files files;
    std::string root;
    Strings read;
    Strings lines;
    Strings problems;
  };
  const std::vector<Case> cases = {
      {"beside",
       {{"a.conf", "include b.conf"}, {"b.conf", "abs = host"}},
       "a.conf",
       {"a.conf", "b.conf"},
       {"abs = host"},
       {}},
      {"relative to its file",
       {{"d/a.conf", "include e/b.conf"}, {"d/e/b.conf", "include c.conf"}, {"d/e/c.conf", "abs = host"}},
       "d/a.conf",
       {"d/a.conf", "d/e/b.conf", "d/e/c.conf"},
       {"abs = host"},
       {}},
      {"the folder above",
       {{"/d/a.conf", "include ../b.conf"}, {"/d/../b.conf", "abs = host"}},
       "/d/a.conf",
       {"/d/a.conf", "/d/../b.conf"},
       {"abs = host"},
       {}},
      {"absolute",
       {{"d/a.conf", "include /b.conf"}, {"/b.conf", "abs = host"}},
       "d/a.conf",
       {"d/a.conf", "/b.conf"},
       {"abs = host"},
       {}},
      {"a path with blanks, tab, comment and CRLF",
       {{"a.conf", "\tinclude\t my routes.conf \t# mine\r\n"}, {"my routes.conf", "abs = host"}},
       "a.conf",
       {"a.conf", "my routes.conf"},
       {"abs = host"},
       {}},
      {"a path with an equals sign",
       {{"a.conf", "include b=c.conf"}, {"b=c.conf", "abs = host"}},
       "a.conf",
       {"a.conf", "b=c.conf"},
       {"abs = host"},
       {}},
      {"overlay",
       {{"a.conf", "include b.conf\nabs = none\ndefault = none"}, {"b.conf", "default = host\nabs = host\nneg = host"}},
       "a.conf",
       {"a.conf", "b.conf"},
       {"default = none", "abs = none", "neg = host"},
       {}},
      {"two overlays, the later wins",
       {{"a.conf", "include b.conf\ninclude c.conf"}, {"b.conf", "abs = host\nneg = none"}, {"c.conf", "abs = none"}},
       "a.conf",
       {"a.conf", "b.conf", "c.conf"},
       {"abs = none", "neg = none"},
       {}},
      {"one file by two ways is no cycle",
       {{"a.conf", "include b.conf\ninclude c.conf"},
        {"b.conf", "include d.conf"},
        {"c.conf", "include d.conf"},
        {"d.conf", "abs = host"}},
       "a.conf",
       {"a.conf", "b.conf", "d.conf", "c.conf", "d.conf"},
       {"abs = host"},
       {}},
      {"duplicates are of one file",
       {{"a.conf", "include b.conf\nabs = none\nabs = host"}, {"b.conf", "abs = host"}},
       "a.conf",
       {"a.conf", "b.conf"},
       {"abs = none"},
       {"a.conf:3:1: error: 'abs' has a route already, in line 2"}},
      {"missing",
       {{"d/a.conf", "abs = host\n include   no.conf\nneg = host"}},
       "d/a.conf",
       {"d/a.conf"},
       {"abs = host", "neg = host"},
       {"d/a.conf:2:12: error: cannot read 'd/no.conf'"}},
      {"missing root", {}, "no.conf", {}, {}, {"no.conf: error: cannot read 'no.conf'"}},
      {"missing below",
       {{"a.conf", "include b.conf"}, {"b.conf", "\ninclude c.conf"}},
       "a.conf",
       {"a.conf", "b.conf"},
       {},
       {"b.conf:2:9: error: cannot read 'c.conf'"}},
      {"missing, not UTF-8",
       {{"a.conf", "include \xFF.conf"}},
       "a.conf",
       {"a.conf"},
       {},
       {R"(a.conf:1:9: error: cannot read '\xff.conf')"}},
      {"itself",
       {{"a.conf", "include a.conf\nabs = host"}},
       "a.conf",
       {"a.conf"},
       {"abs = host"},
       {"a.conf:1:9: error: include cycle: a.conf -> a.conf"}},
      {"itself by another spelling",
       {{"a.conf", "include ./d/../a.conf"}},
       "a.conf",
       {"a.conf"},
       {},
       {"a.conf:1:9: error: include cycle: a.conf -> a.conf"}},
      {"a cycle of three",
       {{"a.conf", "include b.conf"}, {"b.conf", "include c.conf\nabs = host"}, {"c.conf", "#\n include a.conf"}},
       "a.conf",
       {"a.conf", "b.conf", "c.conf"},
       {"abs = host"},
       {"c.conf:2:10: error: include cycle: a.conf -> b.conf -> c.conf -> a.conf"}},
      {"a cycle that leaves out the root",
       {{"a.conf", "include b.conf"}, {"b.conf", "include c.conf"}, {"c.conf", "include b.conf"}},
       "a.conf",
       {"a.conf", "b.conf", "c.conf"},
       {},
       {"c.conf:1:9: error: include cycle: a.conf -> b.conf -> c.conf -> b.conf"}},
      {"problems in the order of reading",
       {{"a.conf", "x\ninclude b.conf\ny"}, {"b.conf", "z"}},
       "a.conf",
       {"a.conf", "b.conf"},
       {},
       {std::string("a.conf:1:1: error: ") + kNotALine, std::string("b.conf:1:1: error: ") + kNotALine,
        std::string("a.conf:3:1: error: ") + kNotALine}},
      {"a bad line does not replace a good one",
       {{"a.conf", "include b.conf\nabs = x"}, {"b.conf", "abs = host"}},
       "a.conf",
       {"a.conf", "b.conf"},
       {"abs = host"},
       {std::string("a.conf:2:7: error: unknown backend 'x'") + kKnown}},
      {"a NUL ends only its file",
       {{"a.conf", "include b.conf\nabs = host"}, {"b.conf", std::string("\0\n", 2)}},
       "a.conf",
       {"a.conf", "b.conf"},
       {"abs = host"},
       {"b.conf:1:1: error: a NUL byte: this is not a text file in UTF-8"}},
      {"a version line of an included file",
       {{"a.conf", "include b.conf"}, {"b.conf", "torch < 2"}},
       "a.conf",
       {"a.conf", "b.conf"},
       {},
       {"b.conf:1:1: error: this file is for torch < 2; torch here is 2.13.0+cpu"}},
      {"byte order mark of an included file",
       {{"a.conf", "include b.conf"},
        {"b.conf",
         "\xEF\xBB\xBF"
         "abs = host"}},
       "a.conf",
       {"a.conf", "b.conf"},
       {"abs = host"},
       {}},
  };
  for (const Case& c : cases) {
    const RoutingFile file = parse_files(c.files, c.root);
    EXPECT_EQ(file.files, c.read) << c.name;
    EXPECT_EQ(print_lines(file), c.lines) << c.name;
    EXPECT_EQ(messages(file.problems), c.problems) << c.name;
  }
}

class ReadFile : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_ / "inner"); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("flagos_read_file_" + std::to_string(std::random_device()()));
};

TEST_F(ReadFile, GivesEveryByte) {
  for (const std::string& text :
       {std::string(), std::string("a"), std::string("a\r\n\0\xFF\n", 6), std::string(100000, 'x')}) {
    EXPECT_EQ(read_file(write("a.conf", text)), text);
  }
}

TEST_F(ReadFile, NothingWhereThereIsNoFile) {
  EXPECT_EQ(read_file((folder_ / "no.conf").string()), std::nullopt);
  EXPECT_EQ(read_file(folder_.string()), std::nullopt);
  EXPECT_EQ(read_file(""), std::nullopt);
  EXPECT_EQ(read_file(std::string(100000, 'x')), std::nullopt);
  EXPECT_EQ(read_file(write("a.conf", "x") + "/b.conf"), std::nullopt);
}

TEST_F(ReadFile, ParsesFilesOfADisk) {
  const std::string root = write("a.conf", "include inner/b.conf\nneg = none\n");
  const std::string included = write("inner/b.conf", "include ../a.conf\nabs = host\ninclude ../inner\n");
  const RoutingFile file = parse_routing_file(root, "2.13.0", &read_file);
  EXPECT_EQ(file.files, (Strings{root, included}));
  EXPECT_EQ(print_lines(file), (Strings{"abs = host", "neg = none"}));
  EXPECT_EQ(messages(file.problems),
            (Strings{included + ":1:9: error: include cycle: " + root + " -> " + included + " -> " + root,
                     included + ":3:9: error: cannot read '" + (folder_ / "inner/../inner").string() + "'"}));
}

}  // namespace
}  // namespace flagos::testing
