// Tests of the verdicts' names.
#include "survey/verdict.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace flagos {
namespace {

// Evidence that was written years ago holds these words.
const std::vector<std::string> kNames = {
    "pass",  "wrong", "unwritten",     "nondeterministic", "input_changed", "declined",       "error",
    "crash", "hang",  "out_of_memory", "route_not_taken",  "invalid",       "not_applicable",
};

TEST(Verdict, NamesBothWays) {
  std::vector<std::string> names;
  for (const Verdict verdict : all_verdicts()) {
    names.emplace_back(verdict_name(verdict));
    EXPECT_EQ(parse_verdict(verdict_name(verdict)), verdict) << names.back();
  }
  EXPECT_EQ(names, kNames);
}

TEST(Verdict, UnknownNamesAndNumbersAreNone) {
  for (const char* name : {"", "Pass", "pass ", "passed", "out of memory"}) {
    EXPECT_EQ(parse_verdict(name), std::nullopt) << name;
  }
  EXPECT_EQ(verdict_name(static_cast<Verdict>(13)), "");
  EXPECT_EQ(verdict_name(static_cast<Verdict>(255)), "");
}

}  // namespace
}  // namespace flagos
