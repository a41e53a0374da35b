// The lines that FLAGOS_LOG asks for, on stderr, each written in one piece.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace flagos {

/// Bits of `log_flags`.
enum LogFlag : uint32_t { kLogDispatch = 1, kLogFallback = 2, kLogDevice = 4, kKeepTime = 8 };

/// Whoever wants to hear of calls: log flags and kKeepTime. Zero on the hot path. Guarded by being atomic.
extern std::atomic<uint32_t> listeners;

inline bool listens(LogFlag flag) {
  return (listeners.load(std::memory_order_relaxed) & flag) != 0;
}

/// Replaces the log flags by those in `words`, as in "dispatch,fallback". Throws std::invalid_argument naming the word
/// that is unknown, with the nearest known one, and changes nothing then.
void set_log(std::string_view words);

void set_timing(bool on);

/// Writes `line` and a line end to stderr.
void write_log(const std::string& line);

}  // namespace flagos
