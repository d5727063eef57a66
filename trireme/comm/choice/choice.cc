#include "trireme/comm/choice/choice.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>

#include "trireme/base/words.h"
#include "trireme/comm/choice/cost.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/observe/log.h"
#include "trireme/plan/communication.h"

namespace trireme::inline v0::comm {
namespace {

const std::string kDirect = "direct";

// Sizes with one rounded size get one choice.
std::size_t rounded(std::size_t bytes) noexcept { return bytes == 0 ? 0 : std::bit_ceil(bytes); }

plan::LinkCost link_of(const plan::Tuning* tuning, const std::string& transport) {
  if (tuning) {
    if (const auto link = tuning->links.find(transport); link != tuning->links.end()) {
      return link->second;
    }
  }
  return plan::typical_link(transport);
}

}  // namespace

const std::string& Chooser::choose(OpKind kind, std::size_t bytes, std::uint32_t total,
                                   bool wide) const {
  if (total != static_cast<std::uint32_t>(group_.size)) return decide(kind, bytes, total, wide);
  const int width = std::bit_width(rounded(bytes));
  auto& known = known_[wide][static_cast<std::size_t>(kind)][static_cast<std::size_t>(width)];
  if (const std::string* name = known.load(std::memory_order_acquire)) return *name;
  const std::string& name = decide(kind, bytes, total, wide);
  known.store(&name, std::memory_order_release);
  return name;
}

const std::string& Chooser::decide(OpKind kind, std::size_t bytes, std::uint32_t total,
                                   bool wide) const {
  const std::size_t size = rounded(bytes);
  std::lock_guard lock(mutex_);
  const std::tuple key(kind, size, total, wide);
  auto at = chosen_.find(key);
  if (at == chosen_.end()) {
    const auto all = candidates(kind, size, total, wide);
    at = chosen_.emplace(key, all.empty() ? std::string() : all.front().algorithm).first;
  }
  return at->second;
}

std::vector<Candidate> Chooser::candidates(OpKind kind, std::size_t bytes, std::uint32_t total,
                                           bool wide) const {
  const plan::Tuning* tuning = group_.tuning.get();
  const plan::LinkCost link = link_of(tuning, group_.transport);
  std::vector<Candidate> found;
  const auto measured = [&](std::string_view name) {
    return tuning ? tuning->seconds(name_of(kind), name, group_.transport, group_.size, bytes)
                  : std::nullopt;
  };
  const auto shape = [&](const AlgorithmEntry& entry, double partial) {
    return shape_of(entry, group_.size, total, 0, group_.hosts, pieces_for(bytes, group_.size),
                    partial);
  };
  for (const AlgorithmEntry* entry : algorithms_of(kind)) {
    const double partial = wide ? 2 : 1, size = static_cast<double>(bytes);
    if (const auto seconds = measured(entry->name)) {
      // The measurement used fp32, so the extra bytes of wide partial sums are added.
      const double more =
          wide ? (shape(*entry, partial).sent - shape(*entry, 1).sent) * size * link.beta : 0;
      found.push_back({entry->name, *seconds + more, true});
    } else if (ships(*entry)) {
      found.push_back({entry->name, shape(*entry, partial).seconds(link, size), false});
    }
  }
  if (group_.can_map) {
    const auto seconds = measured(kDirect);
    // Unmeasured, "direct" costs 0 and is first: it copies nothing and takes two rounds of flags.
    found.push_back({kDirect, seconds.value_or(0), seconds.has_value()});
  }
  // Measured times come before those of formulas. Equal times are ordered by name, so that all
  // ranks choose the same.
  std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
    return std::tuple(!a.measured, a.seconds, a.algorithm) <
           std::tuple(!b.measured, b.seconds, b.algorithm);
  });
  return found;
}

std::string Chooser::explain(OpKind kind, std::size_t bytes, std::uint32_t total) const {
  const auto all = candidates(kind, rounded(bytes), total);
  std::string text(name_of(kind));
  text += " of " + size_text(bytes) + " on " + std::to_string(group_.size) + " ranks over " +
          group_.transport + ": ";
  if (all.empty()) return text + "no algorithm";
  const auto time = [](const Candidate& one) {
    if (one.algorithm == kDirect && !one.measured) return std::string("shared memory");
    return duration_text(one.seconds) + (one.measured ? " measured" : " by the formula");
  };
  text += all.front().algorithm + " (" + time(all.front()) + ")";
  for (std::size_t i = 1; i < all.size(); ++i) {
    text += (i == 1 ? "; then " : ", ") + all[i].algorithm + " (" + time(all[i]) + ")";
  }
  const plan::LinkCost link = link_of(group_.tuning.get(), group_.transport);
  char constants[96];
  std::snprintf(constants, sizeof constants, "; alpha %.3g us, beta %.3g ns/B, gamma %.3g ns/B, ",
                link.alpha * 1e6, link.beta * 1e9, link.gamma * 1e9);
  const bool known = group_.tuning && group_.tuning->links.contains(group_.transport);
  return text + constants + (known ? "measured on " + group_.tuning->machine : "typical values");
}

std::string read_tuning_file(const std::string& path) { return plan::read_tuning_file(path); }

std::string read_tuning_file() {
  static std::atomic_flag said;
  std::string text = read_tuning_file(plan::tuning_path());
  const char* const named = std::getenv("TRIREME_TUNING");
  if (text.empty() && named != nullptr && *named != '\0' && !said.test_and_set())
    observe::warning("TRIREME_TUNING names " + std::string(named) +
                     ", where no table can be read: typical times choose the algorithms (`trireme "
                     "bench comm --tune` writes a table)");
  return text;
}

std::shared_ptr<const plan::Tuning> parse_tuning(std::string_view text, const std::string& path) {
  if (text.empty()) return nullptr;
  return std::make_shared<const plan::Tuning>(plan::Tuning::from_toml(text, path));
}

}  // namespace trireme::inline v0::comm
