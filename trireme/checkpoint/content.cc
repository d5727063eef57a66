// CheckpointContent: all ranks exchange tables of their shards, and each computes the same choice
// of source ranks for every tensor. Then rank 0 writes and the others send, in the same order.
#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/shards.h"
#include "trireme/checkpoint/tables.h"
#include "trireme/format/safetensors.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/device.h"

namespace trireme::inline v0::checkpoint {
namespace {

using format::ByteSink;
using format::TensorView;

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : shape) elements *= dim;
  return elements;
}

// Elements [begin, end) come from `rank`.
struct Source {
  std::int64_t begin = 0, end = 0;
  int rank = 0;
};

struct Tensor {
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  std::vector<Source> offered;  // may overlap
  std::vector<Source> chosen;   // contiguous
};

[[noreturn]] void refuse_content(const std::string& what) {
  throw CheckpointError(what, {.operation = "checkpoint.save",
                               .advice = "This is a fault of what gives the state: every part of a "
                                         "tensor must be on some rank."});
}

// Greedy from the left: takes the source that reaches furthest, and the lowest rank among equals.
// Must be fast, since a tensor that is sharded by columns has very many sources.
void choose(const std::string& key, Tensor& tensor) {
  const std::int64_t elements = elements_of(tensor.shape);
  std::stable_sort(tensor.offered.begin(), tensor.offered.end(),
                   [](const Source& a, const Source& b) { return a.begin < b.begin; });
  std::int64_t at = 0;
  auto next = tensor.offered.begin();  // the first that begins after `at`
  const Source* best = nullptr;
  do {
    for (; next != tensor.offered.end() && next->begin <= at; ++next)
      if (best == nullptr || next->end > best->end ||
          (next->end == best->end && next->rank < best->rank))
        best = &*next;
    if (best != nullptr && (best->end < at || (best->end == at && elements > 0))) best = nullptr;
    if (best == nullptr)
      refuse_content("no rank has element " + std::to_string(at) + " of tensor \"" + key + "\"");
    tensor.chosen.push_back({at, best->end, best->rank});
    at = best->end;
  } while (at < elements);
}

}  // namespace

struct CheckpointContent::Impl {
  // A shard of this rank, under its key: the file and the name in it.
  struct Own {
    NamedShard shard;
    std::string file, key;
    bool written = false;  // the checkpoint takes elements of it
    bool copied = false;   // `shard.local` is a copy
  };
  // A range of a tensor that one rank provides. Steps are in the order of the files.
  struct Step {
    std::string file, key;
    Source source;
    std::size_t width = 4;
  };

  Impl(const Parts& parts, comm::Communicator* given, bool to_write) : world(given) {
    for (const auto& [part, saveable] : parts)
      for (NamedShard& shard : saveable->state()) take(part, std::move(shard));
    const int ranks = world == nullptr ? 1 : world->size();
    rank = world == nullptr ? 0 : world->rank();
    const std::vector<std::string> tables =
        ranks == 1 ? std::vector{table()} : exchange_texts(table(), *world, "checkpoint tables");
    for (int r = 0; r < ranks; ++r) read(tables[static_cast<std::size_t>(r)], r);
    if (!to_write) return;
    for (auto& [name, file] : files)
      for (auto& [key, tensor] : file) choose(key, tensor);
    order();
    keep_written();
  }

  // Copies from a device what this rank writes, and lets go of all else.
  void keep_written() {
    for (const Step& step : steps)
      if (step.source.rank == rank) own[owner_of(step)].written = true;
    for (Own& item : own) {
      const at::Tensor host = item.written ? tensor::on_host(item.shard.local) : at::Tensor();
      item.copied = item.written && !host.is_same(item.shard.local);
      item.shard.local = host;
    }
  }

  std::int64_t snapshot() {
    std::int64_t bytes = 0;
    for (Own& item : own) {
      if (!item.written) continue;
      if (!std::exchange(item.copied, true)) item.shard.local = item.shard.local.clone();
      bytes += static_cast<std::int64_t>(item.shard.local.nbytes());
    }
    return bytes;
  }

  void take(const std::string& part, NamedShard shard) {
    TRIREME_CHECK(shard.local.numel() == shard.end - shard.begin);
    TRIREME_CHECK(shard.local.is_contiguous());
    TRIREME_CHECK(tensor::dtype_of(shard.local) == shard.dtype);
    const bool weights = part == kModelPart && shard.name.find('/') == std::string::npos;
    const std::string key = weights ? shard.name : part + "/" + shard.name;
    own.push_back({std::move(shard), weights ? kModelFile : kStateFile, key});
    of_key[own.back().file + '/' + key].push_back(own.size() - 1);
  }

  std::string table() const {
    nlohmann::json rows = nlohmann::json::array();
    for (const Own& item : own)
      rows.push_back({item.file, item.key, static_cast<int>(item.shard.dtype), item.shard.shape,
                      item.shard.begin, item.shard.end});
    return rows.dump();
  }

  void read(const std::string& text, int from) {
    for (const auto& row : nlohmann::json::parse(text)) {
      Tensor& tensor = files[row[0].get<std::string>()][row[1].get<std::string>()];
      const auto dtype = static_cast<DType>(row[2].get<int>());
      const auto shape = row[3].get<std::vector<std::int64_t>>();
      if (tensor.offered.empty()) {
        tensor.dtype = dtype;
        tensor.shape = shape;
      } else if (tensor.dtype != dtype || tensor.shape != shape) {
        refuse_content("rank " + std::to_string(from) + "'s tensor \"" + row[1].get<std::string>() +
                       "\" differs in type or shape from rank " +
                       std::to_string(tensor.offered.front().rank) + "'s");
      }
      tensor.offered.push_back({row[4].get<std::int64_t>(), row[5].get<std::int64_t>(), from});
    }
  }

