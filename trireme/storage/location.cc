// Opens a storage by its address.
#include <charconv>
#include <filesystem>

#include "trireme/base/config/config.h"
#include "trireme/base/error.h"
#include "trireme/base/refuse.h"
#include "trireme/storage/s3/open.h"
#include "trireme/storage/storage.h"

namespace trireme::inline v0::storage {
namespace {

constexpr std::string_view kFile = "file://", kS3 = "s3://";

[[noreturn]] void refuse_location(const std::string& what) {
  refuse("checkpoint.path", what, "Give a folder, file:///FOLDER or s3://BUCKET/PREFIX.");
}

// file:///a%20b or file://localhost/a.
std::string file_path(const std::string& address) {
  std::string rest = address.substr(kFile.size());
  if (rest.starts_with("localhost/")) rest.erase(0, std::string("localhost").size());
  if (!rest.starts_with("/"))
    refuse_location(address + " names a host; a file URL begins with three slashes");
  std::string path;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (rest[i] != '%') {
      path += rest[i];
      continue;
    }
    const std::string digits = rest.substr(i + 1, 2);
    unsigned byte = 0;
    const auto read =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, /*base=*/16);
    if (read.ptr != digits.data() + 2 || byte == 0)
      refuse_location(address + " has a % without two hexadecimal digits");
    path += static_cast<char>(byte);
    i += 2;
  }
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

bool has_scheme(const std::string& address) {
  const auto colon = address.find("://");
  return colon != std::string::npos && colon > 0 && address.find('/') > colon;
}

void check_address(const std::string& address) {
  if (address.starts_with(kS3)) {
    s3::parse_address(address);
  } else if (address.starts_with(kFile)) {
    file_path(address);
  } else if (has_scheme(address)) {
    refuse_location("checkpoints cannot be kept in " + address);
  }
}

Location open_location(const std::string& address) {
  if (address.empty()) refuse_location("the address of the checkpoints is empty");
  check_address(address);
  if (address.starts_with(kS3)) return s3::open(address);
  if (address.starts_with(kFile)) return {folder_storage(), file_path(address)};
  return {folder_storage(), address};
}

std::string checkpoint_path_of(const std::string& run) {
  const std::filesystem::path folder(run);
  const std::string config = (folder / "config.toml").string();
  std::error_code missing;
  if (std::filesystem::exists(folder / "checkpoint", missing) ||
      !std::filesystem::exists(config, missing))
    return {};
  try {
    return config::text_in_file(config, "checkpoint.path").value_or("");
  } catch (const ConfigError&) {  // reported where the whole configuration is read
    return {};
  }
}

}  // namespace trireme::inline v0::storage
