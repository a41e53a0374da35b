// The verdicts of a case: every way in which running one call on one backend can end.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace flagos {

/// What came of a case. The numbers go between processes and are not stable; evidence that is kept holds the names.
enum class Verdict : uint8_t {
  kPass,              // the backend agrees with the oracle
  kWrong,             // it gave other values, or another dtype, shape or stride
  kUnwritten,         // it reported success and left (part of) a result as it was
  kNondeterministic,  // two runs on the same inputs differ
  kInputChanged,      // an argument that the schema calls read-only came back changed
  kDeclined,          // the backend refused before it wrote anything
  kError,             // it raised
  kCrash,             // the process ended: by a signal, or by leaving with a status
  kHang,              // the time limit passed
  kOutOfMemory,       // device or host memory did not suffice
  kRouteNotTaken,     // another backend served the call, so nothing was learnt about this one
  kInvalid,           // the oracle refuses the call too
  kNotApplicable,     // there is no oracle: no CPU kernel and no decomposition
};

/// Every verdict, in the order of the enumerators.
std::span<const Verdict> all_verdicts();

/// Lower-case words joined by '_', such as "input_changed": the spelling of evidence files and of torch_fl.survey.
/// The text is static. Empty for a number that is no verdict.
std::string_view verdict_name(Verdict verdict);

/// The verdict that is spelled `name`, exactly; nullopt where there is none.
std::optional<Verdict> parse_verdict(std::string_view name);

}  // namespace flagos
