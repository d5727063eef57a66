#include "trireme/strategy/module_tensors.h"

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <map>
#include <set>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/refuse.h"
#include "trireme/base/transports.h"
#include "trireme/base/weights_hash.h"
#include "trireme/base/words.h"
#include "trireme/strategy/option_check.h"
#include "trireme/sync/buckets/autograd_hooks.h"
#include "trireme/sync/distinct_memory.h"
#include "trireme/sync/sync_plan.h"
#include "trireme/sync/torch_optimizer.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {
namespace {

class OneBlock final : public models::Block {
 public:
  explicit OneBlock(const NamedTensors& trainable) : trainable_(trainable) {}
  models::Value forward(std::span<const models::Value>) override { return {}; }
  std::vector<models::NamedTensor> parameters() override {
    std::vector<models::NamedTensor> parameters;
    for (const auto& [name, tensor] : trainable_) parameters.push_back({name, tensor});
    return parameters;
  }
  std::vector<models::NamedTensor> buffers() override { return {}; }
  void train(bool) override {}

 private:
  const NamedTensors& trainable_;
};

void check_memory(const ModuleTensors& contents) {
  DistinctMemory memory;
  std::set<const void*> trained;
  for (const auto& [name, tensor] : contents.trainable)
    trained.insert(tensor.unsafeGetTensorImpl());
  for (const auto& [name, tensor] : contents.distinct)
    memory.add(name, tensor, trained.contains(tensor.unsafeGetTensorImpl()));
}

bool shards_state_alone(const std::string& level) {
  return shards_state(level) && !shards_weights(level);
}

// LibTorch's module.parameters() lists a tensor twice that is registered under two names.
void check_optimizer(const ModuleTensors& contents, const torch::optim::Optimizer& optimizer,
                     bool served) {
  std::map<const void*, std::string> names;
  for (const auto& [name, tensor] : contents.trainable)
    names.emplace(tensor.unsafeGetTensorImpl(), name);
  std::set<const void*> updated;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.requires_grad()) continue;
      const auto name = names.find(parameter.unsafeGetTensorImpl());
      if (name == names.end())
        refuse("DataParallel", "the optimizer updates a parameter that the module does not have",
               "Give the optimizer module.parameters().");
      if (!updated.insert(name->first).second)
        refuse("DataParallel",
               "the optimizer has parameter " + name->second +
                   " twice, and would update it twice in each step",
               "Give it each tensor once: module.parameters() has one that is registered under two "
               "names twice.");
    }
  }
  for (const auto& [name, tensor] : contents.trainable)
    if (served && !updated.contains(tensor.unsafeGetTensorImpl()))
      refuse("DataParallel",
             "the optimizer does not have parameter " + name +
                 ", which the servers of sync = \"server\" would train",
             "Give it module.parameters(), or call requires_grad_(false) on the parameters that it "
             "is not to train.");
  if (updated.empty())
    refuse("DataParallel", "the optimizer has no parameter of the module that requires grad",
           "Give the optimizer module.parameters().");
}

// "parameters from first.bias on, 1f2e3d4c5b6a7988": the number is a hash of all their names. Ranks
// compare later which of them require grad.
std::string names_in(const torch::optim::OptimizerParamGroup& group,
                     const ModuleTensors& contents) {
  std::set<const void*> members;
  for (const at::Tensor& parameter : group.params())
    members.insert(parameter.unsafeGetTensorImpl());
  std::set<std::string> names;
  for (const auto& [name, tensor] : contents.parameters)
    if (members.contains(tensor.unsafeGetTensorImpl())) names.insert(name);
  if (names.empty()) return "no parameters";
  std::string all;
  for (const std::string& name : names) all += name + "\n";
  std::ostringstream text;
  text << "parameters from " << *names.begin() << " on, " << std::hex
       << tensor_hash({.name = all, .shape = {}, .bytes = {}});
  return text.str();
}

}  // namespace

ModuleTensors tensors_of(torch::nn::Module& module) {
  ModuleTensors contents;
  std::set<const void*> seen;
  const auto take = [&](const std::string& name, const at::Tensor& tensor, bool parameter) {
    if (!tensor.defined()) return;
    contents.all.emplace_back(name, tensor);
    if (parameter) contents.parameters.emplace_back(name, tensor);
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) return;
    contents.distinct.emplace_back(name, tensor);
    if (parameter && tensor.requires_grad()) contents.trainable.emplace_back(name, tensor);
  };
  for (const auto& item : module.named_parameters()) take(item.key(), item.value(), true);
  for (const auto& item : module.named_buffers()) take(item.key(), item.value(), false);
  return contents;
}

