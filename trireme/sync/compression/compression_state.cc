#include "trireme/sync/compression/compression_state.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "trireme/base/words.h"
#include "trireme/observe/log.h"
#include "trireme/tensor/saved_count.h"

namespace trireme::inline v0::parallel {
namespace {

constexpr const char* kInMetadata = "compression";

std::string setting(const std::string& spec) { return "comm.compression = \"" + spec + "\""; }

}  // namespace

CompressionState::CompressionState(std::string spec, std::vector<Compressor*> compressors,
                                   bool speaks)
    : spec_(std::move(spec)), compressors_(std::move(compressors)), speaks_(speaks) {
  if (!keeps_residual(spec_)) compressors_.clear();
}

std::vector<NamedShard> CompressionState::shards() const {
  std::vector<NamedShard> all;
  for (Compressor* const one : compressors_) {
    for (NamedShard& shard : one->state()) {
      if (!one->between_steps()) {
        shard.end = shard.begin;
        shard.local = shard.local.flatten().narrow(0, 0, 0);
      }
      all.push_back(std::move(shard));
    }
  }
  return all;
}

void CompressionState::save(nlohmann::json& metadata) const {
  if (compressors_.empty()) return;
  const Compressor& one = *compressors_.front();
  metadata[kInMetadata] = {{"spec", spec_}, {"ranks", one.world().size()}, {"steps", one.steps()}};
}

void CompressionState::restored(const nlohmann::json& metadata) {
  note_.clear();
  const auto saved = metadata.find(kInMetadata);
  if (saved == metadata.end()) {
    for (Compressor* const one : compressors_) {
      one->drop();
      one->restored(0);
    }
    if (!compressors_.empty())
      note_ = "there is no earlier state of " + setting(spec_) + ", which begins anew";
    return;
  }
  const std::string spec = saved->at("spec").get<std::string>();
  const std::int64_t ranks = saved_count(*saved, "ranks"), steps = saved_count(*saved, "steps");
  const std::string left =
      "what " + counted(ranks, "rank") + " had not sent of their gradients (" + setting(spec) + ")";
  if (compressors_.empty()) {
    note_ = left + " is left out: this job sends all";
    return;
  }
  const bool same = kind_of_compression(spec) == kind_of_compression(spec_);
  for (Compressor* const one : compressors_) one->restored(same ? steps : 0);
  if (const int now = compressors_.front()->world().size(); now != ranks)
    note_ = left + " is divided among " + counted(now, "rank") +
            ": the weights will not be those of a run that stays on " + counted(ranks, "rank");
}

void CompressionState::say() {
  if (speaks_ && !note_.empty()) observe::info(note_);
  note_.clear();
}

}  // namespace trireme::inline v0::parallel
