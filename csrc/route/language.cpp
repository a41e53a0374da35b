// Parser of routing files.
#include "route/language.h"

#include "route/spelling.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>

namespace flagos {
namespace {

using Version = std::array<int, 3>;

// With `whole`, nothing may follow the numbers; else a suffix may, as in 2.13.0a0+git1234.
std::optional<Version> parse_version(std::string_view text, bool whole) {
  Version version{};
  if (text.empty() || text.front() == '-') {
    return std::nullopt;  // from_chars would take the sign
  }
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  for (size_t part = 0; part < version.size(); ++part) {
    const auto [next, error] = std::from_chars(at, end, version[part]);
    if (error != std::errc() || version[part] < 0) {
      return std::nullopt;
    }
    at = next;
    if (at == end || *at != '.') {
      break;
    }
    ++at;
  }
  const bool good = at == end || (!whole && (*at < '0' || *at > '9') && *at != '.');
  return good ? std::optional<Version>(version) : std::nullopt;
}

// Where the candidate that begins at `start` ends: a '>' inside parentheses is part of a condition.
size_t end_of_candidate(std::string_view text, size_t start) {
  int depth = 0;
  for (size_t i = start; i < text.size(); ++i) {
    if (text[i] == '(') {
      ++depth;
    } else if (text[i] == ')' && depth > 0) {
      --depth;
    } else if (text[i] == '>' && depth == 0) {
      return i;
    }
  }
  return text.size();
}

class Parser {
 public:
  Parser(std::string torch_version, const FileReader& reader, RoutingFile& result)
      : torch_version_(std::move(torch_version)), reader_(reader), result_(result) {}

  void parse(const std::string& path, const Place& asked_by) {
    const std::string key = std::filesystem::path(path).lexically_normal().string();
    if (std::find(open_.begin(), open_.end(), key) != open_.end()) {
      std::string cycle;
      for (const std::string& file : open_) {
        cycle += file + " -> ";
      }
      report(asked_by, "include cycle: " + cycle + key);
      return;
    }
    const std::optional<std::string> text = reader_(path);
    if (!text.has_value()) {
      report(asked_by.line == 0 ? Place{path, 0, 0} : asked_by, "cannot read " + in_quotes(path));
      return;
    }
    open_.push_back(key);
    result_.files.push_back(path);
    // Only a second line of the same file is a duplicate; a line of an included file is meant to be replaced.
    std::map<std::string, int> seen;
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // some editors put it first; it is no part of line 1
    std::istringstream stream(text->starts_with(kByteOrderMark) ? text->substr(kByteOrderMark.size()) : *text);
    std::string line;
    for (int number = 1; std::getline(stream, line); ++number) {
      if (const size_t at = line.find('\0'); at != std::string::npos) {
        report(Place{path, number, static_cast<int>(at) + 1}, "a NUL byte: this is not a text file in UTF-8");
        break;  // in UTF-16 every line would say so
      }
      parse_line(line, path, number, seen);
    }
    open_.pop_back();
  }

 private:
  void report(const Place& place, std::string message, Severity severity = Severity::kError) {
    result_.problems.push_back({place, severity, std::move(message)});
  }

  void parse_line(const std::string& line, const std::string& path, int number, std::map<std::string, int>& seen) {
    const std::string_view whole(line);
    const std::string_view code = whole.substr(0, std::min(whole.find('#'), whole.size()));
    const std::string_view body = trim(code);
    if (body.empty()) {
      return;
    }
    const auto column_of = [&whole](std::string_view part) { return static_cast<int>(part.data() - whole.data()) + 1; };
    const Place place{path, number, column_of(body)};
    const auto starts_word = [body](std::string_view word) {
      return body.starts_with(word) &&
             (body.size() == word.size() || body[word.size()] == ' ' || body[word.size()] == '\t');
    };
    const size_t equals = body.find('=');
    constexpr std::string_view kTorch = "torch";
    const std::string_view after_torch = body.starts_with(kTorch) ? body.substr(kTorch.size()) : std::string_view();
    if (starts_word("include")) {
      const std::string_view target = trim(body.substr(7));
      if (target.empty()) {
        report(place, "include needs a path");
        return;
      }
      const std::filesystem::path included{std::string(target)};
      const Place target_place{path, number, column_of(target)};
      parse((included.is_absolute() ? included : std::filesystem::path(path).parent_path() / included).string(),
            target_place);
      return;
    }
    if (starts_word(kTorch) || after_torch.starts_with('<') || after_torch.starts_with('>') ||
        after_torch.starts_with("==")) {
      check_version(trim(after_torch), place);
      return;
    }
    if (equals == std::string_view::npos) {
      report(place, "expected 'overload = backend', 'default = backend', 'include path' or 'torch >= version'");
      return;
    }
    RouteLine parsed;
    parsed.name = std::string(trim(body.substr(0, equals)));
    parsed.place = place;
    if (parsed.name.empty()) {
      report(place, "an overload is missing before '='");
      return;
    }
    if (parsed.name.find_first_of(" \t") != std::string::npos) {
      report(place, in_quotes(parsed.name) + " is not one overload name");
      return;
    }
    const std::string_view right = trim(body.substr(equals + 1));
    const Place right_place{path, number,
                            right.empty() ? column_of(body) + static_cast<int>(equals) + 1 : column_of(right)};
    const size_t before = result_.problems.size();
    parsed.candidates = parse_route(std::string(right), right_place, result_.problems, &parsed.candidate_places);
    if (const auto [first, fresh] = seen.emplace(parsed.name, number); !fresh) {
      report(place, in_quotes(parsed.name) + " has a route already, in line " + std::to_string(first->second));
      return;
    }
    if (result_.problems.size() != before) {
      return;
    }
    if (parsed.candidates.size() > 1) {
      result_.old_form = false;
    }
    if (parsed.name == "default") {
      result_.default_line = std::move(parsed);
    } else {
      std::string name = parsed.name;
      result_.lines.insert_or_assign(std::move(name), std::move(parsed));
    }
  }

