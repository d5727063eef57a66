#include "trireme/pipeline/stage_link.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {
namespace {

constexpr std::size_t kNotePart = 0, kWordsPart = 1, kFirstTensor = 2;

// The value that tensor number `tensor` belongs to, and its place in it.
std::string name_of_tensor(const Parcel& parcel, std::size_t tensor,
                           const std::vector<std::string>& names) {
  for (std::size_t value = 0; value < parcel.counts.size(); ++value) {
    if (tensor >= parcel.counts[value]) {
      tensor -= parcel.counts[value];
      continue;
    }
    const std::string name = value < names.size() ? names[value] : "?";
    return "\"" + name + "\"" +
           (parcel.counts[value] > 1 ? "[" + std::to_string(tensor) + "]" : "");
  }
  return "?";
}

}  // namespace

// Direction, stage, micro-batch, part of the parcel. Micro-batches that share a tag go through a
// link in the same order on both sides.
std::uint32_t StageLink::tag(std::uint32_t micro, std::size_t part) const {
  return (options_.gradients ? 1u << 31 : 0u) |
         (static_cast<std::uint32_t>(options_.from) & 0xfffu) << 19 | (micro & 0x7ffu) << 8 |
         static_cast<std::uint32_t>(part);
}

std::string StageLink::label(std::uint32_t micro) const {
  return "stage " + std::to_string(options_.from) + " -> " + std::to_string(options_.to) +
         (options_.gradients ? " gradient" : " activation") + " micro " + std::to_string(micro);
}

const Parcel* StageLink::known(const std::string& key) const {
  const auto agreed = agreed_.find(key);
  return agreed == agreed_.end() ? nullptr : &agreed->second;
}

void StageLink::check(const std::string& key, const Parcel& parcel,
                      const std::vector<std::string>& names) const {
  const auto refuse = [&](const std::string& what, const std::string& advice) {
    throw ConfigError("stage " + std::to_string(options_.from) + " " + what,
                      {.operation = "pipeline", .advice = advice});
  };
  if (parcel.tensors.size() > kMostTensors)
    refuse("gives " + std::to_string(parcel.tensors.size()) +
               " tensors to the next stage, but at most " + std::to_string(kMostTensors) +
               " can cross a cut",
           "Cut the model elsewhere.");
  const auto first = pending_.find(key);
  const Parcel* before = known(key);
  if (before == nullptr && first != pending_.end()) before = &first->second.layouts;
  if (before == nullptr) return;
  const std::string advice =
      "A block has to return the same shapes for micro-batches of the same shape.";
  if (before->counts != parcel.counts)
    refuse("gives other numbers of tensors than for an earlier micro-batch", advice);
  for (std::size_t i = 0; i < parcel.layouts.size(); ++i) {
    if (options_.gradients || before->layouts[i].agrees(parcel.layouts[i])) continue;
    refuse("gives " + name_of_tensor(parcel, i, names) + " as " + parcel.layouts[i].text() +
               (parcel.layouts[i].carries_gradient ? "" : " without gradient") +
               ", but the agreed layout is " + before->layouts[i].text() +
               (before->layouts[i].carries_gradient ? "" : " without gradient"),
           advice);
  }
}

void StageLink::remember(const std::string& key, std::uint32_t micro, const Parcel& parcel) {
  if (parcel.failed || known(key) != nullptr) return;
  First& first = pending_[key];
  if (!first.layouts.layouts.empty() && first.micro <= micro) return;
  first = {micro, {.counts = parcel.counts, .layouts = parcel.layouts}};
}

