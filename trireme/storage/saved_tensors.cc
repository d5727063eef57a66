#include "trireme/storage/saved_tensors.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <nlohmann/json.hpp>
#include <queue>
#include <stdexcept>

#include "trireme/base/error.h"
#include "trireme/format/safetensors.h"

namespace trireme::inline v0::storage {
namespace {

constexpr const char* kSlices = "slices";
constexpr std::int64_t kMostElements = 100'000'000'000'000'000;  // their bytes are a std::int64_t
constexpr const char* kFiles[] = {kModelFile, kStateFile};

// Throws std::length_error if a dim is negative or the product overflows.
std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : shape)
    if (dim < 0 || __builtin_mul_overflow(elements, dim, &elements))
      throw std::length_error("no shape");
  return elements;
}

[[noreturn]] void refuse_tensor(const std::string& path, const std::string& name,
                                const std::string& what) {
  throw CheckpointError(path + ": tensor \"" + name + "\" " + what, {.operation = "checkpoint"});
}

// A run that a file holds, and where its elements are.
struct PlacedRun {
  Run run;
  std::size_t file = 0;
  std::int64_t at = 0;  // byte in the file
};

struct PlacedTensor : SavedTensors::Tensor {
  std::vector<PlacedRun> runs;  // by their beginnings
};

// Whether the elements of `run` lie in a tensor of `elements`.
bool is_within(const Run& run, std::int64_t elements) {
  if (run.begin < 0 || run.begin > elements || run.length < 0 || run.length > elements)
    return false;
  if (run.count < 1 || run.count > std::max<std::int64_t>(elements, 1)) return false;
  if (run.count == 1) return run.begin + run.length <= elements;
  if (run.length < 1 || run.stride < run.length || run.stride > elements) return false;
  return (elements - run.length - run.begin) / run.stride >= run.count - 1;
}

// Whether no element is in two of the runs. Goes through their rows in the order of the elements.
bool are_disjoint(const std::vector<PlacedRun>& runs) {
  using Row = std::pair<std::int64_t, const Run*>;  // its first element
  std::priority_queue<Row, std::vector<Row>, std::greater<>> rows;
  for (const PlacedRun& one : runs)
    if (one.run.length > 0) rows.emplace(one.run.begin, &one.run);
  for (std::int64_t end = 0; !rows.empty(); rows.pop()) {
    const auto [begin, run] = rows.top();
    if (begin < end) return false;
    end = begin + run->length;
    if (begin < run->begin + (run->count - 1) * run->stride) rows.emplace(begin + run->stride, run);
  }
  return true;
}

std::map<std::string, Slices> slices_in(const std::map<std::string, std::string>& metadata,
                                        const std::string& path) {
  std::map<std::string, Slices> all;
  const auto found = metadata.find(kSlices);
  if (found == metadata.end()) return all;
  try {
    const nlohmann::json text = nlohmann::json::parse(found->second);
    for (const auto& [name, slices] : text.items()) {
      Slices& one = all[name];
      one.shape = slices.at("shape").get<std::vector<std::int64_t>>();
      if (product(one.shape) > kMostElements) throw std::length_error("no shape");
      for (const auto& run : slices.at("runs"))
        one.runs.push_back({run.at(0), run.at(1), run.at(2), run.at(3)});
    }
  } catch (const std::exception&) {  // from the JSON, or from its shapes
    throw CheckpointError(path + ": its list of tensor slices (\"slices\") is damaged",
                          {.operation = "checkpoint"});
  }
  return all;
}

}  // namespace

bool Run::take(std::int64_t from, std::int64_t to) noexcept {
  const std::int64_t step = from - (begin + (count - 1) * stride);
  if (to - from != length || (count > 1 && step != stride)) return false;
  stride = step;
  ++count;
  return true;
}

void Slices::add(std::int64_t begin, std::int64_t end) {
  if (!runs.empty()) {
    Run& last = runs.back();
    if (last.count == 1 && begin == last.begin + last.length)
      return void(last.length += end - begin);
    if (last.take(begin, end)) return;
  }
  runs.push_back({begin, end - begin, 0, 1});
}

