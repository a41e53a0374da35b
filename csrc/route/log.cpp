// Log flags and writing of log lines.
#include "route/log.h"

#include "route/spelling.h"

#include <array>
#include <cstdio>
#include <stdexcept>
#include <utility>
#include <vector>

namespace flagos {

std::atomic<uint32_t> listeners{0};

namespace {
constexpr std::array<std::pair<std::string_view, LogFlag>, 3> kWords = {{
    {"dispatch", kLogDispatch},
    {"fallback", kLogFallback},
    {"device", kLogDevice},
}};
}  // namespace

void set_log(std::string_view words) {
  uint32_t flags = 0;
  for (const std::string& word : split_words(words, ',')) {
    bool known = false;
    for (const auto& [name, flag] : kWords) {
      if (name == word) {
        flags |= flag;
        known = true;
      }
    }
    if (!known) {
      std::vector<std::string> names;
      for (const auto& row : kWords) {
        names.emplace_back(row.first);
      }
      throw std::invalid_argument("FLAGOS_LOG: unknown word '" + word + "'" + did_you_mean(word, names) +
                                  " (known: dispatch, fallback, device)");
    }
  }
  uint32_t before = listeners.load();
  while (!listeners.compare_exchange_weak(before, (before & kKeepTime) | flags)) {
  }
}

void set_timing(bool on) {
  if (on) {
    listeners.fetch_or(kKeepTime);
  } else {
    listeners.fetch_and(~static_cast<uint32_t>(kKeepTime));
  }
}

void write_log(const std::string& line) {
  const std::string whole = line + "\n";
  std::fwrite(whole.data(), 1, whole.size(), stderr);
}

}  // namespace flagos
