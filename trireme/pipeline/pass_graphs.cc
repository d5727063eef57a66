#include "trireme/pipeline/pass_graphs.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/pipeline/parcel.h"

namespace trireme::inline v0::parallel {
namespace {

constexpr std::size_t kMostForms = 4;

}  // namespace

const PassGraphs::Result* PassGraphs::run(const MicroBatch& micro, std::int64_t step,
                                          double loss_gradient, const Passes& passes) {
  const std::string key = number_text(loss_gradient) + layouts_of(micro);
  const auto found = forms_.find(key);
  if (found == forms_.end()) {
    make_room();
    forms_[key] = nullptr;
    return nullptr;
  }
  std::unique_ptr<Form>& form = found->second;
  if (form == nullptr) {
    auto made = std::make_unique<Form>(device_);
    record(*made, micro, passes);
    form = std::move(made);
    ++recorded_;
  }
  for (std::size_t i = 0; i < micro.fields.size(); ++i)
    form->input.fields[i].second.copy_(micro.fields[i].second, /*non_blocking=*/true);
  form->streams.set(step, static_cast<std::int64_t>(micro.index));
  form->graph->replay();
  form->used = ++replayed_;
  return &form->result;
}

void PassGraphs::record(Form& form, const MicroBatch& micro, const Passes& passes) const {
  form.input = micro;
  form.input.count = 0;  // so that a loss that depends on it is seen to be wrong
  for (auto& [name, field] : form.input.fields) field = field.clone();
  const tensor::DeviceGraph* beside = nullptr;
  for (const auto& [key, other] : forms_)
    if (other != nullptr) beside = other->graph.get();
  const tensor::RecordedStreams::Scope scope(form.streams);
  try {
    form.graph = std::make_unique<tensor::DeviceGraph>(
        device_, [&] { form.result = passes(form.input); }, beside);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    const std::string why = error.what_without_backtrace();
    throw ConfigError(
        "the passes of this model cannot be recorded as a graph: " + why.substr(0, why.find('\n')),
        {.operation = "step",
         .label = "train.graphs",
         .advice = "Leave train.graphs out, or let the model compute without waiting for the "
                   "device (docs/gpu.md)."});
  }
}

// Drops the least recently used form.
void PassGraphs::make_room() {
  if (forms_.size() < kMostForms) return;
  forms_.erase(std::min_element(forms_.begin(), forms_.end(), [](const auto& a, const auto& b) {
    const auto used = [](const auto& one) { return one.second ? one.second->used : 0; };
    return used(a) < used(b);
  }));
}

}  // namespace trireme::inline v0::parallel