void StageLink::send(const std::string& key, std::uint32_t micro, const Parcel& parcel) {
  while (!sending_.empty() && sending_.front().work.done()) {
    sending_.front().work.wait();  // a failure is seen
    sending_.pop_front();
  }
  const Parcel* agreed = known(key);
  Sending sending{.note = std::make_shared<Note>()};
  Note& note = *sending.note;
  note.fill(0);
  note[0] = parcel.failed ? 1 : 0;
  const std::string text = label(micro);
  std::vector<Work> works;
  const auto start = [&](const Buffer& buffer, std::size_t part) {
    works.push_back(
        options_.pipeline->send(buffer, options_.peer, tag(micro, part), {.label = text}));
  };
  if (agreed == nullptr && !parcel.failed) {
    sending.words = std::make_shared<std::vector<std::int64_t>>(words_of(parcel));
    note[1] = static_cast<std::int64_t>(sending.words->size());
  }
  for (std::size_t i = 0; i < parcel.tensors.size(); ++i)
    if (!parcel.tensors[i].defined()) note[2 + i / 64] |= std::int64_t{1} << (i % 64);
  start(Buffer::of(std::span<std::int64_t>(note)), kNotePart);
  if (sending.words) start(Buffer::of(std::span(*sending.words)), kWordsPart);
  const Parcel& layouts = agreed != nullptr ? *agreed : parcel;
  for (std::size_t i = 0; i < layouts.layouts.size(); ++i) {
    if (layouts.layouts[i].count() == 0) continue;
    const at::Tensor tensor = parcel.failed ? at::Tensor() : parcel.tensors[i];
    sending.tensors.push_back(fitted(tensor, layouts.layouts[i], options_.device));
    start(tensor::bytes_of(sending.tensors.back()), kFirstTensor + i);
  }
  sending.work = Work::all(works);
  sending_.push_back(std::move(sending));
  remember(key, micro, parcel);
}

Work StageLink::sent() {
  std::vector<Work> works;
  for (const Sending& sending : sending_) works.push_back(sending.work);
  return Work::all(works);
}

void StageLink::receive_tensors(Receiving& receiving) {
  const std::string text = label(receiving.micro);
  Parcel& parcel = receiving.parcel;
  for (std::size_t i = 0; i < parcel.layouts.size(); ++i) {
    parcel.tensors.push_back(parcel.layouts[i].allocate(options_.device));
    if (parcel.layouts[i].count() == 0) continue;
    receiving.works.push_back(
        options_.pipeline->recv(tensor::bytes_of(parcel.tensors.back()), options_.peer,
                                tag(receiving.micro, kFirstTensor + i), {.label = text}));
  }
}

void StageLink::post(const std::string& key, std::uint32_t micro) {
  Receiving receiving{.key = key, .micro = micro, .note = std::make_shared<Note>()};
  receiving.noted =
      options_.pipeline->recv(Buffer::of(std::span<std::int64_t>(*receiving.note)), options_.peer,
                              tag(micro, kNotePart), {.label = label(micro)});
  if (const Parcel* agreed = known(key)) {
    receiving.parcel = *agreed;
    receive_tensors(receiving);
  }
  receiving_.push_back(std::move(receiving));
}

Parcel StageLink::receive() {
  TRIREME_CHECK(!receiving_.empty());
  Receiving& receiving = receiving_.front();
  receiving.noted.wait();
  const Note& note = *receiving.note;
  if ((note[1] > 0) == (known(receiving.key) != nullptr) && note[0] == 0)
    throw MismatchError(label(receiving.micro) + ": the sender has a micro-batch of another shape",
                        {.rank = options_.pipeline->rank(),
                         .operation = "pipeline",
                         .peer = options_.peer,
                         .advice = "Give every rank of a pipeline the same micro-batches."});
  if (note[1] > 0) {
    std::vector<std::int64_t> words(static_cast<std::size_t>(note[1]));
    options_.pipeline
        ->recv(Buffer::of(std::span(words)), options_.peer, tag(receiving.micro, kWordsPart),
               {.label = label(receiving.micro)})
        .wait();
    receiving.parcel = parcel_of(words);
    receive_tensors(receiving);
  }
  tensor::wait_for(Work::all(receiving.works), options_.device);
  Parcel parcel = std::move(receiving.parcel);
  parcel.failed = note[0] != 0;
  for (std::size_t i = 0; i < parcel.tensors.size(); ++i)
    if (note[2 + i / 64] >> (i % 64) & 1) parcel.tensors[i].reset();
  remember(receiving.key, receiving.micro, parcel);
  receiving_.pop_front();
  return parcel;
}

void StageLink::settle(bool good) {
  sending_.clear();  // sent() has been waited for
  if (good)
    for (auto& [key, first] : pending_) agreed_.emplace(key, std::move(first.layouts));
  pending_.clear();
}

}  // namespace trireme::inline v0::parallel
