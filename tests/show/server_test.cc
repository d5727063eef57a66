// `trireme show server` and `trireme bench server`: what each rule promises, on many seeds, the times
// that the formula says, and the golden files (written by tools/update_pictures).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/cli/torch/exchange_curves.h"
#include "trireme/cli/torch/show/record_server.h"
#include "trireme/cli/torch/show/served_layout.h"
#include "trireme/models/block.h"
#include "trireme/show/drawing/legible_test.h"
#include "trireme/train/config/schema.h"

namespace trireme::server_test {
namespace {

namespace fs = std::filesystem;
using cli::record_server;
using cli::ServerRunOptions;
using show::ServerRun;
using ::testing::HasSubstr;

constexpr int kSeeds = 6;

void compare(const fs::path& path, const std::string& text) {
  if (std::getenv("TRIREME_UPDATE_GOLDENS") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << "tools/update_pictures writes " << path;
  std::ostringstream is;
  is << file.rdbuf();
  EXPECT_EQ(is.str(), text) << path;
}

ServerRunOptions options_of(std::int64_t staleness, std::uint64_t seed = 1) {
  return {.server = {.staleness = staleness}, .slow = {{3, 5}}, .seed = seed};
}

double rate(const ServerRun& run, const std::string& rule) {
  for (const auto& [name, rate] : run.rates)
    if (name == rule) return rate;
  ADD_FAILURE() << rule;
  return 0;
}

// Versions of each server are 1, 2, 3, ...
void expect_all_versions(const ServerRun& run) {
  std::map<int, std::int64_t> next;
  for (const ServerRun::Update& update : run.updates)
    EXPECT_EQ(update.version, ++next[update.server]);
  EXPECT_EQ(next.size(), static_cast<std::size_t>(run.servers));
}

TEST(ShowServer, ASynchronousStepIsOneUpdateThatTheSlowestDecides) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const ServerRun run = record_server(options_of(0, seed));
    expect_all_versions(run);
    EXPECT_TRUE(show::staleness_of(run).empty());
    std::map<int, double> sent_last;  // by step
    for (const ServerRun::Step& step : run.steps)
      sent_last[step.number] = std::max(sent_last[step.number], step.sent);
    for (const ServerRun::Update& update : run.updates)
      EXPECT_GE(update.time, sent_last.at(static_cast<int>(update.version)));
    for (const show::ServerWait& wait : show::waits_of(run)) {
      if (wait.step < 10) {  // then the others have left
        EXPECT_EQ(wait.by, 3) << seed;
      }
    }
  }
}

TEST(ShowServer, NobodyWaitsInAsynchronousTraining) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const ServerRun run = record_server(options_of(-1, seed));
    expect_all_versions(run);
    EXPECT_TRUE(show::waits_of(run).empty());
    std::size_t steps = run.steps.size();
    EXPECT_EQ(run.updates.size(), 2 * steps);
    // A push's staleness counts the updates between the weights that it used and its own.
    std::int64_t most = 0;
    for (const ServerRun::Update& update : run.updates) {
      EXPECT_LT(update.staleness, update.version);
      most = std::max(most, update.staleness);
    }
    EXPECT_GE(most, 10);  // the slow worker's
    EXPECT_GT(rate(run, "asynchronous"), 3 * rate(run, "synchronous"));
  }
}

// A worker begins a step at most s steps ahead of the slowest.
TEST(ShowServer, TheBoundOfStalenessHolds) {
  for (const int bound : {1, 2, 4}) {
    for (std::uint64_t seed = 1; seed <= kSeeds / 2; ++seed) {
      const ServerRun run = record_server(options_of(bound, seed));
      expect_all_versions(run);
      const auto done = [&](int worker, double time) {  // pushes that a server has got
        int count = 0;
        for (const ServerRun::Request& request : run.requests)
          count += request.worker == worker && request.server == 0 && request.arrived <= time;
        return count;
      };
      for (const ServerRun::Step& step : run.steps) {
        if (step.begin > 0 && step.begin < run.end / 2) {
          EXPECT_LE(step.number - 1 - done(3, step.begin), bound) << seed;
        }
      }
      const auto waits = show::waits_of(run);
      ASSERT_FALSE(waits.empty());
      for (const show::ServerWait& wait : waits) {
        if (wait.end < run.end / 2) {
          EXPECT_EQ(wait.by, 3) << seed;
        }
      }
    }
  }
}

