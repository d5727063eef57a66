// A configuration file may hold anything: it is refused with ConfigError, or read. Written again,
// it reads as the same values.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "trireme/base/config/config.h"
#include "trireme/base/error.h"

namespace {

using namespace trireme;

// A key of every kind.
config::Schema schema() {
  config::Schema all;
  all.add({.name = "timeout", .fallback = 30.0, .meaning = "", .minimum = 0.001, .maximum = 1e6})
      .add({.name = "train.steps", .fallback = std::int64_t{10}, .meaning = "", .minimum = 0})
      .add({.name = "train.loud", .fallback = false, .meaning = "", .identity = true})
      .add({.name = "model.name", .fallback = std::string("a"), .meaning = ""})
      .add({.name = "model.kind",
            .fallback = std::string("gpt"),
            .meaning = "",
            .choices = {"gpt", "mlp"},
            .identity = true})
      .add({.name = "model.layers", .fallback = std::string(), .meaning = "", .tables = true})
      .add({.name = "memory.limit",
            .fallback = std::string("none"),
            .meaning = "",
            .numbers = true});
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const config::Schema keys = schema();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    config::Config read(keys);
    read.read_text(text, "fuzz.toml");
    config::Config again(keys);
    again.read_text(read.to_toml(), "again.toml");
    for (const config::Key& key : keys.keys()) {
      if (again.value(key.name) != read.value(key.name)) std::abort();
    }
    if (again.identity() != read.identity()) std::abort();
  } catch (const ConfigError&) {
  }
  config::Config set(keys);
  try {
    set.set(text);
  } catch (const ConfigError&) {
  }
  return 0;
}
