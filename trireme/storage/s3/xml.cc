#include "trireme/storage/s3/xml.h"

#include <charconv>
#include <utility>

namespace trireme::inline v0::storage::s3 {
namespace {

constexpr std::pair<std::string_view, char> kEntities[] = {
    {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};

// "&#38;" and "&#x26;". Characters beyond one byte are left as they stand.
bool append_number(std::string_view entity, std::string& out) {
  if (!entity.starts_with('#')) return false;
  entity.remove_prefix(1);
  const int base = entity.starts_with('x') ? 16 : 10;
  if (base == 16) entity.remove_prefix(1);
  unsigned value = 0;
  const auto [end, error] =
      std::from_chars(entity.data(), entity.data() + entity.size(), value, base);
  if (error != std::errc() || end != entity.data() + entity.size() || value > 127) return false;
  out += static_cast<char>(value);
  return true;
}

bool append_entity(std::string_view entity, std::string& out) {
  for (const auto& [name, character] : kEntities) {
    if (entity != name) continue;
    out += character;
    return true;
  }
  return append_number(entity, out);
}

}  // namespace

std::vector<std::string> elements(std::string_view xml, std::string_view name) {
  const std::string open = "<" + std::string(name), close = "</" + std::string(name) + ">";
  std::vector<std::string> found;
  for (std::size_t at = xml.find(open); at != std::string_view::npos; at = xml.find(open, at + 1)) {
    const std::size_t after = at + open.size();
    if (after >= xml.size() || (xml[after] != '>' && xml[after] != ' ' && xml[after] != '/'))
      continue;
    const std::size_t begin = xml.find('>', after);
    if (begin == std::string_view::npos) break;
    if (xml[begin - 1] == '/') {
      found.emplace_back();
      continue;
    }
    const std::size_t end = xml.find(close, begin);
    if (end == std::string_view::npos) break;
    found.emplace_back(xml.substr(begin + 1, end - begin - 1));
    at = end;
  }
  return found;
}

std::string without_entities(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t end = text[at] == '&' ? text.find(';', at) : std::string_view::npos;
    if (end != std::string_view::npos && append_entity(text.substr(at + 1, end - at - 1), out))
      at = end;
    else
      out += text[at];
  }
  return out;
}

std::string text_of(std::string_view xml, std::string_view name) {
  const std::vector<std::string> found = elements(xml, name);
  return found.empty() ? "" : without_entities(found.front());
}

}  // namespace trireme::inline v0::storage::s3
