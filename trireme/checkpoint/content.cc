// CheckpointContent: all ranks exchange tables of their shards. Each rank computes the same choice
// of source ranks for every tensor and of the ranks that write files. The others send their shards
// to rank 0 in the order in which it writes them.
#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/waiter.h"
#include "trireme/checkpoint/shards.h"
#include "trireme/comm/texts.h"
#include "trireme/format/safetensors.h"
#include "trireme/storage/saved_tensors.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::checkpoint {
namespace {

using format::ByteSink;
using format::TensorView;

// Elements [begin, end) come from `rank`.
struct Source {
  std::int64_t begin = 0, end = 0;
  int rank = 0;
};

struct Tensor {
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  bool frozen = false;
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
  const std::int64_t elements = c10::multiply_integers(tensor.shape);
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
  using Tensors = std::map<std::string, Tensor>;

  // A shard of this rank, under its key: the file and the name in it.
  struct Own {
    NamedShard shard;
    std::string file, key;
    bool written = false;  // the checkpoint takes elements of it
    bool copied = false;   // `shard.local` is a copy
  };
  // A range of a tensor that one rank provides. `steps` has the ranges of this rank's files, or of
  // rank 0's if this rank writes none, in the order of the files.
  struct Step {
    std::string file, key;
    Source source;
    std::size_t width = 4;
  };

  Impl(const Parts& parts, comm::Communicator* given, bool to_write) : world(given) {
    for (const auto& [part, saveable] : parts)
      for (NamedShard& shard : saveable->state()) take(part, std::move(shard));
    for (auto& [key, shards] : of_key)
      std::stable_sort(shards.begin(), shards.end(), [&](std::size_t a, std::size_t b) {
        return own[a].shard.begin < own[b].shard.begin;
      });
    const int ranks = world == nullptr ? 1 : world->size();
    rank = world == nullptr ? 0 : world->rank();
    const std::vector<std::string> tables =
        ranks == 1 ? std::vector{table()}
                   : comm::exchange_texts(table(), *world, "checkpoint tables");
    for (int r = 0; r < ranks; ++r) read(tables[static_cast<std::size_t>(r)], r);
    if (!to_write) return;
    share.assign(static_cast<std::size_t>(ranks), 0);
    for (auto& [name, file] : files) {
      for (auto& [key, tensor] : file) {
        choose(key, tensor);
        for (const Source& source : tensor.chosen)
          share[static_cast<std::size_t>(source.rank)] +=
              static_cast<std::size_t>(source.end - source.begin) * size_of(tensor.dtype);
      }
    }
    writers.assign(share.size(), 0);
    order();
    keep_written();
  }

  bool writes() const { return writers[static_cast<std::size_t>(rank)] == rank; }

  // Brings the shards that this rank writes to the host, and frees all others.
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
    const auto [file, key] = place_of(part, shard);
    own.push_back({std::move(shard), file, key});
    of_key[own.back().file + '/' + key].push_back(own.size() - 1);
  }

  // A row per tensor. A tensor that is cut by columns has very many shards, but they are one run.
  std::string table() const {
    nlohmann::json rows = nlohmann::json::array();
    for (const auto& [place, indices] : of_key) {
      for (auto next = indices.begin(); next != indices.end();) {
        const Own& first = own[*next];
        std::vector<storage::Run> runs;
        for (; next != indices.end() && of_one_tensor(own[*next].shard, first.shard); ++next) {
          const NamedShard& shard = own[*next].shard;
          if (runs.empty() || !runs.back().take(shard.begin, shard.end))
            runs.push_back({shard.begin, shard.end - shard.begin, 0, 1});
        }
        nlohmann::json listed = nlohmann::json::array();
        for (const storage::Run& run : runs)
          listed.push_back({run.begin, run.length, run.stride, run.count});
        rows.push_back({first.file, first.key, static_cast<int>(first.shard.dtype),
                        first.shard.shape, first.shard.frozen, std::move(listed)});
      }
    }
    return rows.dump();
  }

  static bool of_one_tensor(const NamedShard& a, const NamedShard& b) {
    return a.dtype == b.dtype && a.shape == b.shape;
  }

  void read(const std::string& text, int from) {
    for (const auto& row : nlohmann::json::parse(text)) {
      Tensor& tensor = files[row[0].get<std::string>()][row[1].get<std::string>()];
      const auto dtype = static_cast<DType>(row[2].get<int>());
      const auto shape = row[3].get<std::vector<std::int64_t>>();
      if (tensor.offered.empty()) {
        tensor.dtype = dtype;
        tensor.shape = shape;
        tensor.frozen = row[4].get<bool>();
      } else if (tensor.dtype != dtype || tensor.shape != shape) {
        refuse_content("rank " + std::to_string(from) + "'s tensor \"" + row[1].get<std::string>() +
                       "\" differs in type or shape from rank " +
                       std::to_string(tensor.offered.front().rank) + "'s");
      }
      for (const auto& one : row[5]) {
        const storage::Run run{one[0], one[1], one[2], one[3]};
        for (std::int64_t i = 0; i < run.count; ++i) {
          const std::int64_t begin = run.begin + i * run.stride;
          tensor.offered.push_back({begin, begin + run.length, from});
        }
      }
    }
  }

