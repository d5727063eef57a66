#include "trireme/checkpoint/reach.h"

#include "trireme/base/joined.h"
#include "trireme/observe/log.h"

namespace trireme::inline v0::checkpoint {
namespace {

void say(const std::vector<bool>& sees, const std::string& place) {
  std::vector<std::string> blind;
  for (std::size_t rank = 0; rank < sees.size(); ++rank)
    if (!sees[rank]) blind.push_back(std::to_string(rank));
  observe::info(blind.empty() ? "every rank with large shards writes them into " + place + " itself"
                              : "rank 0 writes the shards of ranks that do not see " + place +
                                    ": " + joined(blind));
}

}  // namespace

void Reach::find(CheckpointContent& content, storage::CheckpointFolder& folder) {
  folder.show_mark();
  content.tell(CheckpointContent::Word::Look);
  sees_ = content.ask(folder.mark());
  say(*sees_, folder.path());
  share(content, folder);
  folder.hide_mark();
}

void Reach::answer(CheckpointContent& content, storage::CheckpointFolder& folder) {
  sees_ = content.answer([&](const std::string& mark) {
    mark_ = mark;
    return folder.sees(mark);
  });
  share(content, folder);
}

void Reach::share(CheckpointContent& content, storage::CheckpointFolder& folder) const {
  if (!sees_) return;
  content.share(*sees_, least_);
  if (!mark_.empty()) folder.set_mark(mark_);
}

}  // namespace trireme::inline v0::checkpoint