  void check_version(std::string_view condition, const Place& place) {
    constexpr std::array<std::string_view, 5> kOperators = {">=", "<=", "==", ">", "<"};
    for (const std::string_view symbol : kOperators) {
      if (!condition.starts_with(symbol)) {
        continue;
      }
      const std::string_view text = trim(condition.substr(symbol.size()));
      const std::optional<Version> wanted = parse_version(text, true);
      const std::optional<Version> present = parse_version(torch_version_, false);
      if (!wanted.has_value() || !present.has_value()) {
        report(place, in_quotes(text) + " is not a version such as 2.11");
        return;
      }
      const bool holds = symbol == ">="   ? *present >= *wanted
                         : symbol == "<=" ? *present <= *wanted
                         : symbol == "==" ? *present == *wanted
                         : symbol == ">"  ? *present > *wanted
                                          : *present < *wanted;
      if (!holds) {
        report(place, "this file is for torch " + std::string(symbol) + " " + std::string(text) + "; torch here is " +
                          torch_version_);
      }
      return;
    }
    report(place, "expected a comparison such as 'torch >= 2.11'");
  }

  std::string torch_version_;
  const FileReader& reader_;
  RoutingFile& result_;
  std::vector<std::string> open_;
};

}  // namespace

std::string to_string(const Place& place) {
  std::string text = place.file;
  if (place.line > 0) {
    text += ":" + std::to_string(place.line) + ":" + std::to_string(place.column);
  }
  return text;
}

std::string to_string(const Problem& problem) {
  const char* severity = problem.severity == Severity::kError     ? "error"
                         : problem.severity == Severity::kWarning ? "warning"
                                                                  : "note";
  return to_string(problem.place) + ": " + severity + ": " + problem.message;
}

std::optional<std::string> read_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return std::nullopt;
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    return std::nullopt;
  }
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  return stream.bad() ? std::nullopt : std::optional<std::string>(std::move(text));
}

std::vector<Candidate> parse_route(const std::string& text, const Place& place, std::vector<Problem>& problems,
                                   std::vector<Place>* candidate_places) {
  std::vector<Candidate> candidates;
  std::set<Backend> seen;
  const std::string_view whole(text);
  for (size_t start = 0; start <= whole.size();) {
    const size_t end = end_of_candidate(whole, start);
    const std::string_view word = trim(whole.substr(start, end - start));
    Place at = place;
    at.column += static_cast<int>(word.empty() ? start : static_cast<size_t>(word.data() - whole.data()));
    start = end + 1;
    const std::optional<Backend> backend = backend_from_name(word);
    if (word.empty()) {
      problems.push_back({at, Severity::kError, "a backend is missing here"});
    } else if (word.find('(') != std::string_view::npos || word.find(')') != std::string_view::npos) {
      problems.push_back(
          {at, Severity::kError, "conditions in parentheses are not part of the routing language of this version"});
    } else if (!backend.has_value()) {
      std::vector<std::string> names;
      std::string known;
      for (const BackendName& row : kBackendNames) {
        names.emplace_back(row.name);
        known += (known.empty() ? "" : ", ") + names.back();
      }
      const std::string name(word);
      problems.push_back(
          {at, Severity::kError,
           "unknown backend " + in_quotes(name) + did_you_mean(name, names) + " (known: " + known + ")"});
    } else if (!seen.insert(*backend).second) {
      problems.push_back(
          {at, Severity::kError, "'" + std::string(word) + "' stands earlier in this route and accepts every call"});
    } else if (seen.contains(Backend::kNone) && *backend != Backend::kNone) {
      problems.push_back({at, Severity::kError, "nothing is reached after 'none', which accepts every call"});
    } else {
      candidates.push_back({*backend});
      if (candidate_places != nullptr) {
        candidate_places->push_back(at);
      }
    }
  }
  return candidates;
}

RoutingFile parse_routing_file(const std::string& path, const std::string& torch_version, const FileReader& reader) {
  RoutingFile result;
  Parser(torch_version, reader, result).parse(path, Place{path, 0, 0});
  return result;
}

}  // namespace flagos
