#include "trireme/plan/communication.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme::inline v0::plan {
namespace {

struct Measured {
  double seconds = 0;
  std::string algorithm;
};

// The measurement of the requested algorithm, or of the fastest one.
std::optional<Measured> measured(const Tuning& tuning, const std::string& transport,
                                 const std::string& algorithm, int ranks, std::size_t bytes) {
  std::optional<Measured> best;
  for (const Measurement& one : tuning.measurements()) {
    if (one.collective != "all_reduce" || one.transport != transport || one.ranks != ranks)
      continue;
    if (algorithm != "auto" && one.algorithm != algorithm) continue;
    const auto seconds = tuning.seconds("all_reduce", one.algorithm, transport, ranks, bytes);
    if (seconds && (!best || *seconds < best->seconds)) best = Measured{*seconds, one.algorithm};
  }
  return best;
}

double formula(const LinkCost& link, int ranks, double bytes) {
  const double others = double(ranks - 1) / ranks;
  const int rounds = 2 * std::bit_width(unsigned(ranks - 1));
  return rounds * link.alpha + others * bytes * (2 * link.beta + link.gamma);
}

std::string constants(const LinkCost& link) {
  char text[96];
  std::snprintf(text, sizeof text, "alpha %.3g us, beta %.3g ns/B, gamma %.3g ns/B",
                link.alpha * 1e6, link.beta * 1e9, link.gamma * 1e9);
  return text;
}

}  // namespace

Communication all_reduce_of_buckets(const Tuning* tuning, const std::string& path,
                                    const std::string& transport, const std::string& algorithm,
                                    int ranks, std::size_t bytes, std::size_t bucket_bytes) {
  if (ranks < 2 || bytes == 0) return {0, "nothing is sent"};
  const std::string over = transport == "auto" ? "shm" : transport;
  const std::size_t bucket = std::clamp<std::size_t>(bucket_bytes, 1, bytes);
  const double buckets = double(bytes) / double(bucket);  // the last one is smaller
  const std::string of_file = tuning ? path + " (" + tuning->machine + ")" : path;
  if (tuning) {
    if (const auto found = measured(*tuning, over, algorithm, ranks, bucket)) {
      return {found->seconds * buckets, found->algorithm + " as measured, " + of_file};
    }
    if (const auto link = tuning->links.find(over); link != tuning->links.end()) {
      return {formula(link->second, ranks, double(bucket)) * buckets,
              constants(link->second) + " as measured over " + over + ", " + of_file};
    }
  }
  const LinkCost link = typical_link(over);
  const std::string missing = tuning ? path + " has nothing of " + over : "not measured here";
  return {formula(link, ranks, double(bucket)) * buckets,
          constants(link) + ", typical of " + over + "; " + missing +
              ": trireme bench comm --tune --ranks " + std::to_string(ranks)};
}

Communication all_reduce_over(const LinkCost& link, const std::string& source, int ranks,
                              std::size_t bytes, std::size_t bucket_bytes) {
  if (ranks < 2 || bytes == 0) return {0, "nothing is sent"};
  const std::size_t bucket = std::clamp<std::size_t>(bucket_bytes, 1, bytes);
  return {formula(link, ranks, double(bucket)) * double(bytes) / double(bucket),
          constants(link) + ", " + source};
}

Communication messages_of(const Tuning* tuning, const std::string& path,
                          const std::string& transport, int messages, std::size_t bytes) {
  const std::string over = transport == "auto" ? "shm" : transport;
  const auto seconds = [&](const LinkCost& link) {
    return messages * (link.alpha + double(bytes) * (link.beta + link.gamma));
  };
  if (tuning) {
    if (const auto link = tuning->links.find(over); link != tuning->links.end())
      return {seconds(link->second), constants(link->second) + " as measured over " + over + ", " +
                                         path + " (" + tuning->machine + ")"};
  }
  const LinkCost link = typical_link(over);
  return {seconds(link), constants(link) + ", typical of " + over};
}

std::string read_tuning_file(const std::string& path) {
  if (path.empty()) return {};
  if (auto text = try_read_file(path)) return *std::move(text);
  if (errno == ENOENT || errno == ENOTDIR || errno == EACCES) return {};
  throw ConfigError("cannot read the table " + path + ": " + std::strerror(errno),
                    {.operation = "tuning", .advice = "Name another file by TRIREME_TUNING."});
}

std::optional<Tuning> read_tuning() {
  const std::string path = tuning_path();
  const std::string text = read_tuning_file(path);
  if (text.empty()) return std::nullopt;
  return Tuning::from_toml(text, path);
}

}  // namespace trireme::inline v0::plan
