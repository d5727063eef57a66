// `trireme plan --device` against the steps that Megatron-LM published (arXiv:2104.04473, tables 1
// and 2, and its README of September 2020). Prints the table of docs/gpu.md.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

using Row = std::map<std::string, std::string>;

// Fields may be quoted; none holds a quote or a line's end.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

// Those whose layout and batch are told.
std::vector<Row> planned_rows() {
  std::ifstream file(TEST_DATA);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> names = fields_of(line);
  std::vector<Row> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> fields = fields_of(line);
    Row row;
    for (std::size_t i = 0; i < names.size() && i < fields.size(); ++i) row[names[i]] = fields[i];
    const std::string& table = row["table"];
    const bool zero = table == "SC21-T2" && row["scheme"] == "ZeRO-3";
    if (zero || table == "SC21-T1" || table.starts_with("README-2020-09"))
      rows.push_back(std::move(row));
  }
  return rows;
}

// The operations that all these rows count are those of a run that computes each layer's forward
// pass again. The README tells neither sequence length nor vocabulary; 1,024 and 51,200 are
// assumed.
std::vector<std::string> plan_of(Row row) {
  const auto or_else = [](const std::string& value, const char* other) {
    return value.empty() ? std::string(other) : value;
  };
  const std::string gpu = row["gpu"].find("V100") != std::string::npos ? "v100" : "a100";
  std::vector<std::string> words{
      "plan",  TRIREME_SOURCE_DIR "/bench/gpt.toml", "--device", gpu, "--ranks", row["gpus"],
      "--json"};
  const auto set = [&](const std::string& key, const std::string& value) {
    words.insert(words.end(), {"--set", key + "=" + value});
  };
  set("train.precision", "fp16");
  set("memory.recompute", "full");
  for (const char* key : {"layers", "heads"}) set(std::string("model.") + key, row[key]);
  set("model.width", row["hidden"]);
  set("model.block", or_else(row["seq"], "1024"));
  set("model.vocab", or_else(row["vocab"], "51200"));
  set("batch.global", row["global_batch"]);
  set("batch.micro", row["micro_batch"].empty()
                         ? std::to_string(std::stoi(row["global_batch"]) / std::stoi(row["dp"]))
                         : row["micro_batch"]);
  if (row["tp"].empty()) {
    set("parallel.sync", "zero3");
    return words;
  }
  set("parallel.tensor", row["tp"]);
  set("parallel.pipeline", row["pp"]);
  if (or_else(row["vpp_chunks"], "1") != "1") {
    set("parallel.schedule", "interleaved-1f1b");
    set("parallel.chunks", row["vpp_chunks"]);
  }
  return words;
}

// One share of the peak is assumed for all models and GPUs. Most of these runs reached more, so
// their steps are predicted to take longer than they did.
TEST(Published, StepsOfMegatronArePredictedToTakeAtMostSixTenthsLonger) {
  const std::vector<Row> rows = planned_rows();
  ASSERT_EQ(rows.size(), 28u);
  for (Row row : rows) {
    const CommandResult planned = trireme_command(plan_of(row)).run();
    ASSERT_EQ(planned.code, 0) << row["model"] << ": " << planned.err;
    // Lines after the first one say what would fit.
    const auto event = nlohmann::json::parse(planned.out.substr(0, planned.out.find('\n')));
    const auto seconds = [&](const std::string& part) {
      return event.at("predicted_" + part + "_seconds").get<double>();
    };
    const double published = std::stod(row["iter_time_s"]), predicted = seconds("step");
    const double share = 100 * std::stod(row["tflops_per_gpu"]) / std::stod(row["peak_tflops"]);
    const std::string layout =
        row["tp"].empty() ? "ZeRO-3" : row["tp"] + " x " + row["pp"] + " x " + row["dp"];
    std::printf(
        "| %s | %s %s | %s | %.2f s | %.0f %% | %.2f s | %.0f %% | %.2f | %.2f | %.2f | %.2f |\n",
        row["model"].c_str(), row["gpus"].c_str(), row["gpu"].substr(7, 4).c_str(), layout.c_str(),
        published, share, predicted, share * published / predicted, predicted / published,
        seconds("compute"), seconds("layer"), seconds("communication"));
    EXPECT_GE(predicted / published, 0.95) << row["table"] << " " << row["model"];
    EXPECT_LE(predicted / published, 1.6) << row["table"] << " " << row["model"];
  }
}

}  // namespace
}  // namespace trireme::testing
