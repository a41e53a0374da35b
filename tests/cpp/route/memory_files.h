// Routing files held in memory, and their parsed form written out again, for the tests of the routing language.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "route/language.h"

namespace flagos::testing {

using Files = std::map<std::string, std::string>;

/// A reader of `files`, which must outlive it.
inline FileReader reader_of(const Files& files) {
  return [&files](const std::string& path) {
    const auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

/// Parses `root` of `files` for torch 2.13.0+cpu.
inline RoutingFile parse_files(const Files& files, const std::string& root) {
  return parse_routing_file(root, "2.13.0+cpu", reader_of(files));
}

/// Parses one file, r.conf.
inline RoutingFile parse_text(const std::string& text) {
  return parse_files({{"r.conf", text}}, "r.conf");
}

inline std::vector<std::string> messages(const std::vector<Problem>& problems) {
  std::vector<std::string> texts;
  for (const Problem& problem : problems) {
    texts.push_back(to_string(problem));
  }
  return texts;
}

/// One `name = route` a line, `default` first, then by name.
inline std::vector<std::string> print_lines(const RoutingFile& file) {
  std::vector<std::string> printed;
  const auto print = [&printed](const RouteLine& line) {
    printed.push_back(line.name + " = " + intern_route(line.candidates)->text);
  };
  if (file.default_line.has_value()) {
    print(*file.default_line);
  }
  for (const auto& [name, line] : file.lines) {
    print(line);
  }
  return printed;
}

using Strings = std::vector<std::string>;

}  // namespace flagos::testing
