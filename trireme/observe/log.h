// Log lines for people, on standard error. spdlog stays behind this interface, so files that
// include LibTorch's headers may log too.
//
// Thread safe. Lines are written whole, so the lines of several threads never mix.
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme {
inline namespace v0 {
namespace observe {

enum class Level : std::uint8_t { Debug, Info, Warning, Error };

/// "warning: text" and "error: text" carry their level, the others are the text alone.
void log(Level level, std::string_view text);
inline void info(std::string_view text) { log(Level::Info, text); }
inline void warning(std::string_view text) { log(Level::Warning, text); }

/// Lines below `level` are dropped. Info at the start; the environment's TRIREME_LOG
/// (debug | info | warning | error) is read once, at the first line.
void set_level(Level level);

}  // namespace observe
}  // namespace v0
}  // namespace trireme
