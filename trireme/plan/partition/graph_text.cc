#include "trireme/plan/partition/graph_text.h"

#include <map>
#include <sstream>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/plan/link.h"

namespace trireme::inline v0::plan {
namespace {

class Parser {
 public:
  explicit Parser(const std::string& where) : where_(where) {}

  void line(const std::string& text) {
    ++number_;
    std::istringstream stream(text.substr(0, text.find('#')));
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    if (words.empty()) return;
    if (words[0] == "node" && words.size() >= 3 && words.size() <= 5) return node(words);
    if (words[0] == "value" && words.size() >= 3) return value(words);
    fail("\"" + words[0] + "\" with " + std::to_string(words.size() - 1) +
         " words behind it is neither a node nor a value");
  }

  Graph finish() {
    if (graph_.nodes.empty()) fail("there is no node");
    return std::move(graph_);
  }

 private:
  void node(const std::vector<std::string>& words) {
    const int index = static_cast<int>(graph_.nodes.size());
    if (!index_of_.emplace(words[1], index).second) fail("node " + words[1] + " occurs twice");
    const auto bytes = [&](std::size_t i) { return i < words.size() ? size(words[i]) : 0; };
    graph_.nodes.push_back({words[1], number(seconds_of, words[2]), bytes(3), bytes(4)});
  }

  void value(const std::vector<std::string>& words) {
    GraphValue value{.from = known(words[1]), .bytes = size(words[2])};
    for (std::size_t i = 3; i < words.size(); ++i) value.to.push_back(known(words[i]));
    graph_.values.push_back(std::move(value));
  }

  template <class Number>
  Number number(Number (*read)(std::string_view), const std::string& word) const {
    try {
      return read(word);
    } catch (const ConfigError& error) {
      fail(error.message());
    }
  }
  std::int64_t size(const std::string& word) const {
    return static_cast<std::int64_t>(number(bytes_of, word));
  }

  int known(const std::string& name) const {
    const auto found = index_of_.find(name);
    if (found == index_of_.end()) fail("there is no node " + name + " above");
    return found->second;
  }

  [[noreturn]] void fail(const std::string& what) const {
    refuse("graph", where_ + ":" + std::to_string(number_) + ": " + what,
           "Write nodes first, \"node stem 2.1ms 40kB 12MB\" (its time, weights, activations), "
           "then \"value stem 3MB conv1 add\" (who reads it).");
  }

  std::string where_;
  int number_ = 0;
  Graph graph_;
  std::map<std::string, int> index_of_;
};

}  // namespace

Graph parse_graph(std::string_view text, const std::string& where) {
  Parser parser(where);
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) parser.line(line);
  return parser.finish();
}

std::string text_of(const Graph& graph) {
  std::string text = "# node NAME TIME WEIGHTS ACTIVATIONS, value NAME SIZE READER...\n";
  for (const GraphNode& node : graph.nodes) {
    if (node.name.empty() || node.name.find_first_of(" \t\r\n#") != std::string::npos)
      refuse("graph", "\"" + node.name + "\" cannot be a node's name in a graph's file",
             "Name the block by one word.");
    text += "node " + node.name + formatted(" %.6gms ", 1e3 * node.seconds) +
            std::to_string(node.weight_bytes) + " " + std::to_string(node.activation_bytes) + "\n";
  }
  for (const GraphValue& value : graph.values) {
    if (value.to.empty()) continue;
    text += "value " + graph.nodes[static_cast<std::size_t>(value.from)].name + " " +
            std::to_string(value.bytes);
    for (const int reader : value.to)
      text += " " + graph.nodes[static_cast<std::size_t>(reader)].name;
    text += "\n";
  }
  return text;
}

}  // namespace trireme::inline v0::plan