TEST(ShowServer, BackupWorkersAreNotWaitedFor) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    ServerRunOptions options = options_of(0, seed);
    options.server.backup = 1;
    const ServerRun run = record_server(options);
    expect_all_versions(run);
    for (const show::ServerWait& wait : show::waits_of(run)) {
      if (wait.end < run.end / 2) {
        EXPECT_NE(wait.by, 3);
      }
    }
    for (const ServerRun::Step& step : run.steps) {
      if (step.worker == 3 && step.end < run.end / 2) {
        EXPECT_TRUE(step.dropped);
      }
    }
    EXPECT_GT(rate(run, "synchronous with 1 backup worker"), 2 * rate(run, "synchronous"));
  }
}

TEST(ShowServer, EqualSeedsGiveEqualRuns) {
  EXPECT_EQ(show::json_of(record_server(options_of(2, 7))),
            show::json_of(record_server(options_of(2, 7))));
  EXPECT_NE(show::json_of(record_server(options_of(2, 7))),
            show::json_of(record_server(options_of(2, 8))));
}

TEST(ShowServer, DrawsOneWorkerAndManyLegibly) {
  for (const auto& [workers, servers] : {std::pair{1, 1}, {10, 8}}) {
    const ServerRun run = record_server({.workers = workers, .servers = servers});
    expect_legible(show::svg_of(run));
    expect_all_versions(run);
  }
}

TEST(ShowServer, RefusesWhatItCannotDraw) {
  for (const ServerRunOptions& options :
       {ServerRunOptions{.workers = 0}, ServerRunOptions{.workers = 11},
        ServerRunOptions{.servers = 9}, ServerRunOptions{.server = {.staleness = -2}},
        ServerRunOptions{.server = {.staleness = 2, .backup = 1}},
        ServerRunOptions{.slow = {{4, 5}}}, ServerRunOptions{.slow = {{0, 1000}}},
        ServerRunOptions{.steps = 0}, ServerRunOptions{.vary = 1}, ServerRunOptions{.bytes = 1}})
    EXPECT_THROW(record_server(options), ConfigError);
}

// The pictures of docs/servers.md and docs/course/servers.md.
TEST(ShowServer, PrintsTheGoldens) {
  for (const auto& [name, staleness, backup] : {std::tuple{"synchronous", 0, 0},
                                                {"asynchronous", -1, 0},
                                                {"bounded", 2, 0},
                                                {"backup", 0, 1}}) {
    ServerRunOptions options = options_of(staleness);
    options.server.backup = backup;
    const ServerRun run = record_server(options);
    compare(fs::path(GOLDEN_FOLDER) / ("server-" + std::string(name) + ".txt"), show::text_of(run));
    compare(fs::path(PICTURE_FOLDER) / ("server-" + std::string(name) + ".svg"), show::svg_of(run));
    expect_legible(show::svg_of(run));
  }
}

// The picture of `trireme show server configs/gpt-nano.toml --servers 2`.
TEST(ShowServer, ServersHaveAboutEqualBytesOfAModel) {
  const auto nothing = [](const char*) { return static_cast<const char*>(nullptr); };
  const train::Settings settings(train::read_config(
      (fs::path(GRAPH_FOLDER).parent_path() / "gpt-nano.toml").string(), nothing, {}));
  for (const int servers : {1, 2, 5}) {
    const show::ServerLayout layout = cli::served_layout(settings, "gpt-nano", servers);
    const auto even = static_cast<double>(layout.all_bytes()) / servers;
    std::int64_t weights = 0;
    std::set<std::string> tied;
    for (const auto& tie : settings.model.blocks.ties()) tied.insert(tie.alias);
    EXPECT_FALSE(tied.empty());
    for (const auto& spec : settings.model.blocks.specs())
      for (const auto& one : spec.make()->parameters())
        if (!tied.contains(spec.name + "." + one.name)) weights += one.tensor.numel() * 4;
    EXPECT_EQ(layout.all_bytes(), weights);
    for (std::size_t server = 0; server < layout.servers.size(); ++server)
      EXPECT_NEAR(static_cast<double>(layout.bytes(server)), even, 2 * 4096 * 4);
    int cut = 0;
    for (const auto& parts : layout.servers)
      for (const auto& part : parts) cut += !part.whole;
    EXPECT_EQ(cut > 0, servers > 1);
    if (servers != 2) continue;
    compare(fs::path(PICTURE_FOLDER) / "server-layout.svg", show::svg_of(layout));
    expect_legible(show::svg_of(layout));
  }
}

