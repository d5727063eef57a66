#include "trireme/format/safetensors_header.h"

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

namespace trireme::inline v0::format {
namespace {

using nlohmann::json;

// States of the parser:
//   Start { Top  "__metadata__": { Metadata }   "name": { Entry  "shape": [ Numbers ] } }
class Handler final : public json::json_sax_t {
 public:
  explicit Handler(Header& header) : header_(header) {}
  const std::string& reason() const { return reason_; }
  std::size_t position() const { return position_; }

  bool start_object(std::size_t) override {
    if (place_ == Position::Start) {
      place_ = Position::Top;
      return true;
    }
    if (place_ != Position::Top) return refuse("an object is not allowed here");
    if (key_ == "__metadata__") {
      place_ = Position::Metadata;
    } else {
      place_ = Position::Entry;
      header_.entries.push_back({.name = key_});
      entry_keys_.clear();
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Position::Entry && entry_keys_.size() != 3) {
      return refuse("\"" + header_.entries.back().name + "\" needs dtype, shape and data_offsets");
    }
    place_ = place_ == Position::Top ? Position::End : Position::Top;
    return true;
  }

  bool key(std::string& key) override {
    std::set<std::string>& seen = place_ == Position::Top     ? names_
                                  : place_ == Position::Entry ? entry_keys_
                                                              : metadata_keys_;
    if (!seen.insert(key).second) return refuse("the key \"" + key + "\" is there twice");
    if (place_ == Position::Entry && key != "dtype" && key != "shape" && key != "data_offsets") {
      return refuse("unknown key \"" + key + "\"");
    }
    key_ = key;
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Position::Metadata) {
      header_.metadata[key_] = value;
      return true;
    }
    if (place_ != Position::Entry || key_ != "dtype") return refuse("a text is not allowed here");
    header_.entries.back().dtype = value;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Position::Entry || key_ == "dtype") return refuse("a list is not allowed here");
    place_ = Position::Numbers;
    return true;
  }

  bool end_array() override {
    place_ = Position::Entry;
    if (key_ == "data_offsets" && header_.entries.back().offsets.size() != 2) {
      return refuse("data_offsets must be two numbers");
    }
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ != Position::Numbers) return refuse("a number is not allowed here");
    HeaderEntry& entry = header_.entries.back();
    (key_ == "shape" ? entry.shape : entry.offsets).push_back(value);
    return true;
  }

  bool null() override { return refuse("null is not allowed"); }
  bool boolean(bool) override { return refuse("true and false are not allowed"); }
  bool number_integer(std::int64_t) override { return refuse("a negative number is not allowed"); }
  bool number_float(double, const std::string&) override {
    return refuse("a number is not an integer");
  }
  bool binary(json::binary_t&) override { return refuse("binary data is not allowed"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    position_ = position;
    return refuse("it is not valid JSON");
  }

 private:
  enum class Position { Start, Top, Metadata, Entry, Numbers, End };

  bool refuse(std::string reason) {
    if (reason_.empty()) reason_ = std::move(reason);
    return false;
  }

  Header& header_;
  Position place_ = Position::Start;
  std::string key_;
  std::set<std::string> names_, entry_keys_, metadata_keys_;
  std::string reason_;
  std::size_t position_ = 0;
};

}  // namespace

Header parse_header(std::string_view text) {
  Header header;
  Handler handler(header);
  if (json::sax_parse(text.begin(), text.end(), &handler)) return header;
  std::string where =
      handler.position() == 0 ? "" : " at byte " + std::to_string(handler.position());
  throw std::runtime_error(handler.reason() + where);
}

}  // namespace trireme::inline v0::format
