// Tests of families, overrides and strictness, and of the checks of routes against what the process has.
#include "route/resolve.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "memory_files.h"

namespace flagos::testing {
namespace {

/// Overloads of every kind that a line can name.
Catalogue make_catalogue() {
  Catalogue catalogue;
  const auto add = [&catalogue](const char* name, const char* family, Spelling spelling) -> OverloadFacts& {
    OverloadFacts& facts = catalogue.overloads[name];
    facts = {family, spelling, true, true, true, false};
    return facts;
  };
  add("abs", "abs", Spelling::kFunctional);
  add("abs_", "abs", Spelling::kInPlace);
  add("abs.out", "abs", Spelling::kOut);
  add("add.Tensor", "add.Tensor", Spelling::kFunctional);
  add("add_.Tensor", "add.Tensor", Spelling::kInPlace);
  add("add.out", "add.Tensor", Spelling::kOut);
  add("add.Scalar", "add.Scalar", Spelling::kFunctional);
  add("__and__.Scalar", "__and__", Spelling::kFunctional);
  add("fill_.Scalar", "fill.Scalar", Spelling::kInPlace);
  // A family whose functional spelling is a composite without a router entry.
  OverloadFacts& composite = add("zero", "zero", Spelling::kFunctional);
  composite.routable = false;
  composite.backing_kernel = false;
  composite.routed_by_default = false;
  add("zero_", "zero", Spelling::kInPlace);
  OverloadFacts& composed = add("composed", "composed", Spelling::kFunctional);
  composed.routable = false;
  composed.backing_kernel = false;
  composed.routed_by_default = false;
  OverloadFacts& missing = add("missing", "missing", Spelling::kFunctional);
  missing.backing_kernel = false;
  missing.routed_by_default = false;
  OverloadFacts& view = add("view", "view", Spelling::kFunctional);
  view.routable = false;
  view.served_by_device = true;
  return catalogue;
}

/// "OVERLOAD: ROUTE [ORIGIN]" for each overload with a route of its own, by name.
Strings print_routes(const ResolvedRoutes& resolved) {
  Strings printed;
  for (const auto& [name, route] : resolved.routes) {
    printed.push_back(name + ": " + route.route->text + " [" + route.origin + "]");
  }
  return printed;
}

struct Case {
  const char* name;
  std::string text;
  std::vector<RouteOverride> overrides;
  bool strict = false;
  Strings routes;
  Strings problems;
};

void expect(const std::vector<Case>& cases) {
  const Catalogue catalogue = make_catalogue();
  for (const Case& c : cases) {
    const ResolvedRoutes resolved = resolve_routes(parse_text(c.text), c.overrides, catalogue, c.strict);
    EXPECT_EQ(print_routes(resolved), c.routes) << c.name;
    EXPECT_EQ(messages(resolved.problems), c.problems) << c.name;
    bool errors = false;
    for (const std::string& problem : c.problems) {
      errors = errors || problem.find(": error: ") != std::string::npos;
    }
    EXPECT_EQ(resolved.has_errors(), errors) << c.name;
  }
}

TEST(Resolve, Families) {
  expect({
      {"nothing", "", {}, false, {}, {}},
      {"functional governs all",
       "abs = host",
       {},
       false,
       {"abs: host [r.conf:1]", "abs.out: host [r.conf:1]", "abs_: host [r.conf:1]"},
       {}},
      {"functional governs all, a chain",
       "\nabs = host > none",
       {},
       false,
       {"abs: host > none [r.conf:2]", "abs.out: host > none [r.conf:2]", "abs_: host > none [r.conf:2]"},
       {}},
      {"another overload of that name is another family",
       "add.Scalar = none",
       {},
       false,
       {"add.Scalar: none [r.conf:1]"},
       {}},
      {"out alone governs itself", "abs.out = none", {}, false, {"abs.out: none [r.conf:1]"}, {}},
      {"in place alone governs itself", "abs_ = none", {}, false, {"abs_: none [r.conf:1]"}, {}},
      {"own lines win",
       "abs = host > none\nabs_ = none\nabs.out = host",
       {},
       false,
       {"abs: host > none [r.conf:1]", "abs.out: host [r.conf:3]", "abs_: none [r.conf:2]"},
       {}},
      {"own lines win whatever the order",
       "abs.out = host\nabs_ = none\nabs = host > none",
       {},
       false,
       {"abs: host > none [r.conf:3]", "abs.out: host [r.conf:1]", "abs_: none [r.conf:2]"},
       {}},
      {"own out line wins in an old file",
       "add.out = none\nadd.Tensor = host",
       {},
       false,
       {"add.Tensor: host [r.conf:2]", "add.out: none [r.conf:1]", "add_.Tensor: host [r.conf:2]"},
       {}},
      {"a functional spelling that is not routable governs its family",
       "zero = none",
       {},
       false,
       {"zero_: none [r.conf:1]"},
       {}},
      {"in place without any sibling",
       "fill_.Scalar = none\nabs = none",
       {},
       false,
       {"abs: none [r.conf:2]", "abs.out: none [r.conf:2]", "abs_: none [r.conf:2]", "fill_.Scalar: none [r.conf:1]"},
       {}},
  });
}

TEST(Resolve, InertInPlaceLinesOfOldFiles) {
  const auto warning = [](const std::string& place, const std::string& rest) {
    return "r.conf:" + place + ": warning: this line is inert: " + rest;
  };
  expect({
      {"functional differs",
       "abs = host\n  abs_ = none",
       {},
       false,
       {"abs: host [r.conf:1]", "abs.out: host [r.conf:1]", "abs_: host [r.conf:1]"},
       {warning("2:3", "'abs_' follows 'abs' (line 1)")}},
      {"out differs",
       "abs_ = none\nabs.out = host",
       {},
       false,
       {"abs.out: host [r.conf:2]", "abs_: host [r.conf:2]"},
       {warning("1:1", "'abs_' follows 'abs.out' (line 2)")}},
      {"functional agrees, out differs",
       "abs = none\nabs_ = none\nabs.out = host",
       {},
       false,
       {"abs: none [r.conf:1]", "abs.out: host [r.conf:3]", "abs_: host [r.conf:3]"},
       {warning("2:1", "'abs_' follows 'abs.out' (line 3)")}},
      {"all agree",
       "abs = none\nabs_ = none\nabs.out = none",
       {},
       false,
       {"abs: none [r.conf:1]", "abs.out: none [r.conf:3]", "abs_: none [r.conf:2]"},
       {}},
      {"the sibling is of another family",
       "add.Scalar = host\nadd_.Tensor = none",
       {},
       false,
       {"add.Scalar: host [r.conf:1]", "add_.Tensor: none [r.conf:2]"},
       {}},
      {"only the default differs", "default = host\nabs_ = none", {}, false, {"abs_: none [r.conf:2]"}, {}},
      {"a chain anywhere makes the file a new one",
       "abs = host\nabs_ = none\nadd.Scalar = host > none",
       {},
       false,
       {"abs: host [r.conf:1]", "abs.out: host [r.conf:1]", "abs_: none [r.conf:2]",
        "add.Scalar: host > none [r.conf:3]"},
       {}},
      {"a sibling's bad line counts for nothing",
       "abs = cuda\nabs_ = none",
       {},
       false,
       {"abs_: none [r.conf:2]"},
       {"r.conf:1:7: error: backend 'cuda' belongs to another accelerator; this process runs 'host'"}},
  });
}

TEST(Resolve, LinesThatCannotHold) {
  expect({
      {"unknown overload",
       "add.Tensr = host",
       {},
       false,
       {},
       {"r.conf:1:1: error: unknown overload 'add.Tensr'; did you mean 'add.Tensor'?"}},
      {"unknown overload, none near",
       " frobnicate.whatever = none",
       {},
       false,
       {},
       {"r.conf:1:2: error: unknown overload 'frobnicate.whatever'"}},
      {"default misspelt",
       "defualt = host",
       {},
       false,
       {},
       {"r.conf:1:1: error: unknown overload 'defualt'; did you mean 'default'?"}},
      {"not UTF-8",
       "abs\xE9 = host",
       {},
       false,
       {},
       {R"(r.conf:1:1: error: unknown overload 'abs\xe9'; did you mean 'abs'?)"}},
      {"another accelerator",
       "abs = host > cuda > none",
       {},
       false,
       {},
       {"r.conf:1:14: error: backend 'cuda' belongs to another accelerator; this process runs 'host'"}},
      {"a backend that is not here",
       "abs = flaggems > host",
       {},
       false,
       {},
       {"r.conf:1:7: error: backend 'flaggems' is not available in this process"}},
      {"every bad candidate",
       "abs = flaggems > gcu > tileops > none",
       {},
       false,
       {},
       {"r.conf:1:7: error: backend 'flaggems' is not available in this process",
        "r.conf:1:18: error: backend 'gcu' belongs to another accelerator; this process runs 'host'",
        "r.conf:1:24: error: backend 'tileops' is not available in this process"}},
      {"default, every bad candidate",
       "default = cuda > flaggems_cpp > none",
       {},
       false,
       {},
       {"r.conf:1:11: error: backend 'cuda' belongs to another accelerator; this process runs 'host'",
        "r.conf:1:18: error: backend 'flaggems_cpp' is not available in this process"}},
      {"no kernel",
       "missing = host > none",
       {},
       false,
       {},
       {"r.conf:1:11: error: backend 'host' has no kernel for 'missing'"}},
      {"none needs no kernel", "missing = none", {}, false, {"missing: none [r.conf:1]"}, {}},
      {"served by the device",
       "view = host\nabs_ = none",
       {},
       false,
       {"abs_: none [r.conf:2]"},
       {"r.conf:1:1: warning: 'view' is served by the device itself and cannot be routed"}},
      {"all problems are told, in the order of the lines",
       "zzzzzzzz = host\nabs = hots\nview = none\nabs_ = none",
       {},
       false,
       {"abs_: none [r.conf:4]"},
       {"r.conf:1:1: error: unknown overload 'zzzzzzzz'",
        "r.conf:2:7: error: unknown backend 'hots'; did you mean 'host'? (known: flaggems_cpp, flaggems, tileops, "
        "host, cuda, gcu, none)",
        "r.conf:3:1: warning: 'view' is served by the device itself and cannot be routed"}},
  });
}

TEST(Resolve, WhatWasMeant) {
  expect({
      {"an operator without its overload",
       "add = host",
       {},
       false,
       {},
       {"r.conf:1:1: error: unknown overload 'add'; the operator has the overloads add.Scalar, add.Tensor, add.out"}},
      {"with its namespace",
       "aten::abs = host",
       {},
       false,
       {},
       {"r.conf:1:1: error: unknown overload 'aten::abs'; overloads of ATen are written without 'aten::'"}},
      {"composed of others",
       "composed = none",
       {},
       false,
       {},
       {"r.conf:1:1: warning: this line is inert: PyTorch composes 'composed' of other overloads; route those"}},
  });
}

TEST(Resolve, Overrides) {
  expect({
      {"over no line", "", {{"abs", "none", "FLAGOS_OP_abs"}}, false, {"abs: none [FLAGOS_OP_abs]"}, {}},
      {"over a line, for that spelling alone",
       "abs = host",
       {{"abs_", "host > none", "FLAGOS_OP_abs_"}},
       false,
       {"abs: host [r.conf:1]", "abs.out: host [r.conf:1]", "abs_: host > none [FLAGOS_OP_abs_]"},
       {}},
      {"over a line of its own that is inert",
       "abs = host\nabs_ = none",
       {{"abs_", "none", "FLAGOS_OP_abs_"}},
       false,
       {"abs: host [r.conf:1]", "abs.out: host [r.conf:1]", "abs_: none [FLAGOS_OP_abs_]"},
       {"r.conf:2:1: warning: this line is inert: 'abs_' follows 'abs' (line 1)"}},
      {"the last of two",
       "",
       {{"abs", "none", "FLAGOS_OP_abs"}, {"abs", "host", "set_route"}},
       false,
       {"abs: host [set_route]"},
       {}},
      {"unknown overload",
       "abs_ = none",
       {{"abz", "none", "FLAGOS_OP_abz"}},
       false,
       {"abs_: none [r.conf:1]"},
       {"FLAGOS_OP_abz: error: unknown overload 'abz'; did you mean 'abs'?"}},
      {"no overload", "", {{"", "none", "FLAGOS_OP_"}}, false, {}, {"FLAGOS_OP_: error: unknown overload ''"}},
      {"default is no overload",
       "",
       {{"default", "none", "set_route"}},
       false,
       {},
       {"set_route: error: unknown overload 'default'"}},
      {"served by the device",
       "",
       {{"view", "none", "FLAGOS_OP_view"}},
       false,
       {},
       {"FLAGOS_OP_view: error: 'view' is served by the device itself and cannot be routed"}},
      {"no route", "", {{"abs", "", "FLAGOS_OP_abs"}}, false, {}, {"FLAGOS_OP_abs: error: a backend is missing here"}},
      {"conditions",
       "",
       {{"abs", "host(rank > 2)", "FLAGOS_OP_abs"}},
       false,
       {},
       {"FLAGOS_OP_abs: error: conditions in parentheses are not part of the routing language of this version"}},
      {"backend that is not here",
       "abs = host",
       {{"abs", "gcu", "FLAGOS_OP_abs"}},
       false,
       {"abs: host [r.conf:1]", "abs.out: host [r.conf:1]", "abs_: host [r.conf:1]"},
       {"FLAGOS_OP_abs: error: backend 'gcu' belongs to another accelerator; this process runs 'host'"}},
      {"no kernel",
       "",
       {{"missing", "host", "FLAGOS_OP_missing"}},
       false,
       {},
       {"FLAGOS_OP_missing: error: backend 'host' has no kernel for 'missing'"}},
      {"one bad, one good",
       "",
       {{"abz", "none", "A"}, {"abs", "none", "B"}},
       false,
       {"abs: none [B]"},
       {"A: error: unknown overload 'abz'; did you mean 'abs'?"}},
  });
}

TEST(Resolve, Strictness) {
  const auto routed_to_none = [](const std::string& name) {
    return "error: '" + name + "' is routed to 'none' although host has a kernel for it";
  };
  expect({
      {"not asked for", "add.Scalar = none", {}, false, {"add.Scalar: none [r.conf:1]"}, {}},
      {"none with a kernel",
       "\n  add.Scalar = none",
       {},
       true,
       {"add.Scalar: none [r.conf:2]"},
       {"r.conf:2:3: " + routed_to_none("add.Scalar")}},
      {"the whole family",
       "abs = none",
       {},
       true,
       {"abs: none [r.conf:1]", "abs.out: none [r.conf:1]", "abs_: none [r.conf:1]"},
       {"r.conf:1:1: " + routed_to_none("abs"), "r.conf:1:1: " + routed_to_none("abs.out"),
        "r.conf:1:1: " + routed_to_none("abs_")}},
      {"none without a kernel", "missing = none", {}, true, {"missing: none [r.conf:1]"}, {}},
      {"none last", "add.Scalar = host > none", {}, true, {"add.Scalar: host > none [r.conf:1]"}, {}},
      {"an override",
       "add.Scalar = host",
       {{"add.Scalar", "none", "FLAGOS_OP_add__Scalar"}},
       true,
       {"add.Scalar: none [FLAGOS_OP_add__Scalar]"},
       {"FLAGOS_OP_add__Scalar: " + routed_to_none("add.Scalar")}},
      {"an override that mends the line",
       "add.Scalar = none",
       {{"add.Scalar", "host", "FLAGOS_OP_add__Scalar"}},
       true,
       {"add.Scalar: host [FLAGOS_OP_add__Scalar]"},
       {}},
      {"the sibling that an inert line follows",
       "abs.out = none\nabs_ = host",
       {},
       true,
       {"abs.out: none [r.conf:1]", "abs_: none [r.conf:1]"},
       {"r.conf:1:1: " + routed_to_none("abs.out"), "r.conf:1:1: " + routed_to_none("abs_"),
        "r.conf:2:1: warning: this line is inert: 'abs_' follows 'abs.out' (line 1)"}},
  });
}

TEST(Resolve, TheDefaultRoute) {
  struct DefaultCase {
    const char* text;
    const char* route;
    const char* origin;
  };
  const Catalogue catalogue = make_catalogue();
  for (const DefaultCase& c :
       {DefaultCase{"", "host > none", "built in"}, DefaultCase{"\ndefault = none", "none", "r.conf:2"},
        DefaultCase{"default = host", "host", "r.conf:1"}}) {
    const ResolvedRoutes resolved = resolve_routes(parse_text(c.text), {}, catalogue, false);
    EXPECT_EQ(resolved.default_route.route->text, c.route) << c.text;
    EXPECT_EQ(resolved.default_route.origin, c.origin) << c.text;
    EXPECT_TRUE(resolved.routes.empty()) << c.text;
  }
}

TEST(Resolve, AnotherAccelerator) {
  Catalogue catalogue = make_catalogue();
  catalogue.accelerator_backend = Backend::kCuda;
  catalogue.accelerator_name = "cuda";
  const ResolvedRoutes resolved =
      resolve_routes(parse_text("add.Scalar = cuda\nadd.out = host > none\nabs_ = none"), {}, catalogue, true);
  EXPECT_EQ(resolved.default_route.route->text, "cuda > none");
  EXPECT_EQ(print_routes(resolved), (Strings{"abs_: none [r.conf:3]", "add.Scalar: cuda [r.conf:1]"}));
  EXPECT_EQ(messages(resolved.problems),
            (Strings{"r.conf:2:11: error: backend 'host' belongs to another accelerator; this process runs 'cuda'",
                     "r.conf:3:1: error: 'abs_' is routed to 'none' although cuda has a kernel for it"}));
}

TEST(Resolve, RoutesAreInterned) {
  const ResolvedRoutes resolved =
      resolve_routes(parse_text("default = host > none\nabs = host>none"), {}, make_catalogue(), false);
  EXPECT_EQ(resolved.routes.at("abs").route, resolved.default_route.route);
}

TEST(Resolve, LinesOfAnOverlayKeepTheirFiles) {
  const Files files = {{"a.conf", "include b.conf\nabs_ = none > host\nadd.out = none"},
                       {"b.conf", "abs = host > none\nadd.out = host\nnope.nope.nope = host"}};
  const ResolvedRoutes resolved = resolve_routes(parse_files(files, "a.conf"), {}, make_catalogue(), false);
  EXPECT_EQ(print_routes(resolved), (Strings{"abs: host > none [b.conf:1]", "abs.out: host > none [b.conf:1]",
                                             "abs_: host > none [b.conf:1]", "add.out: none [a.conf:3]"}));
  EXPECT_EQ(messages(resolved.problems),
            (Strings{"a.conf:2:15: error: nothing is reached after 'none', which accepts every call",
                     "b.conf:3:1: error: unknown overload 'nope.nope.nope'"}));
}

TEST(Resolve, OverloadsFromVariables) {
  Catalogue catalogue = make_catalogue();
  catalogue.overloads["mylib::conv.out"] = {};
  struct VariableCase {
    const char* suffix;
    const char* overload;
  };
  const std::vector<VariableCase> cases = {
      {"abs", "abs"},
      {"abs_", "abs_"},
      {"abs__out", "abs.out"},
      {"add__Tensor", "add.Tensor"},
      {"add___Tensor", "add_.Tensor"},
      {"__and____Scalar", "__and__.Scalar"},
      {"mylib::conv__out", "mylib::conv.out"},
      {"view", "view"},
      {"", ""},
      {"add.Tensor", ""},
      {"add_Tensor", ""},
      {"ADD__TENSOR", ""},
      {"abs__", ""},
      {"default", ""},
  };
  for (const VariableCase& c : cases) {
    EXPECT_EQ(overload_from_variable(c.suffix, catalogue), c.overload) << c.suffix;
  }
}

}  // namespace
}  // namespace flagos::testing