const std::vector<cli::ExchangeWay> kWays = {{.servers = 1},
                                             {.servers = 2},
                                             {.servers = 4},
                                             {.all_reduce = "ring"},
                                             {.all_reduce = "halving_doubling"}};

// The formula and the production code on the simulated network agree.
TEST(ServerExchange, IsWhatTheFormulaSays) {
  const plan::LinkCost link{25e-6, 1e-9, 0};
  constexpr std::size_t kBytes = 1 << 20;
  for (const int servers : {1, 2, 3, 4})
    for (const int workers : {1, 2, 3, 8, 20}) {
      const cli::ExchangeWay way{.servers = servers};
      const double predicted = cli::predicted_exchange(way, link, workers, kBytes);
      EXPECT_NEAR(cli::simulated_exchange(way, link, workers, kBytes), predicted, 0.03 * predicted)
          << servers << " servers, " << workers << " workers";
    }
}

TEST(ServerExchange, CurvesAreReadAndWritten) {
  cli::ExchangeCurves curves{.link = {50e-6, 2e-9, 0}, .bytes = 4096, .points = {}};
  curves.points.push_back({{.servers = 2}, 3, "measured", 0.5});
  curves.points.push_back({{.all_reduce = "ring"}, 3, "measured", 0.25});
  curves.add({{.servers = 2}}, {1, 3});
  const auto read = cli::ExchangeCurves::measured_in(curves.to_json(), "x");
  EXPECT_EQ(read.link.beta, 2e-9);
  EXPECT_EQ(read.bytes, 4096u);
  ASSERT_EQ(read.points.size(), 2u);  // what is simulated is simulated again
  EXPECT_EQ(cli::name_of(read.points[0].way), "2 servers");
  EXPECT_EQ(read.points[1].seconds, 0.25);
  const std::string text = curves.to_text();
  for (const char* part : {"one exchange of 4 KiB", "measured", "3 workers", "500 ms", "250 ms"})
    EXPECT_THAT(text, HasSubstr(part));
  for (const char* bad : {"", "{", "{\"event\":\"exchange\"}", "{\"event\":\"link\"}"})
    EXPECT_THROW(cli::ExchangeCurves::measured_in(bad, "x"), ConfigError) << bad;
}

// The curves of docs/servers.md: `trireme bench server --measured
// docs/benchmarks/server-exchange.jsonl --svg docs/images/server-curve.svg`.
TEST(ServerExchange, PrintsTheGolden) {
  const fs::path docs = fs::path(PICTURE_FOLDER).parent_path();
  std::ifstream file(docs / "benchmarks/server-exchange.jsonl");
  std::ostringstream text;
  text << file.rdbuf();
  auto curves = cli::ExchangeCurves::measured_in(text.str(), "server-exchange.jsonl");
  curves.add(kWays, {1, 2, 4, 8, 16, 32, 64});
  compare(fs::path(PICTURE_FOLDER) / "server-curve.svg", curves.draw());
  // A server's time grows with the workers, but for its latencies; of an all-reduce only the latencies
  // do, with the logarithm.
  const auto at = [&](const std::string& way, int workers) {
    for (const auto& point : curves.points)
      if (cli::name_of(point.way) == way && point.workers == workers && point.source == "simulated")
        return point.seconds;
    ADD_FAILURE() << way;
    return 0.0;
  };
  EXPECT_GT(at("1 server", 64), 12 * at("1 server", 4));
  EXPECT_GT(at("1 server", 64), 3 * at("4 servers", 64));
  EXPECT_LT(at("all-reduce halving_doubling", 64), 3 * at("all-reduce halving_doubling", 4));
}

}  // namespace
}  // namespace trireme::server_test