ServerOptions server_options_of(const DataParallelOptions& options) {
  return {.staleness = options.staleness,
          .backup = options.backup,
          .compensation = options.compensation,
          .prediction = options.prediction,
          .replicas = options.replicas};
}

void check_module(const ModuleTensors& contents, const DataParallelOptions& options,
                  const torch::optim::Optimizer& optimizer) {
  if (shards_weights(options.sync))
    refuse("DataParallel",
           "sync = \"" + options.sync +
               "\" cannot be used with a module. A module is one block: all its weights are needed "
               "until its backward pass ends, so no rank could free any",
           "Use " + one_of(level_names(&shards_state_alone)) +
               " here, or give the model as a list of blocks (trireme::Blocks, Strategy), where " +
               options.sync + " keeps two blocks whole at a time.");
  if (is_local(options.sync))
    refuse("DataParallel",
           "sync = \"" + options.sync +
               "\" cannot be used with a module: Trireme cannot average the state of the program's "
               "own optimizer",
           "Give the model as a list of blocks (trireme::Blocks, Strategy).");
  if (!is_served(options.sync) && server_options_of(options) != ServerOptions{})
    refuse("DataParallel",
           "sync = \"" + options.sync +
               "\" cannot be combined with staleness, backup, compensation, prediction or replicas",
           "Leave these out: they are for sync = \"server\".");
  if (const std::string wrong = wrong_number(options); !wrong.empty())
    refuse("DataParallel", wrong, "Use a clip of 0 (off) or more, and buckets of 1 byte or more.");
  if ((shards_state(options.sync) || is_served(options.sync)) && options.compression != "none")
    refuse("DataParallel",
           "compression = \"" + options.compression + "\" cannot be combined with sync = \"" +
               options.sync + "\": parts of gradients are not compressed",
           "Use sync = \"plain\", or no compression.");
  require_supported(optimizer);
  if (contents.trainable.empty())
    refuse("DataParallel", "the module has no parameter that requires grad",
           "Give it one to train.");
  for (const auto& [name, tensor] : contents.trainable)
    if (!c10::isFloatingType(tensor.scalar_type()))
      refuse("DataParallel",
             "parameter " + name + " is " + c10::toString(tensor.scalar_type()) +
                 ", but gradients are summed as real numbers",
             "Train at::view_as_real(parameter), and call at::view_as_complex() in forward().");
  check_optimizer(contents, optimizer, is_served(options.sync));
  for (const auto& [name, tensor] : contents.trainable)
    if (has_gradient_hook(tensor))
      refuse("DataParallel", "another DataParallel, which still lives, trains parameter " + name,
             "Destroy it first: reset() the pointer that holds it, then make the new one.");
  for (const auto& [name, tensor] : contents.trainable)
    if (is_served(options.sync) && tensor.scalar_type() != at::kFloat &&
        tensor.scalar_type() != at::kDouble)
      refuse("DataParallel",
             "parameter " + name + " is " + c10::toString(tensor.scalar_type()) +
                 ", but with sync = \"server\" servers keep weights in fp32 or fp64",
             "Keep the module's parameters in fp32, and use Autocast for 16-bit passes.");
  for (const auto& [name, tensor] : contents.trainable)
    if (tensor.device() != contents.trainable.front().second.device())
      refuse("DataParallel",
             "parameter " + name + " is on " + tensor.device().str() + ", others are on " +
                 contents.trainable.front().second.device().str(),
             "Move the whole module to one device before DataParallel is made.");
  check_memory(contents);
}

std::string settings_of(const ModuleTensors& contents, const DataParallelOptions& options,
                        const torch::optim::Optimizer& optimizer) {
  std::int64_t parameters = 0;
  std::string groups;
  for (const auto& group : optimizer.param_groups()) {
    parameters += static_cast<std::int64_t>(group.params().size());
    groups += "; " + names_in(group, contents) + numbers_of(optimizer, group.options());
  }
  return common_settings(options) + ", " + name_of(optimizer) + " of " +
         counted(parameters, "parameter") + " in " +
         counted(static_cast<std::int64_t>(optimizer.param_groups().size()), "group") + groups;
}

