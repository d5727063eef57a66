#include "trireme/cli/help/names.h"

#include <set>

#include "trireme/comm/rounds/registry.h"
#include "trireme/plan/schedule/generators/schedules.h"
#include "trireme/show/collective/collective.h"

namespace trireme::inline v0::cli {

std::vector<std::string> collective_names() {
  std::vector<std::string> names;
  for (const comm::OpKind kind : show::drawn_kinds()) names.push_back(show::title_of(kind));
  return names;
}

std::vector<std::string> algorithm_names() {
  std::set<std::string> names = {"direct"};
  for (const comm::OpKind kind : show::drawn_kinds())
    for (const auto* entry : comm::algorithms_of(kind)) names.insert(entry->name);
  return {names.begin(), names.end()};
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const plan::ScheduleEntry& one : plan::schedules()) names.emplace_back(one.name);
  return names;
}

}  // namespace trireme::inline v0::cli
