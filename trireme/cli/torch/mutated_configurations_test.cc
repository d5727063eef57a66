// Five hundred random configurations: each is either planned or refused with one sentence.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/cli/torch/training_job.h"
#include "trireme/plan/training_plan.h"
#include "trireme/train/config/schema.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Random = std::mt19937;

constexpr const char* kConfiguration =
    "timeout = 30.0\n[model]\nname = \"gpt\"\nlayers = 2\nheads = 2\nwidth = 16\nblock = 16\n"
    "[batch]\nglobal = 8\nmicro = 2\n[train]\nsteps = 5\nlearning_rate = 1e-3\nprecision = "
    "\"fp32\"\n[parallel]\nsync = \"plain\"\npipeline = 1\n[optimizer]\nname = \"adamw\"\n"
    "[[optimizer.groups]]\nmatch = \"*\"\nweight_decay = 0\n";

class Folder {
 public:
  Folder() : path_(::testing::TempDir() + "mutated_" + std::to_string(::getpid())) {
    fs::create_directory(path_);
    std::string text;
    for (int i = 0; i < 300; ++i) text += "line " + std::to_string(i * 31 % 101) + "\n";
    write("text.txt", text);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
    return path_ + "/" + name;
  }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  const std::string path_;
};

template <class T>
const T& one_of(const std::vector<T>& all, Random& random) {
  return all[random() % all.size()];
}

// Values at and beyond the limits of every type.
std::string odd_value(const config::Key& key, Random& random) {
  static const std::vector<std::string> odd = {"0",
                                               "-1",
                                               "1",
                                               "2",
                                               "3",
                                               "4",
                                               "7",
                                               "16",
                                               "255",
                                               "9999",
                                               "10000",
                                               "65536",
                                               "1000000",
                                               "2147483647",
                                               "2147483648",
                                               "4294967296",
                                               "9223372036854775807",
                                               "-9223372036854775808",
                                               "9223372036854775808",
                                               "1e308",
                                               "-1e308",
                                               "1e-308",
                                               "1e309",
                                               "nan",
                                               "inf",
                                               "-inf",
                                               "0.5",
                                               "true",
                                               "false",
                                               "",
                                               "\"",
                                               "none",
                                               "auto",
                                               "\xff\xfe",
                                               "a b",
                                               "../..",
                                               "/nowhere",
                                               ".",
                                               "=",
                                               "match=* weight_decay=1e308",
                                               "topk:1e-300",
                                               "powersgd:64",
                                               "full*9999",
                                               "every-0",
                                               "every-99999999999",
                                               "1us,1e308GB/s",
                                               std::string(300, '9'),
                                               std::string(5000, 'x')};
  if (random() % 2 == 0) return config::to_toml(key.fallback);  // so that enough are planned
  if (!key.choices.empty() && random() % 2 == 0) return one_of(key.choices, random);
  return one_of(odd, random);
}

std::string mutated_text(std::string text, Random& random) {
  const std::vector<std::string> pieces = {"[",
                                           "]",
                                           "{",
                                           "}",
                                           "\"",
                                           "\"\"\"",
                                           "'",
                                           "=",
                                           "\n",
                                           ".",
                                           ",",
                                           "#",
                                           "\\",
                                           std::string(1, '\0'),
                                           "\xff",
                                           std::string(50'000, '['),
                                           "a.b.c = 1\n",
                                           "1e999",
                                           "[parallel]\n",
                                           "sync = \"zero3\"\n"};
  for (std::size_t i = 0; i < 1 + random() % 3; ++i) {
    const std::size_t at = random() % text.size(), length = random() % 12;
    switch (random() % 4) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, one_of(pieces, random));
        break;
      case 2:
        text[at] = static_cast<char>(random() % 256);
        break;
      default:
        text.insert(at, text.substr(random() % text.size(), 20));
    }
    if (text.empty()) text = "\n";
  }
  return text;
}

cli::TrainingJobOptions mutated(const Folder& folder, Random& random) {
  cli::TrainingJobOptions options;
  std::string text = kConfiguration;
  if (random() % 3 == 0) text = mutated_text(text, random);
  options.config = folder.write("job.toml", text);
  options.data = folder.file("text.txt");
  options.ranks = one_of<int>({1, 1, 2, 4, 4, 6, 8, 64, 4096}, random);
  const std::vector<std::string> models = {"gpt", "gpt", "bert", "resnet18"};
  const std::string& model = one_of(models, random);
  if (random() % 3 == 0) options.set.push_back("model.name=" + model);
  const config::Schema schema =
      train::training_schema(*train::find_model(options.set.empty() ? "gpt" : model));
  for (std::size_t i = 0; i < 1 + random() % 4; ++i) {
    const config::Key& key = one_of(schema.keys(), random);
    options.set.push_back(key.name + "=" + odd_value(key, random));
  }
  return options;
}

std::string name_of(const cli::TrainingJobOptions& options) {
  std::string name = std::to_string(options.ranks) + " ranks";
  for (const std::string& one : options.set) name += " --set " + one.substr(0, 80);
  return name;
}

// "" if it is planned.
std::string refusal(const cli::TrainingJobOptions& options) {
  try {
    const cli::TrainingJob job = cli::prepare(options);
    EXPECT_FALSE(plan::explain(job.plan).empty());
    return {};
  } catch (const ConfigError& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << name_of(options) << " threw " << error.what();
    return "another exception";
  }
}

TEST(MutatedConfigurations, ArePlannedOrRefusedWithASentence) {
  const Folder folder;
  int planned = 0, refused = 0;
  for (unsigned seed = 1; seed <= 500; ++seed) {
    Random random(seed);
    const cli::TrainingJobOptions options = mutated(folder, random);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + name_of(options));
    const std::string said = refusal(options);
    said.empty() ? ++planned : ++refused;
    if (said.empty()) continue;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 0) << said;
    EXPECT_LT(said.size(), 1500u) << said;
    EXPECT_EQ(said.back(), '.') << said;
  }
  EXPECT_GT(planned, 50);
  EXPECT_GT(refused, 150);
}

}  // namespace
}  // namespace trireme
