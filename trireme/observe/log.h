// Log lines for people, on standard error.
//
// Thread safe. Each line is written whole, so lines of several threads do not mix.
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme::inline v0::observe {

enum class Level : std::uint8_t { Debug, Info, Warning, Error };

/// Writes "warning: text" or "error: text"; the other levels have no prefix. Drops lines below the
/// level in TRIREME_LOG (debug | info | warning | error; otherwise info), read at the first line.
void log(Level level, std::string_view text);
inline void info(std::string_view text) { log(Level::Info, text); }
inline void warning(std::string_view text) { log(Level::Warning, text); }

}  // namespace trireme::inline v0::observe