std::map<std::string, std::string> metadata_of(const std::map<std::string, Slices>& slices) {
  std::map<std::string, std::string> metadata{{"format", "pt"}};
  if (slices.empty()) return metadata;
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [name, one] : slices) {
    nlohmann::json runs = nlohmann::json::array();
    for (const Run& run : one.runs) runs.push_back({run.begin, run.length, run.stride, run.count});
    all[name] = {{"shape", one.shape}, {"runs", std::move(runs)}};
  }
  metadata[kSlices] = all.dump();
  return metadata;
}

std::int64_t SavedTensors::Tensor::elements() const noexcept { return product(shape); }
std::size_t SavedTensors::Tensor::bytes() const noexcept {
  return static_cast<std::size_t>(elements()) * size_of(dtype);
}

struct SavedTensors::Impl {
  Impl(const CheckpointReader& folder, const Manifest& manifest)
      : folder(folder), step(manifest.step) {
    for (const char* file : kFiles)
      for (const auto& [name, record] : manifest.files)
        if (is_of_file(name, file)) take(folder.open(manifest, name), tensors[file]);
    for (auto& [file, all] : tensors)
      for (auto& [name, placed] : all) check(placed, folder.path_of(step) + "/" + file);
  }

  void take(VerifiedFile&& opened, std::map<std::string, PlacedTensor>& all) {
    VerifiedFile& file = files.emplace_back(std::move(opened));
    const auto index = format::read_safetensors_index(
        static_cast<std::uint64_t>(file.size()),
        [&](std::uint64_t at, std::span<std::byte> to) {
          file.read({{static_cast<std::int64_t>(at), to}});
        },
        file.path());
    file.drop();
    auto slices = slices_in(index.metadata, file.path());
    for (const format::PlacedTensor& tensor : index.tensors) {
      const std::int64_t elements = product(tensor.shape);
      const auto sliced = slices.find(tensor.name);
      if (sliced == slices.end())
        place(tensor, {tensor.shape, {{0, elements, 0, 1}}}, all[tensor.name]);
      else
        place(tensor, sliced->second, all[tensor.name]);
    }
  }

  void place(const format::PlacedTensor& saved, const Slices& slices, PlacedTensor& placed) {
    const std::string& path = files.back().path();
    if (placed.runs.empty()) {
      placed.name = saved.name;
      placed.dtype = saved.dtype;
      placed.shape = slices.shape;
    }
    if (placed.dtype != saved.dtype || placed.shape != slices.shape)
      refuse_tensor(path, saved.name, "has another type or shape than in the other files");
    auto at = static_cast<std::int64_t>(saved.begin);
    for (const Run& run : slices.runs) {
      if (!is_within(run, product(slices.shape)))
        refuse_tensor(path, saved.name, "has elements outside of its shape");
      placed.runs.push_back({run, files.size() - 1, at});
      at += run.elements() * static_cast<std::int64_t>(size_of(saved.dtype));
      if (at > static_cast<std::int64_t>(saved.end)) break;
    }
    if (at != static_cast<std::int64_t>(saved.end))
      refuse_tensor(path, saved.name, "has another number of elements than its slices");
  }

  // Throws unless the runs have as many elements as the tensor.
  static void check(PlacedTensor& placed, const std::string& path) {
    std::int64_t elements = 0;
    for (const PlacedRun& one : placed.runs) elements += one.run.elements();
    if (elements != placed.elements())
      refuse_tensor(path, placed.name,
                    "has " + std::to_string(elements) + " of " + std::to_string(placed.elements()) +
                        " elements in all files");
    if (!are_disjoint(placed.runs))
      refuse_tensor(path, placed.name, "has an element in two places");
    std::sort(placed.runs.begin(), placed.runs.end(),
              [](const auto& a, const auto& b) { return a.run.begin < b.run.begin; });
  }

