// trireme inspect: the tensors of the newest checkpoint, or one hash over them.
#include <cstdio>

#include "trireme/base/weights_hash.h"
#include "trireme/base/words.h"
#include "trireme/cli/command.h"
#include "trireme/cli/torch/model_file.h"
#include "trireme/format/safetensors.h"
#include "trireme/observe/events.h"

namespace trireme::inline v0::cli {
namespace {

struct InspectOptions {
  std::string run;
  bool hash = false, json = false;
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "[";
  for (const std::int64_t dim : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(dim);
  return out + "]";
}

void print_hash(const format::SafetensorsFile& file, bool json) {
  const std::string hash = weights_hash(file.tensors());
  if (json) {
    std::printf("%s\n", observe::Event("hash").set("sha256", hash).line().c_str());
  } else {
    std::printf("%s\n", hash.c_str());
  }
}

void print_table(const format::SafetensorsFile& file, bool json) {
  std::int64_t elements = 0, bytes = 0;
  if (!json) std::printf("%-40s %-5s %-18s %12s\n", "tensor", "type", "shape", "bytes");
  for (const format::TensorView& tensor : file.tensors()) {
    std::int64_t count = 1;
    for (const std::int64_t dim : tensor.shape) count *= dim;
    elements += count;
    bytes += static_cast<std::int64_t>(tensor.bytes.size());
    const std::string type(name_of(tensor.dtype));
    if (json) {
      observe::Event event("tensor");
      event.set("name", tensor.name)
          .set("dtype", type)
          .set("shape", tensor.shape)
          .set("bytes", static_cast<long>(tensor.bytes.size()));
      std::printf("%s\n", event.line().c_str());
    } else {
      std::printf("%-40s %-5s %-18s %12s\n", tensor.name.c_str(), type.c_str(),
                  shape_text(tensor.shape).c_str(),
                  grouped(static_cast<long>(tensor.bytes.size())).c_str());
    }
  }
  if (json) return;
  std::printf("%s, %s, %s in %s\n",
              counted(static_cast<std::int64_t>(file.tensors().size()), "tensor").c_str(),
              counted(elements, "parameter").c_str(),
              bytes_text(static_cast<double>(bytes)).c_str(), file.path().c_str());
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
  command.flag("--hash", options.hash,
               "One SHA-256 over all weights: name, type, shape, bytes, in name order");
  command.flag("--json", options.json, "JSON lines");
  command.run([&options] {
    const format::SafetensorsFile file(model_file(options.run));
    options.hash ? print_hash(file, options.json) : print_table(file, options.json);
    return 0;
  });
}

}  // namespace trireme::inline v0::cli
