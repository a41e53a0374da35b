// Tests of reading the FLAGOS_* environment variables.
#include "route/settings.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace flagos {
namespace {

using Strings = std::vector<std::string>;

Settings read(const Strings& variables) {
  std::vector<const char*> environment;
  for (const std::string& variable : variables) {
    environment.push_back(variable.c_str());
  }
  environment.push_back(nullptr);
  return read_settings(environment.data());
}

/// What the settings amount to, in one line.
std::string describe(const Settings& s) {
  return s.accelerator + " devices=" + std::to_string(s.host_devices) + " memory=" + std::to_string(s.host_memory) +
         " config=" + s.backend_config + " log=" + s.log + (s.keep_time ? " time" : "") +
         (s.refuse_round_trips ? " refuse" : "") + (s.strict_routes ? " strict" : "") +
         (s.use_flaggems ? " flaggems" : "");
}

constexpr const char* kDefaults = "host devices=1 memory=0 config= log=";

TEST(ReadSettings, Values) {
  struct Case {
    Strings variables;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {{}, kDefaults},
      {{"FLAGOS_ACCELERATOR=host"}, kDefaults},
      {{"FLAGOS_HOST_DEVICES=1"}, kDefaults},
      {{"FLAGOS_HOST_DEVICES=64"}, "host devices=64 memory=0 config= log="},
      {{"FLAGOS_HOST_MEMORY=3K"}, "host devices=1 memory=3072 config= log="},
      {{"FLAGOS_BACKEND_CONFIG=/a b/=x.conf"}, "host devices=1 memory=0 config=/a b/=x.conf log="},
      {{"FLAGOS_LOG=dispatch,fallback"}, "host devices=1 memory=0 config= log=dispatch,fallback"},
      {{"FLAGOS_STATS=time"}, std::string(kDefaults) + " time"},
      {{"FLAGOS_FALLBACK=error"}, std::string(kDefaults) + " refuse"},
      {{"FLAGOS_STRICT_ROUTES=1", "FLAGOS_USE_FLAGGEMS=0"}, std::string(kDefaults) + " strict"},
      {{"FLAGOS_USE_FLAGGEMS=1", "FLAGOS_STRICT_ROUTES=0"}, std::string(kDefaults) + " flaggems"},
      // Set but empty is as good as unset.
      {{"FLAGOS_ACCELERATOR=", "FLAGOS_HOST_DEVICES=", "FLAGOS_HOST_MEMORY=", "FLAGOS_BACKEND_CONFIG=", "FLAGOS_LOG=",
        "FLAGOS_STATS=", "FLAGOS_FALLBACK=", "FLAGOS_STRICT_ROUTES=", "FLAGOS_USE_FLAGGEMS="},
       kDefaults},
      // The first of two is the one that getenv gives.
      {{"FLAGOS_HOST_DEVICES=2", "FLAGOS_HOST_DEVICES=3"}, "host devices=2 memory=0 config= log="},
      // Not ours, or no variable at all.
      {{"PATH=/bin", "FLAGOSX=1", "flagos_log=x", "MY_FLAGOS_LOG=x", "FLAGOS_LOG", "", "="}, kDefaults},
  };
  for (const Case& c : cases) {
    const Settings settings = read(c.variables);
    EXPECT_EQ(describe(settings), c.expected) << ::testing::PrintToString(c.variables);
    EXPECT_EQ(settings.warnings, Strings{}) << ::testing::PrintToString(c.variables);
  }
}

TEST(ReadSettings, NoEnvironmentAtAll) {
  EXPECT_EQ(describe(read_settings(nullptr)), kDefaults);
}

TEST(ReadSettings, BadValueNamesVariableValueAndWhatIsRight) {
  const std::string count = ": expected a whole number from 1 to 64";
  const std::string bytes = ": expected bytes as a whole number, with suffix K, M or G for powers of 1024";
  struct Case {
    std::string variable;
    std::string expectation;
  };
  const std::vector<Case> cases = {
      {"FLAGOS_ACCELERATOR=hsot", ": expected one of the accelerators of this build: host; did you mean 'host'?"},
      {"FLAGOS_ACCELERATOR=quantum", ": expected one of the accelerators of this build: host"},
      {"FLAGOS_HOST_DEVICES=0", count},
      {"FLAGOS_HOST_DEVICES=65", count},
      {"FLAGOS_HOST_DEVICES=-1", count},
      {"FLAGOS_HOST_DEVICES=+2", count},
      {"FLAGOS_HOST_DEVICES= 2", count},
      {"FLAGOS_HOST_DEVICES=2 ", count},
      {"FLAGOS_HOST_DEVICES=2.0", count},
      {"FLAGOS_HOST_DEVICES=0x2", count},
      {"FLAGOS_HOST_DEVICES=two", count},
      {"FLAGOS_HOST_DEVICES=99999999999999999999", count},
      {"FLAGOS_HOST_DEVICES=4294967297", count},  // 1 if it were cut to 32 bits
      {"FLAGOS_HOST_MEMORY=lots", bytes},
      {"FLAGOS_STATS=tmie", ": expected time; did you mean 'time'?"},
      {"FLAGOS_STATS=1", ": expected time"},
      {"FLAGOS_FALLBACK=eror", ": expected error; did you mean 'error'?"},
      {"FLAGOS_FALLBACK=none", ": expected error"},
      {"FLAGOS_STRICT_ROUTES=yes", ": expected 0 or 1"},
      {"FLAGOS_STRICT_ROUTES=2", ": expected 0 or 1"},
      {"FLAGOS_USE_FLAGGEMS=true", ": expected 0 or 1"},
      {"FLAGOS_USE_FLAGGEMS=1 ", ": expected 0 or 1"},
  };
  for (const Case& c : cases) {
    try {
      read({c.variable});
      ADD_FAILURE() << "accepted: " << c.variable;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), c.variable + c.expectation);
    }
  }
}

