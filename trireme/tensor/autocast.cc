#include "trireme/tensor/autocast.h"

#include <ATen/autocast_mode.h>

namespace trireme::inline v0 {

Autocast::Autocast(c10::DeviceType device, c10::ScalarType type, bool enabled)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      was_type_(at::autocast::get_autocast_dtype(device)) {
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_dtype(device, type);
  at::autocast::increment_nesting();
}

// As with torch.autocast, cast weights are cached until the outermost region ends.
Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, was_type_);
}

}  // namespace trireme::inline v0
