#include "trireme/observe/events.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "trireme/base/descriptor.h"
#include "trireme/base/error.h"

namespace trireme::inline v0::observe {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void cannot_write(const std::string& path) {
  throw ResourceError(
      "cannot write " + path + ": " + std::strerror(errno),
      {.operation = "events",
       .advice = "Make the folder writable and free some space there, or give another --out."});
}

[[noreturn]] void cannot_read(const std::string& path) {
  throw ResourceError("cannot read " + path + ": " + std::strerror(errno),
                      {.operation = "events", .advice = "Repair it, or move it away."});
}

// The object in a line; a discarded value if it is torn (the last line of a killed run).
Json parse(const std::string& line) { return Json::parse(line, nullptr, false); }

// The file may have been edited by hand.
std::optional<double> number_of(const Json& event, const char* key) {
  const auto found = event.find(key);
  if (found == event.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

constexpr double kMostRanks = 65'536;
constexpr std::size_t kMostKept = 100'000;  // events, about 30 MB

double step_of(const Json& event) { return number_of(event, "step").value_or(0); }

// Syncs before the rename, so that after a power cut the file is the old or the new one.
void sync_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file || ::fsync(file.get()) != 0) cannot_write(path);
}

}  // namespace

Event::Event(std::string_view kind) { set("event", std::string(kind)); }

Event& Event::set(std::string_view name, Value value) {
  fields_.emplace_back(name, std::move(value));
  return *this;
}

Event& Event::merge(const std::string& prefix, const Event& other) {
  for (const auto& [name, value] : other.fields_)
    if (name != "event") set(prefix + name, value);
  return *this;
}

std::string Event::line() const {
  Json object;
  for (const auto& [name, value] : fields_)
    std::visit([&, &key = name](const auto& held) { object[key] = held; }, value);
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Event step_event(const StepFigures& figures) {
  Event event("step");
  const auto set = [&event](std::string_view name, const auto& value) {
    if (value) event.set(name, *value);
  };
  event.set("step", figures.step);
  set("loss", figures.loss);
  event.set("step_seconds", figures.step_seconds);
  set(std::string(figures.items) + "_per_second", figures.items_per_second);
  set("communication_seconds", figures.communication_seconds);
  set("input_seconds", figures.input_seconds);
  set("device_bytes", figures.device_bytes);
  set("learning_rate", figures.learning_rate);
  set("gradient_norm", figures.gradient_norm);
  set("model_flops_utilization", figures.model_flops_utilization);
  set("skipped_steps", figures.skipped_steps);
  set("noise_scale", figures.noise_scale);
  set("loss_scale", figures.loss_scale);
  set("overflows", figures.overflows);
  if (figures.last_rank >= 0)
    event.set("last_rank", figures.last_rank).set("behind_seconds", figures.behind_seconds);
  return event;
}

Event validation_event(long step, double loss, long count, std::optional<double> trigram,
                       std::string_view items, std::optional<double> accuracy) {
  Event event("validation");
  event.set("step", step).set("loss", loss).set(items, count);
  if (accuracy) event.set("accuracy", *accuracy);
  if (trigram) event.set("trigram_loss", *trigram);
  return event;
}

EventWriter::~EventWriter() {
  if (file_ != nullptr) std::fclose(file_);
}

void EventWriter::open(const std::string& path) {
  path_ = path;
  file_ = std::fopen(path.c_str(), "a+e");
  if (file_ == nullptr) cannot_write(path);
  // After a part of a line, which a crash may have left, the next event needs its own line.
  if (std::fseek(file_, -1, SEEK_END) == 0 && std::fgetc(file_) != '\n') std::fputc('\n', file_);
  std::fseek(file_, 0, SEEK_END);
}

void EventWriter::write(const Event& event) {
  const std::string line = event.line() + "\n";
  if (file_ != nullptr) append(line);
  echo(line);
}

void EventWriter::keep(const Event& event) {
  kept_.push_back(event.line() + "\n");
  echo(kept_.back());
  if (kept_.size() <= kMostKept) return;
  kept_.pop_front();
  ++dropped_;
}

void EventWriter::write_kept() {
  for (; !kept_.empty(); kept_.pop_front()) append(kept_.front());
}

void EventWriter::take_kept(std::deque<std::string> kept, long until) {
  kept_ = std::move(kept);
  std::erase_if(kept_, [&](const std::string& line) {
    return step_of(parse(line)) > static_cast<double>(until);
  });
}

void EventWriter::echo(const std::string& line) const {
  if (!echo_) return;
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

// The next event must not continue a part of a line.
void EventWriter::append(const std::string& line) {
  if (!append_whole(file_, line, "\n")) cannot_write(path_);
}

bool append_whole(std::FILE* file, std::string_view bytes, std::string_view after_part) {
  struct stat before {};
  const bool known = ::fstat(::fileno(file), &before) == 0;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() && std::fflush(file) == 0)
    return true;
  const int reason = errno;
  if (known && ::ftruncate(::fileno(file), before.st_size) != 0)
    std::fwrite(after_part.data(), 1, after_part.size(), file);
  errno = reason;
  return false;
}

double wall_seconds() noexcept {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

History read_history(const std::string& path, const std::deque<std::string>& unwritten) {
  History history;
  const auto take = [&](const std::string& line) {
    const Json event = parse(line);
    if (!event.is_object()) return;
    if (const auto trigram = number_of(event, "trigram_loss")) history.trigram = trigram;
    const std::optional<double> loss = number_of(event, "loss");
    const Json kind = event.value("event", Json());
    const std::optional<double> ranks = number_of(event, "ranks");
    if ((kind == "plan" || kind == "resumed") && ranks >= 1.0 && ranks <= kMostRanks)
      history.ranks = static_cast<int>(*ranks);
    if (kind == "early_stop") history.early_stop = step_of(event);
    if (!loss) return;
    if (kind == "step") history.training.emplace_back(step_of(event), *loss);
    if (kind == "validation") history.validation.emplace_back(step_of(event), *loss);
  };
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) take(line);
  for (const std::string& line : unwritten) take(line);
  return history;
}

void keep_until(const std::string& path, long step) {
  if (std::error_code none; !std::filesystem::exists(path, none)) return;
  std::ifstream file(path);
  if (!file) cannot_read(path);
  const std::string next = path + ".new";
  {
    std::ofstream out(next, std::ios::trunc);
    for (std::string line; std::getline(file, line);) {
      const Json event = parse(line);
      if (event.is_object() && step_of(event) <= static_cast<double>(step)) out << line << '\n';
    }
    if (file.bad()) cannot_read(path);
    if (!out.flush()) {
      const int reason = errno;
      std::remove(next.c_str());
      errno = reason;
      cannot_write(next);
    }
  }
  sync_file(next);
  if (std::rename(next.c_str(), path.c_str()) != 0) cannot_write(path);
}

}  // namespace trireme::inline v0::observe
