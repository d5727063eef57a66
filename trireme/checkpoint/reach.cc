#include "trireme/checkpoint/reach.h"

#include <random>
#include <string>

#include "trireme/observe/log.h"

namespace trireme::inline v0::checkpoint {
namespace {

std::string random_mark() {
  std::random_device random;
  std::string mark(CheckpointContent::kMarkBytes, ' ');
  for (char& letter : mark) letter = static_cast<char>('a' + random() % 26);
  return mark;
}

void say(const std::vector<bool>& sees, const std::string& place) {
  std::string blind;
  for (std::size_t rank = 0; rank < sees.size(); ++rank)
    if (!sees[rank]) blind += (blind.empty() ? "" : ", ") + std::to_string(rank);
  observe::info(blind.empty()
                    ? "every rank with large shards writes them into " + place + " itself"
                    : "rank 0 writes the shards of ranks that do not see " + place + ": " + blind);
}

}  // namespace

void Reach::find(CheckpointContent& content, storage::CheckpointFolder& folder) {
  const std::string mark = random_mark();
  folder.mark(mark);
  content.tell(CheckpointContent::Word::Look);
  sees_ = content.ask(mark);
  say(*sees_, folder.path());
  share(content);
  folder.unmark();
}

void Reach::answer(CheckpointContent& content, const storage::CheckpointFolder& folder) {
  sees_ = content.answer([&](const std::string& mark) { return folder.sees(mark); });
  share(content);
}

void Reach::share(CheckpointContent& content) const {
  if (sees_) content.share(*sees_, least_);
}

}  // namespace trireme::inline v0::checkpoint
