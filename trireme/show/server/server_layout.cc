#include "trireme/show/server/server_layout.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/plot/doubling_bins.h"
#include "trireme/base/utf8.h"
#include "trireme/base/words.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::show {
namespace {

std::string part_name(const ServerLayout::BlockShare& part) {
  return part.block + (part.whole ? "" : " (in part)");
}

std::string server_line(const ServerLayout& layout, std::size_t server) {
  const std::int64_t own = layout.bytes(server);
  std::string text = "server " + std::to_string(server) + "  ";
  if (own == 0)
    return text + "nothing, because the parameters have fewer parts than there are servers\n";
  int parameters = 0;
  for (const ServerLayout::BlockShare& part : layout.servers[server]) parameters += part.parameters;
  return text + bytes_text(static_cast<double>(own)) + ", " +
         percent_text(static_cast<double>(own) / static_cast<double>(layout.all_bytes())) +
         ", of " + counted(parameters, "parameter") + "\n";
}

}  // namespace

std::int64_t ServerLayout::bytes(std::size_t server) const {
  std::int64_t sum = 0;
  for (const BlockShare& part : servers[server]) sum += part.bytes;
  return sum;
}

std::int64_t ServerLayout::all_bytes() const {
  std::int64_t sum = 0;
  for (std::size_t server = 0; server < servers.size(); ++server) sum += bytes(server);
  return sum;
}

std::string text_of(const ServerLayout& layout) {
  std::string text = layout.name + "\n" + layout.about + "\n";
  std::size_t width = 0;
  for (const auto& parts : layout.servers)
    for (const ServerLayout::BlockShare& part : parts)
      width = std::max(width, part_name(part).size());
  for (std::size_t server = 0; server < layout.servers.size(); ++server) {
    text += "\n" + server_line(layout, server);
    for (const ServerLayout::BlockShare& part : layout.servers[server])
      text += "  " + padded(part_name(part), width + 2) +
              padded(bytes_text(static_cast<double>(part.bytes)), 10) +
              counted(part.parameters, "parameter") + "\n";
  }
  return text;
}

std::string json_of(const ServerLayout& layout) {
  std::string text = json_line({{"event", "show"},
                                {"name", escaped(layout.name)},
                                {"servers", layout.servers.size()},
                                {"bytes", layout.all_bytes()}});
  for (std::size_t server = 0; server < layout.servers.size(); ++server)
    for (const ServerLayout::BlockShare& part : layout.servers[server])
      text += json_line({{"event", "part"},
                         {"server", server},
                         {"block", part.block},
                         {"parameters", part.parameters},
                         {"bytes", part.bytes},
                         {"whole", part.whole}});
  return text;
}

}  // namespace trireme::inline v0::show