  // A file that one rank writes.
  struct Written {
    std::string name, group;        // "model-1.safetensors" belongs to "model.safetensors"
    std::vector<TensorView> views;  // in the order of their bytes
    std::map<std::string, storage::Slices> slices;
    std::map<std::string, std::vector<Source>> sources;
    bool repeatable = true;  // nothing is received

    void add(const std::string& key, const Tensor& tensor, std::vector<Source> chosen) {
      TensorView view{key, tensor.dtype, tensor.shape, {}};
      if (chosen.size() < tensor.chosen.size()) {
        storage::Slices& parts = slices[key];
        parts.shape = tensor.shape;
        for (const Source& source : chosen) parts.add(source.begin, source.end);
        view.shape = {0};
        for (const storage::Run& run : parts.runs) view.shape[0] += run.elements();
      }
      views.push_back(std::move(view));
      sources[key] = std::move(chosen);
    }
  };

  // The files of a rank by name. Frozen weights have their own if `frozen_apart`.
  std::vector<Written> written_by(int writer) const {
    std::vector<Written> all;
    for (const char* group : {storage::kModelFile, storage::kStateFile}) {
      for (const bool frozen : {true, false}) {
        Written file{.name = storage::file_of(group, writer, frozen), .group = group};
        const auto found = files.find(group);
        for (const auto& [key, tensor] : found == files.end() ? Tensors() : found->second) {
          if ((tensor.frozen && frozen_apart) != frozen) continue;
          std::vector<Source> sources = tensor.chosen;
          std::erase_if(sources, [&](const Source& source) {
            return writers[static_cast<std::size_t>(source.rank)] != writer;
          });
          for (const Source& source : sources)
            file.repeatable = file.repeatable && source.rank == writer;
          if (!sources.empty()) file.add(key, tensor, std::move(sources));
        }
        format::sort_for_file(file.views);
        if (!file.views.empty() || (writer == 0 && !frozen)) all.push_back(std::move(file));
      }
    }
    return all;
  }

  void order() {
    steps.clear();
    for (const Written& file : written_by(writers[static_cast<std::size_t>(rank)]))
      for (const TensorView& view : file.views)
        for (const Source& source : file.sources.at(view.name))
          steps.push_back({file.group, view.name, source, size_of(view.dtype)});
  }

  // The index of this rank's shard that has the elements of a step. Must be fast, as choose().
  std::size_t owner_of(const Step& step) const {
    const std::vector<std::size_t>& shards = of_key.at(step.file + '/' + step.key);
    auto at = std::upper_bound(
        shards.begin(), shards.end(), step.source.begin,
        [&](std::int64_t begin, std::size_t index) { return begin < own[index].shard.begin; });
    while (at != shards.begin())
      if (const std::size_t index = *--at; own[index].shard.end >= step.source.end) return index;
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

  // Passes the bytes of the next step to `sink`, after receiving them if necessary.
  void next(const ByteSink& sink) {
    const Step& step = steps[at++];
    if (step.source.rank == rank) return sink(mine(step));
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(step.source.end - step.source.begin) *
                                    step.width);
    finish(world->recv(Buffer::of(std::span(bytes)), step.source.rank, 0, {.label = step.key}));
    sink(std::as_bytes(std::span(bytes)));
  }

  // On a group Work::wait() must not block: the watch of peers knows only the main thread's wait.
  void finish(const Work& work) const {
    if (group) group->waiter()->wait_until([&] { return work.done(); }, TimePoint::max());
    work.wait();
  }

  // Small messages besides the shards.
  template <class Values>
  static Buffer buffer_of(Values& values) {
    return Buffer::of(std::span<typename Values::value_type>(values));
  }
  template <class Values>
  void give(int peer, Values values) const {
    finish(world->send(buffer_of(values), peer, 0, {.label = "checkpoint"}));
  }
  template <class Values>
  void take_from(int peer, Values&& values) const {
    finish(world->recv(buffer_of(values), peer, 0, {.label = "checkpoint"}));
  }

  std::shared_ptr<comm::Communicator> group;  // null: `world` is the training's
  comm::Communicator* world;
  int rank = 0;
  std::vector<Own> own;
  // Indices into `own`, by file and key; ascending by the shards' beginnings.
  std::map<std::string, std::vector<std::size_t>> of_key;
  std::map<std::string, Tensors> files;
  bool frozen_apart = false;
  std::vector<Step> steps;
  std::size_t at = 0;
  std::vector<std::size_t> share;  // by rank: the bytes that the checkpoint takes from it
  std::vector<int> writers;        // by rank: who writes those bytes, that rank or 0
};

CheckpointContent::CheckpointContent(const Parts& parts, comm::Communicator* world, bool to_write)
    : impl_(std::make_unique<Impl>(parts, world, to_write)) {}