  // Calls visit(file, byte, element, elements) for each part of [begin, end) that is contiguous in
  // a file; `element` counts from `begin`.
  static void each_part(const Tensor& tensor, std::int64_t begin, std::int64_t end, auto visit) {
    const auto width = static_cast<std::int64_t>(size_of(tensor.dtype));
    for (const PlacedRun& one : static_cast<const PlacedTensor&>(tensor).runs) {
      const Run& run = one.run;
      if (run.begin >= end) break;
      const bool strided = run.count > 1 && begin > run.begin;
      for (std::int64_t i = strided ? (begin - run.begin) / run.stride : 0; i < run.count; ++i) {
        const std::int64_t row = run.begin + i * run.stride, from = std::max(row, begin),
                           to = std::min(row + run.length, end);
        if (row >= end) break;
        if (from < to)
          visit(one.file, one.at + (i * run.length + from - row) * width, from - begin, to - from);
      }
    }
  }

  void read(const std::vector<Wanted>& wanted) {
    std::map<std::size_t, std::vector<VerifiedFile::Piece>> pieces;
    for (const Wanted& one : wanted) {
      const std::size_t width = size_of(one.tensor->dtype);
      const auto elements = static_cast<std::int64_t>(one.to.size() / width);
      std::int64_t found = 0;
      const auto add = [&](std::size_t file, std::int64_t at, std::int64_t element,
                           std::int64_t count) {
        pieces[file].push_back({at, one.to.subspan(static_cast<std::size_t>(element) * width,
                                                   static_cast<std::size_t>(count) * width)});
        found += count;
      };
      each_part(*one.tensor, one.begin, one.begin + elements, add);
      if (found != elements)
        refuse_tensor(folder.path_of(step), one.tensor->name, "lacks elements that are needed");
    }
    for (auto& [file, all] : pieces) {
      if (file != loaded && loaded < files.size()) files[loaded].drop();
      loaded = file;
      files[file].read(std::move(all));
    }
  }

  const CheckpointReader folder;
  const std::int64_t step;
  std::deque<VerifiedFile> files;
  std::size_t loaded = 0;  // the file that is open and has chunks in memory; the others are closed
  std::map<std::string, std::map<std::string, PlacedTensor>> tensors;  // by kModelFile, kStateFile
};

SavedTensors::SavedTensors(const CheckpointReader& folder, const Manifest& manifest) {
  try {
    impl_ = std::make_unique<Impl>(folder, manifest);
  } catch (const Error& error) {
    folder.refuse(manifest.step, error);
  }
}
SavedTensors::~SavedTensors() = default;

std::vector<const SavedTensors::Tensor*> SavedTensors::tensors(const std::string& file) const {
  std::vector<const Tensor*> all;
  for (const auto& [name, placed] : impl_->tensors.at(file)) all.push_back(&placed);
  std::stable_sort(all.begin(), all.end(), [](const Tensor* a, const Tensor* b) {
    return size_of(a->dtype) > size_of(b->dtype);
  });
  return all;
}

const SavedTensors::Tensor* SavedTensors::find(const std::string& file,
                                               const std::string& name) const {
  const auto& all = impl_->tensors.at(file);
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

std::pair<std::size_t, std::int64_t> SavedTensors::place_of(const Tensor& tensor,
                                                            std::int64_t element) const {
  std::pair<std::size_t, std::int64_t> place{};
  impl_->each_part(tensor, element, element + 1,
                   [&](std::size_t file, std::int64_t at, auto, auto) {
                     place = {file, at};
                   });
  return place;
}

void SavedTensors::read(const std::vector<Wanted>& wanted) {
  try {
    impl_->read(wanted);
  } catch (const Error& error) {
    impl_->folder.refuse(impl_->step, error);
  }
}

std::vector<std::byte> SavedTensors::read(const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes());
  read({{&tensor, 0, bytes}});
  return bytes;
}

}  // namespace trireme::inline v0::storage
