// The emulated machine's report of a race (runtime.h).
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "trireme/testing/emulated_device/runtime.h"

namespace trireme::inline v0::testing {
namespace {

std::string advice_of(RaceKind kind) {
  switch (kind) {
    case RaceKind::FreeInUse:
      return "Call record_stream() on the tensor, or free it after a synchronisation.";
    case RaceKind::UseAfterFree:
      return "Keep the tensor alive, or call record_stream() on it.";
    default:
      return "Record an event after the first and let the second one's stream wait for it.";
  }
}

RaceKind kind_of(const Race& race) {
  if (!race.later_writes) return RaceKind::ReadAfterWrite;
  return race.earlier_writes ? RaceKind::WriteAfterWrite : RaceKind::WriteAfterRead;
}

std::string effect_of(RaceKind kind) {
  switch (kind) {
    case RaceKind::ReadAfterWrite:
      return "reads memory that may not have been written yet by";
    case RaceKind::WriteAfterRead:
      return "overwrites memory that may still be read by";
    case RaceKind::WriteAfterWrite:
      return "overwrites memory that may not have been written yet by";
    case RaceKind::FreeInUse:
      return "happens while the memory may still be used by";
    case RaceKind::UseAfterFree:
      return "uses memory after";
  }
  return "";
}

}  // namespace

RaceReport Runtime::describe(const Race& race, std::optional<RaceKind> kind) const {
  RaceReport report;
  report.kind = kind.value_or(kind_of(race));
  report.earlier = race.earlier;
  report.later = race.later;
  report.earlier_stream = name_of_locked(race.earlier_stream);
  report.later_stream = name_of_locked(race.later_stream);
  const int device = device_of_address(race.begin);
  std::ostringstream text;
  text << report.later << " on " << report.later_stream << " " << effect_of(report.kind) << " "
       << report.earlier << " on " << report.earlier_stream << " (" << race.bytes << " bytes at "
       << race.begin << ", ";
  if (device < 0) {
    text << "host memory";
  } else {
    text << "memory of emulated:" << device;
  }
  text << "): nothing orders the two. " << advice_of(report.kind);
  report.sentence = text.str();
  return report;
}

void Runtime::report(const RaceReport& race) {
  RaceHandler handler;
  {
    const Lock lock(streams_.mutex());
    handler = race_handler_;
  }
  if (handler) return handler(race);
  std::fprintf(stderr, "emulated device: %s\n", race.sentence.c_str());
  std::abort();
}

}  // namespace trireme::inline v0::testing
