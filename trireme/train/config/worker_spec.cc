#include "trireme/train/config/worker_spec.h"

#include <algorithm>
#include <sstream>
#include <tuple>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"

namespace trireme::inline v0::train {
namespace {

// The system clock's time less steady_now(), which means nothing on another host; ns.
std::int64_t system_clock_ahead() {
  using std::chrono::nanoseconds;
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<nanoseconds>(wall).count() -
         steady_now().time_since_epoch().count();
}

// The fields in the order of the text: numbers with a space behind each, then a line for each text.
template <class Spec>
auto number_fields(Spec& spec) {
  return std::tie(spec.resume, spec.validates, spec.trial, spec.json, spec.terminal,
                  spec.predicted_bytes, spec.predicted_step, spec.predicted_snapshot,
                  spec.predicted_copies, spec.product_seconds, spec.corpus, spec.lock, spec.began,
                  spec.began_at, spec.spare_device);
}
template <class Spec>
auto text_fields(Spec& spec) {
  return std::tie(spec.folder, spec.trace, spec.profile, spec.recompute, spec.device,
                  spec.transport, spec.claim);
}

}  // namespace

WorkerSpec WorkerSpec::elsewhere() const {
  WorkerSpec spec = *this;
  spec.corpus = spec.lock = spec.spare_device = -1;
  spec.began_at = began + system_clock_ahead();
  spec.terminal = false;
  return spec;
}

std::string WorkerSpec::to_text() const {
  std::ostringstream out;
  std::apply([&](const auto&... number) { ((out << number << ' '), ...); }, number_fields(*this));
  std::apply([&](const auto&... text) { ((out << text << '\n'), ...); }, text_fields(*this));
  return out.str();
}

WorkerSpec WorkerSpec::from_text(const std::string& text) {
  WorkerSpec spec;
  std::istringstream in(text);
  std::apply([&](auto&... number) { (in >> ... >> number); }, number_fields(spec));
  in.get();
  std::apply([&](auto&... line) { (std::getline(in, line), ...); }, text_fields(spec));
  if (spec.began_at > 0)  // a clock that is behind has not seen the start yet
    spec.began = std::min<std::int64_t>(spec.began_at - system_clock_ahead(),
                                        steady_now().time_since_epoch().count());
  if (spec.folder.empty()) {
    throw ConfigError("TRIREME_WORKER_SPEC does not say what a rank is to do",
                      {.operation = "train", .advice = "Unset it: `trireme train` sets its own."});
  }
  return spec;
}

}  // namespace trireme::inline v0::train
