#include "trireme/train/worker_spec.h"

#include <sstream>

namespace trireme {
inline namespace v0 {
namespace train {

std::string WorkerSpec::to_text() const {
  std::ostringstream out;
  out << resume << ' ' << trial << ' ' << json << ' ' << terminal << ' ' << predicted_bytes << ' '
      << corpus << ' ' << began << ' ' << folder << '\n'
      << trace << '\n'
      << recompute;
  return out.str();
}

WorkerSpec WorkerSpec::from_text(const std::string& text) {
  WorkerSpec spec;
  std::istringstream in(text);
  in >> spec.resume >> spec.trial >> spec.json >> spec.terminal >> spec.predicted_bytes >>
      spec.corpus >> spec.began;
  in.get();
  std::getline(in, spec.folder);
  std::getline(in, spec.trace);
  std::getline(in, spec.recompute);
  return spec;
}

}  // namespace train
}  // namespace v0
}  // namespace trireme
