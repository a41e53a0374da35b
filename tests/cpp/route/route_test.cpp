// Tests of backend names and of interned routes.
#include "route/route.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace flagos {
namespace {

TEST(BackendNames, ReadBackAsThemselves) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kBackendNames.size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(kBackendNames[i].backend), i);  // backend_name indexes by it
    EXPECT_EQ(backend_name(kBackendNames[i].backend), kBackendNames[i].name);
    EXPECT_EQ(backend_from_name(kBackendNames[i].name), kBackendNames[i].backend);
    names.insert(kBackendNames[i].name);
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"host", "cuda", "gcu", "flaggems_cpp", "flaggems", "tileops", "none"}));
}

TEST(BackendNames, NothingElseIsOne) {
  for (const std::string_view name : {"", " host", "host ", "Host", "HOST", "hos", "hostx", "cpu", "flagos"}) {
    EXPECT_EQ(backend_from_name(name), std::nullopt) << name;
  }
}

TEST(InternRoute, WritesTheCanonicalText) {
  struct Case {
    std::vector<Candidate> candidates;
    std::string text;
  };
  const std::vector<Case> cases = {
      {{{Backend::kHost}}, "host"},
      {{{Backend::kNone}}, "none"},
      {{{Backend::kFlagGems}, {Backend::kHost}, {Backend::kNone}}, "flaggems > host > none"},
  };
  for (const Case& c : cases) {
    const Route* route = intern_route(c.candidates);
    EXPECT_EQ(route->text, c.text);
    ASSERT_EQ(route->candidates.size(), c.candidates.size());
    for (size_t i = 0; i < c.candidates.size(); ++i) {
      EXPECT_EQ(route->candidates[i].backend, c.candidates[i].backend);
    }
  }
}

TEST(InternRoute, OnePointerARoute) {
  const Route* host = intern_route({{Backend::kHost}});
  const Route* chain = intern_route({{Backend::kHost}, {Backend::kNone}});
  const Route* other_order = intern_route({{Backend::kNone}, {Backend::kHost}});
  EXPECT_EQ(host, intern_route({{Backend::kHost}}));
  EXPECT_EQ(chain, intern_route({{Backend::kHost}, {Backend::kNone}}));
  EXPECT_NE(host, chain);
  EXPECT_NE(chain, other_order);
}

TEST(InternRoute, ThreadsGetTheSamePointers) {
  constexpr size_t kThreads = 8;
  constexpr size_t kRoutes = 7 * 7 * 7;  // every chain of three, most of them made here for the first time
  std::array<std::vector<const Route*>, kThreads> seen;
  std::vector<std::thread> threads;
  for (std::vector<const Route*>& mine : seen) {
    threads.emplace_back([&mine] {
      for (size_t i = 0; i < kRoutes; ++i) {
        mine.push_back(intern_route({{Backend{static_cast<uint8_t>(i / 49)}},
                                     {Backend{static_cast<uint8_t>(i / 7 % 7)}},
                                     {Backend{static_cast<uint8_t>(i % 7)}}}));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(std::set<const Route*>(seen[0].begin(), seen[0].end()).size(), kRoutes);
  for (const std::vector<const Route*>& mine : seen) {
    EXPECT_EQ(mine, seen[0]);
  }
}

}  // namespace
}  // namespace flagos
