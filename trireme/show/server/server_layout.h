// Which parameter server has which part of a model, drawn by `trireme show server CONFIG`. Plain
// values and pure functions; lines end with a newline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::inline v0::show {

struct ServerLayout {
  /// A server's part of one block of the model.
  struct BlockShare {
    std::string block;
    int parameters = 0;  // of which the server has elements
    std::int64_t bytes = 0;
    bool whole = true;  // the server has all of the block
  };
  std::string name, about;  // "gpt-nano on 2 servers"; one line
  std::vector<std::vector<BlockShare>> servers;

  std::int64_t bytes(std::size_t server) const;
  std::int64_t all_bytes() const;
};

std::string text_of(const ServerLayout& layout);
std::string json_of(const ServerLayout& layout);
std::string svg_of(const ServerLayout& layout);
/// The picture and the text; there is nothing to play.
std::string html_of(const ServerLayout& layout);

}  // namespace trireme::inline v0::show
