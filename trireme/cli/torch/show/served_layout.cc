#include "trireme/cli/torch/show/served_layout.h"

#include <algorithm>
#include <map>
#include <vector>

#include "trireme/base/words.h"
#include "trireme/ps/served_model.h"

namespace trireme::inline v0::cli {
namespace {

struct Served {
  std::vector<ps::ServedParameter> parameters;
  std::vector<std::string> blocks;  // of each parameter
};

// A tied parameter is served once, under the name of its owner.
Served parameters_of(const models::Blocks& model, DType dtype) {
  Served served;
  for (const models::BlockSpec& spec : model.specs()) {
    for (const models::NamedTensor& one : spec.make()->parameters()) {
      const std::string name = spec.name + "." + one.name;
      const auto is_alias = [&](const models::Tie& tie) { return tie.alias == name; };
      if (std::any_of(model.ties().begin(), model.ties().end(), is_alias)) continue;
      served.parameters.push_back(
          {.name = name, .shape = one.tensor.sizes().vec(), .dtype = dtype, .decay = one.decay});
      served.blocks.push_back(spec.name);
    }
  }
  return served;
}

}  // namespace

show::ServerLayout served_layout(const train::Settings& settings, const std::string& name,
                                 int servers) {
  const DType dtype = settings.strategy.precision == "fp64" ? DType::F64 : DType::F32;
  const Served served = parameters_of(settings.model.blocks, dtype);
  const ps::ServedModel model(served.parameters, servers);
  std::map<std::string, std::int64_t> whole;  // bytes of each block
  for (std::size_t i = 0; i < served.blocks.size(); ++i)
    whole[served.blocks[i]] += served.parameters[i].count() * static_cast<int>(size_of(dtype));
  show::ServerLayout layout{
      .name = name + " on " + counted(servers, "parameter server"),
      .about = counted(static_cast<std::int64_t>(served.parameters.size()), "parameter") +
               ", cut at multiples of 4,096 elements so that servers have about equal bytes",
      .servers = {}};
  for (int server = 0; server < servers; ++server) {
    auto& parts = layout.servers.emplace_back();
    for (const ps::ServedModel::Slice& slice : model.slices(server)) {
      const std::string& block = served.blocks[slice.parameter];
      if (parts.empty() || parts.back().block != block) parts.push_back({.block = block});
      ++parts.back().parameters;
      parts.back().bytes += static_cast<std::int64_t>(slice.bytes());
    }
    for (show::ServerLayout::BlockShare& part : parts)
      part.whole = part.bytes == whole.at(part.block);
  }
  return layout;
}

}  // namespace trireme::inline v0::cli