TEST(ReadSettings, UnknownVariableWarnsWithTheNearestName) {
  struct Case {
    std::string variable;
    Strings warnings;
  };
  const std::vector<Case> cases = {
      {"FLAGOS_ACCELERATR=host",
       {"unknown environment variable FLAGOS_ACCELERATR; did you mean 'FLAGOS_ACCELERATOR'?"}},
      {"FLAGOS_STRICT_ROUTE=1",
       {"unknown environment variable FLAGOS_STRICT_ROUTE; did you mean 'FLAGOS_STRICT_ROUTES'?"}},
      {"FLAGOS_LGO=dispatch", {"unknown environment variable FLAGOS_LGO; did you mean 'FLAGOS_LOG'?"}},
      {"FLAGOS_LGO=", {"unknown environment variable FLAGOS_LGO; did you mean 'FLAGOS_LOG'?"}},
      {"FLAGOS_SOMETHING_QUITE_DIFFERENT=1", {"unknown environment variable FLAGOS_SOMETHING_QUITE_DIFFERENT"}},
      {"FLAGOS_TEST_ANYTHING=1", {}},  // the name space of the tests
  };
  for (const Case& c : cases) {
    const Settings settings = read({c.variable});
    EXPECT_EQ(settings.warnings, c.warnings) << c.variable;
    EXPECT_EQ(describe(settings), kDefaults) << c.variable;
  }
}

TEST(ReadSettings, UnknownVariablesAllWarn) {
  const Settings settings = read({"FLAGOS_QQQQQQQQ=1", "FLAGOS_HOST_DEVICES=2", "FLAGOS_WWWWWWWW=2"});
  EXPECT_EQ(settings.warnings,
            (Strings{"unknown environment variable FLAGOS_QQQQQQQQ", "unknown environment variable FLAGOS_WWWWWWWW"}));
}

