#include "trireme/train/config/worker_spec.h"

#include <sstream>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"

namespace trireme::inline v0::train {

WorkerSpec WorkerSpec::elsewhere() const {
  WorkerSpec spec = *this;
  spec.corpus = spec.lock = -1;
  spec.began = -1;
  spec.terminal = false;
  return spec;
}

std::string WorkerSpec::to_text() const {
  std::ostringstream out;
  out << resume << ' ' << validates << ' ' << trial << ' ' << json << ' ' << terminal << ' '
      << predicted_bytes << ' ' << predicted_step << ' ' << predicted_snapshot << ' '
      << predicted_copies << ' ' << product_seconds << ' ' << corpus << ' ' << lock << ' ' << began
      << ' ' << folder << '\n'
      << trace << '\n'
      << profile << '\n'
      << recompute << '\n'
      << device << '\n'
      << transport;
  return out.str();
}

WorkerSpec WorkerSpec::from_text(const std::string& text) {
  WorkerSpec spec;
  std::istringstream in(text);
  in >> spec.resume >> spec.validates >> spec.trial >> spec.json >> spec.terminal >>
      spec.predicted_bytes >> spec.predicted_step >> spec.predicted_snapshot >>
      spec.predicted_copies >> spec.product_seconds >> spec.corpus >> spec.lock >> spec.began;
  in.get();
  std::getline(in, spec.folder);
  std::getline(in, spec.trace);
  std::getline(in, spec.profile);
  std::getline(in, spec.recompute);
  std::getline(in, spec.device);
  std::getline(in, spec.transport);
  if (spec.began < 0) spec.began = steady_now().time_since_epoch().count();
  if (spec.folder.empty()) {
    throw ConfigError("TRIREME_WORKER_SPEC does not say what a rank is to do",
                      {.operation = "train", .advice = "Unset it: `trireme train` sets its own."});
  }
  return spec;
}

}  // namespace trireme::inline v0::train