// own_state() makes zeros on the ranks that call it. They change no update unless SGD dampens it.
std::string state_text(const ModuleTensors& contents, torch::optim::Optimizer& optimizer) {
  const auto& kept = optimizer.state();
  std::string all;
  for (const auto& [name, parameter] : contents.trainable) {
    if (kept.find(parameter.unsafeGetTensorImpl()) == kept.end()) continue;
    if (const std::int64_t count = updates(optimizer, parameter); count > 0)
      all += name + " " + std::to_string(count) + "\n";
    const bool zeros_count = dampens(optimizer, parameter);
    for (const auto& [kind, tensor] : state_tensors(optimizer, parameter)) {
      const at::Tensor content = tensor::on_host(tensor.detach().contiguous());
      if (!zeros_count && content.count_nonzero().item<std::int64_t>() == 0) continue;
      const Buffer buffer = tensor::to_buffer(content);
      all += std::to_string(tensor_hash({.name = name + "." + kind,
                                         .dtype = buffer.dtype,
                                         .shape = content.sizes().vec(),
                                         .bytes = buffer.as_bytes()})) +
             "\n";
    }
  }
  if (all.empty()) return {};
  std::ostringstream text;
  text << ", state " << std::hex << tensor_hash({.name = all, .shape = {}, .bytes = {}});
  return text.str();
}

ParameterSnapshot::ParameterSnapshot(torch::nn::Module& module, const ModuleTensors& tensors,
                                     bool moved)
    : module_(module), tensors_(tensors) {
  for (const auto& [name, tensor] : tensors.parameters)
    was_.push_back({tensor.scalar_type(), tensor.numel(), tensor.requires_grad(),
                    moved ? tensor.const_data_ptr() : nullptr});
}

std::string ParameterSnapshot::difference() const {
  const auto now = module_.named_parameters();
  std::size_t defined = 0;
  for (const auto& item : now) defined += item.value().defined() ? 1 : 0;
  if (defined != was_.size())
    return "the module has " + std::to_string(defined) + " parameters, and had " +
           std::to_string(was_.size()) + " when DataParallel was made";
  std::size_t i = 0;
  for (const auto& item : now) {
    if (!item.value().defined()) continue;
    if (const char* what = change_of(item.value(), i++); what != nullptr)
      return "parameter " + item.key() + " " + what + " when DataParallel was made";
  }
  return {};
}

const char* ParameterSnapshot::change_of(const at::Tensor& now, std::size_t i) const {
  const Was& was = was_[i];
  if (!now.is_same(tensors_.parameters[i].second)) return "is another tensor than";
  if (now.scalar_type() != was.type || now.numel() != was.count)
    return "has another type or shape than";
  if (was.memory != nullptr && now.const_data_ptr() != was.memory) return "has other memory than";
  if (now.requires_grad() && !was.required_grad) return "requires grad, and did not,";
  if (!now.requires_grad() && was.required_grad) return "does not require grad, and did,";
  return nullptr;
}

std::vector<Accumulated> accumulators(const NamedTensors& trainable) {
  std::vector<Accumulated> uses;
  for (const auto& [name, tensor] : trainable)
    uses.push_back({name, tensor.numel(),
                    tensor.scalar_type() == at::kDouble ? DType::F64 : DType::F32,
                    tensor.dim() > 1 ? tensor.size(0) : 1});
  return uses;
}

std::vector<optim::OwnedSlice> whole_slices(const NamedTensors& trainable) {
  std::vector<optim::OwnedSlice> slices;
  for (const auto& [name, tensor] : trainable)
    slices.push_back({.parameter = static_cast<std::uint32_t>(slices.size()),
                      .name = name,
                      .begin = 0,
                      .end = tensor.numel(),
                      .master_dtype = tensor.scalar_type() == at::kDouble ? DType::F64 : DType::F32,
                      .device = tensor::device_of(tensor.device())});
  return slices;
}

std::vector<at::Tensor> without_names(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

std::shared_ptr<models::Block> as_one_block(const NamedTensors& trainable) {
  return std::make_shared<OneBlock>(trainable);
}

std::string hash_of(const NamedTensors& tensors) {
  std::vector<HashedTensor> hashed;
  std::vector<at::Tensor> contiguous;
  for (const auto& [name, tensor] : tensors) {
    contiguous.push_back(tensor::on_host(tensor.detach().contiguous()));
    const Buffer buffer = tensor::to_buffer(contiguous.back());
    hashed.push_back({name, buffer.dtype, tensor.sizes().vec(), buffer.as_bytes()});
  }
  return weights_hash(std::move(hashed));
}

}  // namespace trireme::inline v0::parallel
