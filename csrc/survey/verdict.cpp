// Names of the verdicts.
#include "survey/verdict.h"

#include <array>
#include <cstddef>

namespace flagos {
namespace {

struct Row {
  Verdict verdict;
  std::string_view name;
};

constexpr std::array kRows = {
    Row{Verdict::kPass, "pass"},
    Row{Verdict::kWrong, "wrong"},
    Row{Verdict::kUnwritten, "unwritten"},
    Row{Verdict::kNondeterministic, "nondeterministic"},
    Row{Verdict::kInputChanged, "input_changed"},
    Row{Verdict::kDeclined, "declined"},
    Row{Verdict::kError, "error"},
    Row{Verdict::kCrash, "crash"},
    Row{Verdict::kHang, "hang"},
    Row{Verdict::kOutOfMemory, "out_of_memory"},
    Row{Verdict::kRouteNotTaken, "route_not_taken"},
    Row{Verdict::kInvalid, "invalid"},
    Row{Verdict::kNotApplicable, "not_applicable"},
};

constexpr std::array<Verdict, kRows.size()> kVerdicts = [] {
  std::array<Verdict, kRows.size()> verdicts{};
  for (size_t i = 0; i < kRows.size(); ++i) {
    verdicts[i] = kRows[i].verdict;
  }
  return verdicts;
}();

constexpr bool rows_stand_in_order() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<size_t>(kRows[i].verdict) != i) {
      return false;
    }
  }
  return static_cast<size_t>(Verdict::kNotApplicable) + 1 == kRows.size();
}
static_assert(rows_stand_in_order(), "verdict_name indexes the rows by enumerator");

}  // namespace

std::span<const Verdict> all_verdicts() {
  return kVerdicts;
}

std::string_view verdict_name(Verdict verdict) {
  const auto index = static_cast<size_t>(verdict);
  return index < kRows.size() ? kRows[index].name : std::string_view{};
}

std::optional<Verdict> parse_verdict(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) {
      return row.verdict;
    }
  }
  return std::nullopt;
}

}  // namespace flagos