  std::vector<TensorView> views(const std::string& file) const {
    std::vector<TensorView> result;
    const auto found = files.find(file);
    if (found == files.end()) return result;
    for (const auto& [key, tensor] : found->second)
      result.push_back({key, tensor.dtype, tensor.shape, {}});
    format::sort_for_file(result);
    return result;
  }

  void order() {
    for (const char* file : {kModelFile, kStateFile})
      for (const TensorView& view : views(file))
        for (const Source& source : files.at(file).at(view.name).chosen)
          steps.push_back({file, view.name, source, size_of(view.dtype)});
  }

  // The index of this rank's shard that has the elements of a step.
  std::size_t owner_of(const Step& step) const {
    for (const std::size_t index : of_key.at(step.file + '/' + step.key))
      if (own[index].shard.begin <= step.source.begin && own[index].shard.end >= step.source.end)
        return index;
    TRIREME_CHECK(false);
    return 0;
  }

  // This rank's memory for the elements of a step.
  std::span<std::byte> mine(const Step& step) const {
    const NamedShard& shard = own[owner_of(step)].shard;
    return {static_cast<std::byte*>(shard.local.data_ptr()) +
                static_cast<std::size_t>(step.source.begin - shard.begin) * step.width,
            static_cast<std::size_t>(step.source.end - step.source.begin) * step.width};
  }

  // Rank 0: passes the bytes of the next step to `sink`, after receiving them if necessary.
  void next(const ByteSink& sink) {
    const Step& step = steps[at++];
    if (step.source.rank == rank) return sink(mine(step));
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(step.source.end - step.source.begin) *
                                    step.width);
    finish(world->recv(Buffer::of(std::span(bytes)), step.source.rank, 0, {.label = step.key}));
    sink(std::as_bytes(std::span(bytes)));
  }

  // Without Work::wait() on a group of its own: the peers' watch knows one wait of a rank at a time,
  // that of its main thread.
  void finish(const Work& work) const {
    if (group) group->waiter()->wait_until([&] { return work.done(); }, TimePoint::max());
    work.wait();
  }

  std::shared_ptr<comm::Communicator> group;  // null: `world` is that of the training
  comm::Communicator* world;
  int rank = 0;
  std::vector<Own> own;
  std::map<std::string, std::vector<std::size_t>> of_key;  // indices into `own`, by file and key
  std::map<std::string, std::map<std::string, Tensor>> files;
  std::vector<Step> steps;
  std::size_t at = 0;
};

CheckpointContent::CheckpointContent(const Parts& parts, comm::Communicator* world, bool to_write)
    : impl_(std::make_unique<Impl>(parts, world, to_write)) {}
CheckpointContent::~CheckpointContent() = default;

std::map<std::string, FileWriter> CheckpointContent::writers() {
  std::map<std::string, FileWriter> writers;
  for (const char* file : {kModelFile, kStateFile}) {
    writers[file] = [impl = impl_.get(), file](const auto& sink) {
      format::write_safetensors(
          impl->views(file), {{"format", "pt"}},
          [&](const TensorView& view, const ByteSink& out) {
            const std::size_t sources = impl->files.at(file).at(view.name).chosen.size();
            for (std::size_t i = 0; i < sources; ++i) impl->next(out);
          },
          sink);
    };
  }
  return writers;
}

bool CheckpointContent::has(const std::string& file, const std::string& key) const {
  const auto found = impl_->files.find(file);
  return found != impl_->files.end() && found->second.contains(key);
}

std::int64_t CheckpointContent::snapshot() { return impl_->snapshot(); }

void CheckpointContent::use_group(std::shared_ptr<comm::Communicator> group) {
  impl_->world = group.get();
  impl_->group = std::move(group);
}

void CheckpointContent::abort() noexcept {
  if (impl_->group)
    impl_->group->abort(std::make_exception_ptr(PeerLost(
        "this rank has ended while it saved a checkpoint", {.operation = "checkpoint.save"})));
}

void CheckpointContent::drain() {
  while (impl_->at < impl_->steps.size()) impl_->next([](std::span<const std::byte>) {});
}

void CheckpointContent::announce(bool again) {
  impl_->at = 0;
  if (impl_->world == nullptr) return;
  std::array<std::uint8_t, 1> word{again};
  for (int peer = 1; peer < impl_->world->size(); ++peer)
    impl_->finish(impl_->world->send(Buffer::of(std::span<std::uint8_t>(word)), peer, 0,
                                     {.label = "checkpoint end"}));
}

void CheckpointContent::send() {
  for (const Impl::Step& step : impl_->steps) {
    if (step.source.rank != impl_->rank) continue;
    const std::span<std::byte> bytes = impl_->mine(step);
    impl_->finish(
        impl_->world->send({bytes.data(), bytes.size(), DType::U8}, 0, 0, {.label = step.key}));
  }
}

bool CheckpointContent::again() {
  std::array<std::uint8_t, 1> word{};
  impl_->finish(impl_->world->recv(Buffer::of(std::span<std::uint8_t>(word)), 0, 0,
                                   {.label = "checkpoint end"}));
  return word[0] != 0;
}

}  // namespace trireme::inline v0::checkpoint
