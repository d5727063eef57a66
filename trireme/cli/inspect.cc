// trireme inspect: the tensors of the newest checkpoint, by part, or one hash over the weights.
#include <cstdio>
#include <map>
#include <ranges>

#include "trireme/base/joined.h"
#include "trireme/base/refuse.h"
#include "trireme/base/shape_text.h"
#include "trireme/base/utf8.h"
#include "trireme/base/weights_hash.h"
#include "trireme/base/words.h"
#include "trireme/cli/checkpoints.h"
#include "trireme/cli/command.h"
#include "trireme/observe/events.h"
#include "trireme/storage/checkpoint_reader.h"
#include "trireme/storage/saved_tensors.h"

namespace trireme::inline v0::cli {
namespace {

using storage::SavedTensors;

struct InspectOptions {
  std::string run, part;
  bool hash = false, json = false;
};

std::int64_t elements_of(const HashedTensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t dim : tensor.shape) count *= dim;
  return count;
}

std::int64_t bytes_of(const HashedTensor& tensor) {
  return elements_of(tensor) * static_cast<std::int64_t>(size_of(tensor.dtype));
}

struct Sum {
  std::int64_t tensors = 0, elements = 0, bytes = 0;
  void add(const HashedTensor& tensor) {
    ++tensors;
    elements += elements_of(tensor);
    bytes += bytes_of(tensor);
  }
};

void print_hash(const ModelWeights& weights, bool json) {
  const std::string hash = hash_of(weights);
  if (json) {
    std::printf("%s\n", observe::Event("hash").set("sha256", hash).line().c_str());
  } else {
    std::printf("%s\n", hash.c_str());
  }
}

// One line. `part` and `file` are empty if the whole table is of one file.
void print_tensor(const HashedTensor& tensor, const std::string& part, const std::string& file,
                  bool json) {
  const std::string type(name_of(tensor.dtype));
  if (json) {
    observe::Event event("tensor");
    event.set("name", tensor.name)
        .set("dtype", type)
        .set("shape", tensor.shape)
        .set("bytes", bytes_of(tensor));
    if (!part.empty()) event.set("part", part).set("file", file);
    return void(std::printf("%s\n", event.line().c_str()));
  }
  const std::string bytes = grouped(static_cast<long>(bytes_of(tensor)));
  // The file may be anybody's: its names must not control the terminal.
  std::printf("%-40s %-5s %-18s %12s%s%s\n", escaped(tensor.name).c_str(), type.c_str(),
              shape_text(tensor.shape).c_str(), bytes.c_str(), file.empty() ? "" : "  ",
              file.c_str());
}

void print_title(bool json, bool with_file) {
  if (!json)
    std::printf("%-40s %-5s %-18s %12s%s\n", "tensor", "type", "shape", "bytes",
                with_file ? "  file" : "");
}

// "train/optimizer/w.exp_avg" is of the part "train".
std::string part_of(const std::string& name) { return name.substr(0, name.find('/')); }

// The tensors of one part, in both files of a checkpoint, under the names that the part gives them.
void print_part(const FoundCheckpoint& found, const std::string& part, bool json) {
  const storage::CheckpointReader& folder = found.folder;
  const storage::Manifest manifest = folder.read_manifest(found.step);
  if (!manifest.parts.contains(part))
    refuse("inspect", found.path() + " has no part \"" + part + "\"",
           "Its parts are " + joined(std::views::keys(manifest.parts)) + ".");
  print_title(json, true);
  Sum sum;
  const SavedTensors saved(folder, manifest);
  for (const char* name : {storage::kModelFile, storage::kStateFile}) {
    const bool weights = name == storage::kModelFile;
    for (const auto* one : saved.tensors(name)) {
      HashedTensor tensor{one->name, one->dtype, one->shape, {}};
      if ((weights ? std::string(storage::kModelPart) : part_of(tensor.name)) != part) continue;
      if (!weights) tensor.name = tensor.name.substr(part.size() + 1);
      print_tensor(tensor, part, name, json);
      sum.add(tensor);
    }
  }
  const std::string& metadata = manifest.parts.at(part);
  if (json) {
    const auto event = observe::Event("part")
                           .set("part", part)
                           .set("tensors", sum.tensors)
                           .set("bytes", sum.bytes)
                           .set("metadata", metadata);
    return void(std::printf("%s\n", event.line().c_str()));
  }
  std::printf("%s, %s, %s in %s\nmetadata %s\n", counted(sum.tensors, "tensor").c_str(),
              counted(sum.elements, "element").c_str(),
              bytes_text(static_cast<double>(sum.bytes)).c_str(), found.path().c_str(),
              metadata.c_str());
}

// The parts of a checkpoint besides the weights, a line for each.
void print_other_parts(const FoundCheckpoint& found) {
  const storage::CheckpointReader& folder = found.folder;
  const storage::Manifest manifest = folder.read_manifest(found.step);
  std::map<std::string, Sum> sums;
  for (const auto& [name, metadata] : manifest.parts) sums[name];
  const SavedTensors saved(folder, manifest);
  for (const auto* tensor : saved.tensors(storage::kStateFile))
    sums[part_of(tensor->name)].add({tensor->name, tensor->dtype, tensor->shape, {}});
  for (const auto& [part, sum] : sums)
    std::printf("--part %s has %s%s, %s\n", part.c_str(), counted(sum.tensors, "tensor").c_str(),
                part == storage::kModelPart ? " besides the weights" : "",
                bytes_text(static_cast<double>(sum.bytes)).c_str());
}

void print_table(const ModelWeights& weights, bool json) {
  Sum sum;
  print_title(json, false);
  for (const HashedTensor& tensor : weights.tensors) {
    print_tensor(tensor, {}, {}, json);
    sum.add(tensor);
  }
  if (json) return;
  std::printf("%s, %s, %s in %s\n", counted(sum.tensors, "tensor").c_str(),
              counted(sum.elements, "parameter").c_str(),
              bytes_text(static_cast<double>(sum.bytes)).c_str(), weights.path.c_str());
}

int inspect(const InspectOptions& options) {
  if (options.hash && !options.part.empty())
    refuse("inspect", "--hash is over all weights, and --part shows one part of a checkpoint",
           "Leave out one of them.");
  const auto found = find_checkpoint(options.run);
  const ModelWeights weights = found ? model_weights(*found) : model_weights(options.run);
  weights.verify();
  if (options.hash) {
    print_hash(weights, options.json);
  } else if (options.part.empty()) {
    print_table(weights, options.json);
    if (found && !options.json) print_other_parts(*found);
  } else if (found) {
    print_part(*found, options.part, options.json);
  } else {
    refuse("inspect", options.run + " is a file of weights, which has no parts",
           "Leave --part out, or name a checkpoint's folder.");
  }
  return 0;
}

}  // namespace

void declare_inspect(Command& command) {
  auto& options = command.keep<InspectOptions>();
  command.about("Tensors of the newest checkpoint")
      .footer("Example:\n  trireme inspect runs/gpt-nano");
  command
      .option("RUN", options.run,
              "Folder that train printed, a Checkpointer's folder, or a .safetensors file")
      .required();
  command.option("--part", options.part,
                 "train (weights and optimizer), data or another part of the checkpoint: all its "
                 "tensors, in which file each is, and its metadata");
  command.flag("--hash", options.hash,
               "One SHA-256 over all weights: name, type, shape, bytes, in name order");
  command.flag("--json", options.json, "JSON lines");
  command.run([&options] { return inspect(options); });
}

}  // namespace trireme::inline v0::cli
