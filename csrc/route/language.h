// The routing language: text of routing files to lines, with every problem and its place.
//
// Grammar of this stage:
//   file      = { line }
//   line      = [ "include" path | "torch" comparison version | name "=" route ] [ "#" comment ]
//   route     = backend { ">" backend }
// `name` is an overload (`add.Tensor`) or `default`. Conditions in parentheses belong to a later stage of the language
// and are refused with that reason.
#pragma once

#include "route/route.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace flagos {

/// A place in a file; line and column count from 1. Line 0: the whole file.
struct Place {
  std::string file;
  int line = 0;
  int column = 0;
};

std::string to_string(const Place& place);

enum class Severity { kNote, kWarning, kError };

struct Problem {
  Place place;
  Severity severity = Severity::kError;
  std::string message;
};

/// "FILE:LINE:COL: error: message"
std::string to_string(const Problem& problem);

/// One `name = route` line.
struct RouteLine {
  std::string name;
  std::vector<Candidate> candidates;
  std::vector<Place> candidate_places;  ///< beside `candidates`
  Place place;                          ///< of the name
};

struct RoutingFile {
  std::map<std::string, RouteLine> lines;  ///< by overload; of lines in several files the later one, as they are read
  std::optional<RouteLine> default_line;
  std::vector<std::string> files;  ///< as read, in order
  std::vector<Problem> problems;
  bool old_form = true;  ///< no line uses more than `overload = backend`
};

/// Reads a file's text, or nothing if it cannot be read. Tests pass their own.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

std::optional<std::string> read_file(const std::string& path);

/// Parses `path` and what it includes. Never throws for what the files say: `problems` has it all, in order.
/// `torch_version` is compared with version lines ("2.13.0+cpu" counts as 2.13.0).
RoutingFile parse_routing_file(const std::string& path, const std::string& torch_version, const FileReader& reader);

/// Parses the right side of a line, as FLAGOS_OP_* gives it. `place` is where problems are reported.
std::vector<Candidate> parse_route(const std::string& text, const Place& place, std::vector<Problem>& problems,
                                   std::vector<Place>* candidate_places = nullptr);

}  // namespace flagos
