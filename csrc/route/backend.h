// The kernel backends that a route can name.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace flagos {

/// In the default order of preference; `kNone` is last and always legal.
enum class Backend : uint8_t { kFlagGemsCpp, kFlagGems, kTileOps, kHost, kCuda, kGcu, kNone };

struct BackendName {
  Backend backend;
  std::string_view name;
};

/// One row a backend: the only place where its name is written.
inline constexpr std::array<BackendName, 7> kBackendNames = {{
    {Backend::kFlagGemsCpp, "flaggems_cpp"},
    {Backend::kFlagGems, "flaggems"},
    {Backend::kTileOps, "tileops"},
    {Backend::kHost, "host"},
    {Backend::kCuda, "cuda"},
    {Backend::kGcu, "gcu"},
    {Backend::kNone, "none"},
}};

constexpr std::string_view backend_name(Backend backend) {
  return kBackendNames[static_cast<size_t>(backend)].name;
}

constexpr std::optional<Backend> backend_from_name(std::string_view name) {
  for (const BackendName& row : kBackendNames) {
    if (row.name == name) {
      return row.backend;
    }
  }
  return std::nullopt;
}

}  // namespace flagos