CheckpointContent::~CheckpointContent() = default;

bool CheckpointContent::may_share(std::size_t least) const {
  return std::any_of(impl_->share.begin() + 1, impl_->share.end(),
                     [&](std::size_t bytes) { return bytes >= least; });
}

void CheckpointContent::share(const std::vector<bool>& sees, std::size_t least) {
  for (std::size_t rank = 1; rank < sees.size(); ++rank)
    if (sees[rank] && impl_->share[rank] >= least) impl_->writers[rank] = static_cast<int>(rank);
  impl_->order();
}

bool CheckpointContent::writes() const { return impl_->writes(); }

std::map<std::string, storage::FileWriter> CheckpointContent::writers() {
  std::map<std::string, storage::FileWriter> writers;
  std::size_t first = 0;
  for (Impl::Written& file : impl_->written_by(impl_->rank)) {
    const auto content = std::make_shared<Impl::Written>(std::move(file));
    const auto write = [impl = impl_.get(), content, first](const storage::FileWriter::Sink& sink) {
      impl->at = first;
      format::write_safetensors(
          content->views, metadata_of(content->slices),
          [&](const TensorView& view, const ByteSink& out) {
            const std::size_t sources = content->sources.at(view.name).size();
            for (std::size_t i = 0; i < sources; ++i) impl->next(out);
          },
          sink);
    };
    for (const auto& [key, sources] : content->sources) first += sources.size();
    writers.emplace(content->name, storage::FileWriter(write, content->repeatable));
  }
  impl_->at = 0;
  return writers;
}

void CheckpointContent::split_frozen(std::size_t least) {
  std::size_t bytes = 0;
  for (const auto& [group, tensors] : impl_->files)
    for (const auto& [key, tensor] : tensors)
      if (tensor.frozen)
        bytes +=
            static_cast<std::size_t>(c10::multiply_integers(tensor.shape)) * size_of(tensor.dtype);
  impl_->frozen_apart = bytes >= least;
  impl_->order();
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

void CheckpointContent::tell(Word word) {
  std::array<std::uint8_t, 1> byte{static_cast<std::uint8_t>(word)};
  for (int peer = 1; peer < static_cast<int>(impl_->writers.size()); ++peer)
    impl_->give(peer, byte);
}

CheckpointContent::Word CheckpointContent::hear() {
  std::array<std::uint8_t, 1> byte{};
  impl_->take_from(0, byte);
  return static_cast<Word>(byte[0]);
}

std::vector<bool> CheckpointContent::ask(const std::string& mark) {
  TRIREME_CHECK(storage::is_mark(mark));
  std::vector<std::uint8_t> bytes(mark.begin(), mark.end()), sees(impl_->writers.size(), 1);
  for (int peer = 1; peer < static_cast<int>(sees.size()); ++peer) impl_->give(peer, bytes);
  for (int peer = 1; peer < static_cast<int>(sees.size()); ++peer)
    impl_->take_from(peer, std::span(sees).subspan(static_cast<std::size_t>(peer), 1));
  for (int peer = 1; peer < static_cast<int>(sees.size()); ++peer) impl_->give(peer, sees);
  return {sees.begin(), sees.end()};
}

std::vector<bool> CheckpointContent::answer(
    const std::function<bool(const std::string& mark)>& sees) {
  std::array<std::uint8_t, storage::kMarkBytes> mark{};
  impl_->take_from(0, mark);
  std::array<std::uint8_t, 1> mine{sees({mark.begin(), mark.end()})};
  impl_->give(0, mine);
  std::vector<std::uint8_t> all(impl_->writers.size());
  impl_->take_from(0, all);
  return {all.begin(), all.end()};
}

void CheckpointContent::send() {
  for (const Impl::Step& step : impl_->steps) {
    if (step.source.rank != impl_->rank) continue;
    const std::span<std::byte> bytes = impl_->mine(step);
    impl_->finish(
        impl_->world->send({bytes.data(), bytes.size(), DType::U8}, 0, 0, {.label = step.key}));
  }
}

void CheckpointContent::report(const storage::WrittenFiles& written) {
  const std::string text = to_text(written);
  std::array<std::int64_t, 1> length{static_cast<std::int64_t>(text.size())};
  std::vector<std::uint8_t> bytes(text.begin(), text.end());
  impl_->give(0, length);
  impl_->give(0, bytes);
}

std::vector<storage::WrittenFiles> CheckpointContent::reports() {
  std::vector<storage::WrittenFiles> all;
  for (int peer = 1; peer < static_cast<int>(impl_->writers.size()); ++peer) {
    if (impl_->writers[static_cast<std::size_t>(peer)] != peer) continue;
    std::array<std::int64_t, 1> length{};
    impl_->take_from(peer, length);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(length[0]));
    impl_->take_from(peer, bytes);
    all.push_back(
        storage::parse_written_files({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  }
  return all;
}

}  // namespace trireme::inline v0::checkpoint
