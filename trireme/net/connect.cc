#include "trireme/net/connect.h"

#include <algorithm>
#include <iterator>

#include "trireme/base/check.h"

namespace trireme::inline v0::net {

#define TRIREME_TRANSPORT(name, ...) std::shared_ptr<Transport> join_##name(const Meeting& meeting);
#include "trireme/base/transports.inc"
#undef TRIREME_TRANSPORT

std::shared_ptr<Transport> connect(std::string_view name, const Meeting& meeting) {
  struct Entry {
    std::string_view name;
    std::shared_ptr<Transport> (*join)(const Meeting& meeting);
  };
#define TRIREME_TRANSPORT(one, ...) {#one, join_##one},
  static constexpr Entry kAll[] = {
#include "trireme/base/transports.inc"
  };
#undef TRIREME_TRANSPORT
  const auto* const found = std::ranges::find(kAll, name, &Entry::name);
  TRIREME_CHECK((found != std::end(kAll)));
  return found->join(meeting);
}

}  // namespace trireme::inline v0::net
