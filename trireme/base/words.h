// Formats figures for people: counts, sizes, durations and numbers. JSON has plain numbers with the
// unit in the key instead. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::inline v0 {

/// "12,345".
std::string grouped(std::int64_t value);
/// "1 rank", "12,345 ranks". Pass `plural` if it is not `word` + "s".
std::string counted(std::int64_t count, std::string_view word, std::string_view plural = {});
/// Measured bytes, in decimal units: "512 bytes", "1.4 MB", "347 GB".
std::string bytes_text(double bytes);
/// Configured bytes, exact: "64 KiB", "3 MiB", "1,000 B".
std::string size_text(std::size_t bytes);
/// "25 us", "1.8 ms", "5.3 s", "42 s", "3 min 20 s", "1 h 5 min", "2 d 3 h".
std::string duration_text(double seconds);
/// As printf writes one number, but a NaN without its sign: formatted("%.3g", 0.5).
std::string formatted(const char* format, double value);
/// The fewest digits that give exactly this number: "0.003", "2", "1e-08".
std::string number_text(double value);

}  // namespace trireme::inline v0
