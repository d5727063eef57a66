#include "trireme/plan/communication.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/words.h"

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
  return formatted("alpha %.3g us, ", link.alpha * 1e6) +
         formatted("beta %.3g ns/B, ", link.beta * 1e9) +
         formatted("gamma %.3g ns/B", link.gamma * 1e9);
}

// A link's cost, as measured or typical, and where it comes from.
struct SourcedCost {
  LinkCost cost;
  std::string source;
  bool measured = false;
};

SourcedCost link_over(const Tuning* tuning, const std::string& path, const std::string& over) {
  if (tuning) {
    if (const auto link = tuning->links.find(over); link != tuning->links.end())
      return {link->second,
              constants(link->second) + " as measured over " + over + ", " + path + " (" +
                  tuning->machine + ")",
              true};
  }
  const LinkCost typical = typical_link(over);
  return {typical, constants(typical) + ", typical of " + over};
}

}  // namespace

Communication all_reduce_of_buckets(const Tuning* tuning, const std::string& path,
                                    const std::string& transport, const std::string& algorithm,
                                    int ranks, std::size_t bytes, std::size_t bucket_bytes) {
  if (ranks < 2 || bytes == 0) return {0, "nothing is sent"};
  const std::string over = transport == "auto" ? "shm" : transport;
  const std::size_t bucket = std::clamp<std::size_t>(bucket_bytes, 1, bytes);
  const double buckets = double(bytes) / double(bucket);  // the last one is smaller
  if (tuning)
    if (const auto found = measured(*tuning, over, algorithm, ranks, bucket))
      return {found->seconds * buckets,
              found->algorithm + " as measured, " + path + " (" + tuning->machine + ")"};
  SourcedCost link = link_over(tuning, path, over);
  if (!link.measured)
    link.source += "; " + (tuning ? path + " has nothing of " + over : "not measured here") +
                   ": trireme bench comm --tune --ranks " + std::to_string(ranks);
  return {formula(link.cost, ranks, double(bucket)) * buckets, link.source};
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
  const SourcedCost link = link_over(tuning, path, transport == "auto" ? "shm" : transport);
  return {messages * (link.cost.alpha + double(bytes) * (link.cost.beta + link.cost.gamma)),
          link.source};
}

double server_exchange_seconds(const LinkCost& link, int workers, int servers, double bytes) {
  TRIREME_CHECK(workers >= 1);
  TRIREME_CHECK(servers >= 1);
  const double parts = workers + servers - 1;  // of bytes / servers
  return 4 * link.alpha + 2 * parts / servers * bytes * link.beta +
         double(workers - 1) / servers * bytes * link.gamma;
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
