// Counts of calls, bytes and time per (overload, backend, dtypes, reason), exact under threads and readable while they
// run.
//
// Each thread owns a shard and is its only writer, so counting takes no lock and no atomic read-modify-write. Readers
// walk all shards. When a thread ends, its shard is kept and handed to the next new thread.
#pragma once

#include "route/backend.h"

#include <atomic>
#include <cstdint>
#include <vector>

namespace flagos {

/// Why a call was counted where it was.
enum class Reason : uint8_t {
  kRouted,         ///< the backend ran the call
  kDecomposition,  ///< `none`: the overload's own decomposition ran; its parts are counted as themselves
  kRoundTrip,      ///< `none`: inputs to the CPU, CPU kernel, results back
  kHostFill,       ///< `none`: a factory or random operator was computed on the CPU and copied once
  kDevice,         ///< served by the device itself
};

const char* reason_text(Reason reason);

/// `overload` numbers an operator entry; `dtypes` packs up to eight scalar types, newest in the low byte, each plus
/// one.
struct CallKey {
  uint32_t overload = 0;
  Backend backend = Backend::kNone;
  Reason reason = Reason::kRouted;
  uint64_t dtypes = 0;

  friend bool operator==(const CallKey&, const CallKey&) = default;
};

struct CallTotals {
  CallKey key;
  uint64_t calls = 0;
  uint64_t bytes_to_host = 0;
  uint64_t bytes_from_host = 0;
  uint64_t nanoseconds = 0;
};

/// Adds one call. Allocates only the first time this thread meets the key.
void count_call(const CallKey& key, uint64_t bytes_to_host = 0, uint64_t bytes_from_host = 0, uint64_t nanoseconds = 0);

/// `action` is run by each thread that makes its first counted call from now on; null for none. It must not throw or
/// count.
void on_first_call_of_thread(void (*action)());

/// Sums over all threads since the last reset, in no particular order.
std::vector<CallTotals> read_counters();

/// Later reads start from here. Calls that run meanwhile are counted on one side or the other, never twice or never;
/// the bytes and time of such a call may fall on the other side than the call.
void reset_counters();

}  // namespace flagos