TEST(ReadSettings, RouteOverridesKeepSuffixAndText) {
  using Overrides = std::vector<std::pair<std::string, std::string>>;
  const Settings settings = read(
      {"FLAGOS_OP_add__Tensor=host > none", "FLAGOS_OP_abs=none", "FLAGOS_OP_=host", "FLAGOS_OP___and____Scalar=a=b"});
  EXPECT_EQ(settings.route_overrides,
            (Overrides{{"", "host"}, {"__and____Scalar", "a=b"}, {"abs", "none"}, {"add__Tensor", "host > none"}}));
  EXPECT_EQ(settings.warnings, Strings{});
}

TEST(ReadSettings, TableHasEveryVariableOnceWithItsOrigin) {
  const Settings settings =
      read({"FLAGOS_HOST_DEVICES=1", "FLAGOS_LOG=", "FLAGOS_OP_abs=none", "FLAGOS_NOTHING_AT_ALL=1"});
  std::vector<std::string> rows;
  std::set<std::string> names;
  for (const Setting& row : settings.table) {
    EXPECT_NE(row.help, "") << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    rows.push_back(row.name + "=" + row.value + " (" + row.default_value + ")" + (row.from_environment ? " set" : ""));
  }
  EXPECT_EQ(rows, (Strings{"FLAGOS_ACCELERATOR=host (host)", "FLAGOS_HOST_DEVICES=1 (1) set", "FLAGOS_HOST_MEMORY= ()",
                           "FLAGOS_BACKEND_CONFIG= ()", "FLAGOS_LOG= ()", "FLAGOS_STATS= ()", "FLAGOS_FALLBACK= ()",
                           "FLAGOS_STRICT_ROUTES=0 (0)", "FLAGOS_USE_FLAGGEMS=0 (0)", "FLAGOS_OP_abs=none () set"}));
}

TEST(ReadSettings, InstalledSettingsAreTheOnesInForce) {
  const Settings before = settings();
  install_settings(read({"FLAGOS_HOST_DEVICES=7"}));
  EXPECT_EQ(settings().host_devices, 7);
  install_settings(before);
  EXPECT_EQ(settings().host_devices, before.host_devices);
}

TEST(ParseBytes, Values) {
  struct Case {
    std::string text;
    size_t bytes;
  };
  const std::vector<Case> cases = {
      {"1", 1},
      {"1048576", 1048576},
      {"007", 7},
      {"1K", 1024},
      {"512k", 524288},
      {"64M", 67108864},
      {"64m", 67108864},
      {"2G", 2147483648},
      {"2g", 2147483648},
      {"18446744073709551615", std::numeric_limits<size_t>::max()},
      // The largest that fit: 2^54 - 1, 2^44 - 1 and 2^34 - 1.
      {"18014398509481983K", 18446744073709550592U},
      {"17592186044415M", 18446744073708503040U},
      {"17179869183G", 18446744072635809792U},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(parse_bytes("FLAGOS_HOST_MEMORY", c.text), c.bytes) << c.text;
  }
}

TEST(ParseBytes, RefusesTheRest) {
  const Strings texts = {"",
                         "K",
                         "0",
                         "0G",
                         "-1",
                         "+1",
                         " 1",
                         "1 ",
                         "1 K",
                         "1KB",
                         "1KiB",
                         "1T",
                         "1.5G",
                         "0x10",
                         "1e6",
                         "1GG",
                         "G1",
                         "١",
                         "none",
                         "18446744073709551616",
                         "18014398509481984K",
                         "17592186044416M",
                         "17179869184G",  // 2^64 each
                         "99999999999999999999999999G"};
  for (const std::string& text : texts) {
    try {
      const size_t bytes = parse_bytes("LIMIT", text);
      ADD_FAILURE() << "accepted: " << text << " as " << bytes;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(),
                "LIMIT=" + text + ": expected bytes as a whole number, with suffix K, M or G for powers of 1024");
    }
  }
}

}  // namespace
}  // namespace flagos
