// Cluster: synchronous workers and their servers without a network, for regroup_test.cc: messages are
// delivered in an order drawn from a seed, and workers are lost and replaced in any moment of a step. After
// every loss the workers of the next epoch begin with what a survivor has kept, or with a checkpoint if
// nobody is left.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/ps/rows/row_message.h"
#include "trireme/ps/rows/row_router.h"
#include "trireme/ps/server/service.h"

namespace trireme::inline v0::ps::regroup {

using Bytes = std::vector<std::byte>;

inline constexpr int kServers = 2;
inline constexpr std::int64_t kSteps = 8;
inline constexpr std::uint32_t kLeaves = 6;

// Some of its rows are dropped.
inline ServedTable table() {
  return {.name = "t", .width = 3, .bound = 0.5, .seed = 7, .max_rows = 30};
}

inline ServedModel two_shards() {
  return {{{.name = "w", .shape = {4200}}, {.name = "v", .shape = {300}}}, kServers, {}, {table()}};
}

inline Settings settings_for(int workers) {
  return {.model = two_shards(),
          .optimizer = AdamW{.learning_rate = 0.1},
          .workers = workers,
          .server = {.staleness = 0},
          .elastic = true};
}

// Depends on the step, the leaf, the weights, and the sum of the rows.
inline void add_gradient(std::int64_t step, std::uint32_t leaf, const Bytes& weights, float rows,
                         Bytes& to) {
  std::minstd_rand random(static_cast<unsigned>(step * 100 + leaf + 1));
  for (std::size_t at = 0; at < weights.size(); at += sizeof(float)) {
    float weight = 0;
    std::memcpy(&weight, weights.data() + at, sizeof weight);
    const float gradient = static_cast<float>(random()) / 2e9f - 0.5f + 0.1f * weight + 0.1f * rows;
    const auto* bytes = reinterpret_cast<const std::byte*>(&gradient);
    to.insert(to.end(), bytes, bytes + sizeof gradient);
  }
}

// The rows that a leaf of a step reads.
inline std::vector<std::int64_t> ids_of(std::int64_t step, std::uint32_t leaf) {
  std::minstd_rand random(static_cast<unsigned>(step * 100 + leaf + 50));
  std::set<std::int64_t> ids;
  while (ids.size() < 4) ids.insert(static_cast<std::int64_t>(random() % 60));
  return {ids.begin(), ids.end()};
}

inline kernel::LeafRange share_of(int worker, std::size_t workers) {
  return kernel::contiguous_share(kLeaves, static_cast<int>(workers), worker);
}

inline double scale_of(const Bytes* squares) {
  double sum = 0;
  for (int server = 0; server < kServers; ++server)
    for (std::size_t at = 0; at < squares[server].size(); at += sizeof(double)) {
      double one = 0;
      std::memcpy(&one, squares[server].data() + at, sizeof one);
      sum += one;
    }
  return std::min(1.0, 5 / std::sqrt(sum)) / kLeaves;
}

inline Bytes bytes_of(const Saved& saved) {
  const auto head = std::as_bytes(std::span(saved.text));
  Bytes all(head.begin(), head.end());
  all.insert(all.end(), saved.memory.begin(), saved.memory.end());
  return all;
}

// history[n][server]: the server's weights and state after n updates.
using History = std::vector<std::vector<Saved>>;

struct Message {
  Request request;
  Bytes memory;
};

struct Connection {
  int server = 0;
  std::deque<Message> sent;     // not delivered yet
  std::deque<Message> arrived;  // the server may still look at their memory
  bool closed = false, lost = false;
  bool answered = false;
  Reply reply;
  Bytes memory;
};

enum class Phase { Attach, Begin, Write, Pull, Rows, Terms, Commit, Done };

struct Worker {
  int number = 0;
  std::int64_t version = 0;
  Bytes weights[kServers];
  std::vector<std::int64_t> ids;  // of the rows that were asked for
  std::vector<float> rows;
  Phase phase = Phase::Attach;
  int clients[kServers] = {};
  std::uint32_t attempt = 1;
  bool pending =
      false;  // has a checkpoint's weights, whose optimizer state the servers may not have
};

class Cluster {
 public:
  explicit Cluster(unsigned seed, const History* history = nullptr)
      : random_(seed), history_(history) {
    for (int server = 0; server < kServers; ++server) services_.push_back(make_service(server));
  }

  void run(int workers, int losses) {
    std::vector<Bytes> first;
    for (int server = 0; server < kServers; ++server)
      first.emplace_back(two_shards().bytes(server), std::byte{});
    begin_epoch(workers, 0, first, /*kept=*/false);
    while (!done()) {
      if (losses > 0 && draw(60) == 0) {
        --losses;
        lose();
      }
      ASSERT_TRUE(go_on()) << "nobody can do anything";
      if (::testing::Test::HasFailure()) return;
    }
  }

  Service& service(int server) { return *services_[static_cast<std::size_t>(server)]; }
  int num_kept = 0, num_ahead = 0, num_rolled_back = 0, num_stale = 0;

  History history;  // filled if none was given

 private:
  std::unique_ptr<Service> make_service(int server) {
    return std::make_unique<Service>(
        server, [this](int client, const Reply& reply, std::span<const std::byte> memory) {
          Connection& one = connections_.at(static_cast<std::size_t>(client));
          one.answered = true;
          one.reply = reply;
          one.memory.assign(memory.begin(), memory.end());
        });
  }
  // The shard's primary is lost, and its copy serves.
  void fail_over(int server) {
    const Saved saved = service(server).snapshot();
    auto copy = make_service(server);
    copy->restore(saved.text, saved.memory);
    services_[static_cast<std::size_t>(server)] = std::move(copy);
  }
  const History& known() const { return history_ != nullptr ? *history_ : history; }
  // Adds what the servers have now. There is only one worker then.
  void record(const Worker& worker) {
    std::vector<Saved>& now = history.emplace_back();
    for (int server = 0; server < kServers; ++server) {
      service(server).handle(worker.clients[server],
                             {.ask = Ask::Read, .shard = server, .with_rows = true}, {});
      const Connection& one = connection(worker, server);
      const auto* text = reinterpret_cast<const char*>(one.memory.data());
      now.push_back({{text, one.reply.text_bytes},
                     {one.memory.begin() + static_cast<std::ptrdiff_t>(one.reply.text_bytes),
                      one.memory.end()}});
    }
  }
  int draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  bool done() const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const Worker& one) { return one.phase == Phase::Done; });
  }
  Connection& connection(const Worker& worker, int server) {
    return connections_[static_cast<std::size_t>(worker.clients[server])];
  }

  void begin_epoch(int workers, std::int64_t version, const std::vector<Bytes>& weights,
                   bool kept) {
    kept_ = kept;
    workers_.assign(static_cast<std::size_t>(workers), {});
    for (int number = 0; number < workers; ++number) {
      Worker& one = workers_[static_cast<std::size_t>(number)];
      one.number = number;
      one.version = version;
      one.pending = (!kept && epoch_ > 0) || stale_;
      for (int server = 0; server < kServers; ++server) {
        one.weights[server] = weights[static_cast<std::size_t>(server)];
        one.clients[server] = static_cast<int>(connections_.size());
        connections_.push_back({.server = server});
      }
      send(one);
    }
  }

  // The request of the worker's phase, to all servers.
  void send(Worker& worker) {
    RowRouter router(two_shards().tables(), kServers);
    std::vector<SparseRows> rows;
    if (worker.phase == Phase::Rows) {
      worker.ids.clear();
      const auto share = share_of(worker.number, workers_.size());
      for (std::uint32_t leaf = share.first; leaf < share.end(); ++leaf)
        for (const std::int64_t id : ids_of(worker.version, leaf)) worker.ids.push_back(id);
      std::sort(worker.ids.begin(), worker.ids.end());
      worker.ids.erase(std::unique(worker.ids.begin(), worker.ids.end()), worker.ids.end());
      router.route_ids(0, worker.ids);
    } else if (worker.phase == Phase::Terms) {
      rows = row_terms(worker);
      std::vector<std::vector<RowsView>> terms;
      for (const SparseRows& sum : rows) terms.push_back({sum.view()});
      router.route(terms);
    }
    for (int server = 0; server < kServers; ++server) {
      Message message;
      Request& request = message.request;
      request.worker = worker.number;
      request.shard = server;
      request.epoch = epoch_;
      if (worker.phase == Phase::Attach) {
        const std::string text = settings_for(static_cast<int>(workers_.size())).to_text();
        request.ask = Ask::Attach;
        request.text_bytes = text.size();
        message.memory = bytes_of(Saved{.text = text, .memory = {}});
      } else if (worker.phase == Phase::Begin) {
        request.ask = Ask::Begin;
        request.version = worker.version;
        request.kept = kept_ && worker.attempt == 1;
        request.attempt = worker.attempt;
      } else if (worker.phase == Phase::Write) {
        const Saved& saved =
            known()[static_cast<std::size_t>(worker.version)][static_cast<std::size_t>(server)];
        request.ask = Ask::Write;
        request.text_bytes = saved.text.size();
        message.memory = bytes_of(saved);
      } else if (worker.phase == Phase::Pull) {
        request.ask = Ask::Pull;
      } else if (worker.phase == Phase::Rows) {
        request.ask = Ask::PullRows;
        request.version = worker.version;
        append_rows(router, server, message);
      } else if (worker.phase == Phase::Terms) {
        request.ask = Ask::Terms;
        request.round = rounds_[worker.number];
        request.total = kLeaves;
        const kernel::LeafRange share = share_of(worker.number, workers_.size());
        for (std::uint32_t leaf = share.first; leaf < share.end(); ++leaf) {
          request.nodes.push_back({leaf, 1});
          add_gradient(worker.version, leaf, worker.weights[server], sum_of_rows(worker, leaf),
                       message.memory);
        }
        append_rows(router, server, message);
      } else {
        request.ask = Ask::Commit;
        request.round = rounds_[worker.number] - 1;
        request.rate = 0.1;
        request.scale = scale_;
      }
      Connection& one = connection(worker, server);
      one.answered = false;
      one.sent.push_back(std::move(message));
    }
  }

  // The row that the worker has read.
  static std::span<const float> row_of(const Worker& worker, std::int64_t id) {
    const auto at = std::lower_bound(worker.ids.begin(), worker.ids.end(), id);
    const auto width = static_cast<std::size_t>(table().width);
    return {&worker.rows[static_cast<std::size_t>(at - worker.ids.begin()) * width], width};
  }
  static float sum_of_rows(const Worker& worker, std::uint32_t leaf) {
    float sum = 0;
    for (const std::int64_t id : ids_of(worker.version, leaf))
      for (const float value : row_of(worker, id)) sum += value;
    return sum;
  }

  // Gradients of the rows of each leaf, which depend on what was read.
  std::vector<SparseRows> row_terms(const Worker& worker) const {
    std::vector<SparseRows> terms;
    const auto width = static_cast<std::size_t>(table().width);
    const kernel::LeafRange share = share_of(worker.number, workers_.size());
    for (std::uint32_t leaf = share.first; leaf < share.end(); ++leaf) {
      terms.emplace_back(width);
      for (const std::int64_t id : ids_of(worker.version, leaf)) {
        const std::span<const float> row = row_of(worker, id);
        std::vector<float> gradient(row.begin(), row.end());
        for (float& value : gradient) value = 0.5f * value + 0.01f * static_cast<float>(leaf + 1);
        terms.back().add({std::span(&id, 1), gradient.data()});
      }
    }
    return terms;
  }

  static void append_rows(const RowRouter& router, int server, Message& message) {
    message.request.rows = router.counts(server);
    message.memory.resize(rows_offset(message.memory.size()) + router.bytes(server));
    router.write(server, std::span(message.memory).last(router.bytes(server)));
  }

  // Puts the rows that servers have answered into the order of the worker's ids.
  void take_rows(Worker& worker) {
    const auto width = static_cast<std::size_t>(table().width);
    RowRouter router(two_shards().tables(), kServers);
    router.route_ids(0, worker.ids);
    worker.rows.assign(worker.ids.size() * width, 0);
    for (int server = 0; server < kServers; ++server) {
      const std::byte* from = connection(worker, server).memory.data();
      for (const std::uint32_t position : router.positions(server)) {
        std::memcpy(&worker.rows[position * width], from, width * sizeof(float));
        from += width * sizeof(float);
      }
    }
  }

  bool has_answers(const Worker& worker) {
    if (worker.phase == Phase::Done) return false;
    for (int server = 0; server < kServers; ++server)
      if (!connection(worker, server).answered) return false;
    return true;
  }

  // Delivers a message, or the end of a connection, or lets a worker go on. False: there is nothing.
  bool go_on() {
    std::vector<std::size_t> moves;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      const Connection& one = connections_[i];
      if (!one.sent.empty() || (one.closed && !one.lost)) moves.push_back(i);
    }
    const std::size_t deliveries = moves.size();
    for (std::size_t i = 0; i < workers_.size(); ++i)
      if (has_answers(workers_[i])) moves.push_back(i);
    if (moves.empty()) return false;
    const auto chosen = static_cast<std::size_t>(draw(static_cast<int>(moves.size())));
    if (chosen >= deliveries) {
      advance(workers_[moves[chosen]]);
    } else {
      deliver(static_cast<int>(moves[chosen]));
    }
    return true;
  }

  void deliver(int client) {
    Connection& one = connections_[static_cast<std::size_t>(client)];
    if (one.sent.empty()) {
      one.lost = true;
      service(one.server).lost(client);
      one.arrived.clear();
      return;
    }
    one.arrived.push_back(std::move(one.sent.front()));
    one.sent.pop_front();
    service(one.server).handle(client, one.arrived.back().request, one.arrived.back().memory);
  }

  void advance(Worker& worker) {
    bool ready = true;
    std::int64_t round = 0;
    Bytes memory[kServers];
    for (int server = 0; server < kServers; ++server) {
      const Connection& one = connection(worker, server);
      ASSERT_EQ(one.reply.exit_code, 0) << one.reply.text;
      ready = ready && one.reply.ready;
      round = std::max(round, one.reply.round);
      memory[server] = one.memory;
    }
    switch (worker.phase) {
      case Phase::Attach:
        rounds_[worker.number] = round;
        worker.phase = epoch_ > 0 ? Phase::Begin : worker.number == 0 ? Phase::Write : Phase::Pull;
        if (history_ == nullptr) record(worker);
        break;
      case Phase::Begin:
        rounds_[worker.number] = 0;
        EXPECT_TRUE(ready || !kept_ || stale_ || worker.version == 0)
            << "the servers do not know the step of a survivor";
        if (!ready && kept_ && worker.attempt == 1) {
          ++worker.attempt;
          take_checkpoint(worker);
          break;
        }
        num_rolled_back += !ready && worker.number == 0;
        worker.pending = worker.pending && !ready;
        worker.phase = !ready ? (worker.number == 0 ? Phase::Write : Phase::Pull)
                       : worker.version == kSteps ? Phase::Done
                                                  : Phase::Rows;
        break;
      case Phase::Write:
        worker.phase = Phase::Pull;
        break;
      case Phase::Rows:
        take_rows(worker);
        worker.phase = Phase::Terms;
        break;
      case Phase::Terms:
        rounds_[worker.number] = round;
        scale_ = scale_of(memory);
        worker.phase = Phase::Commit;
        break;
      case Phase::Commit:
        ++worker.version;
        if (history_ == nullptr) record(worker);
        [[fallthrough]];
      default:
        for (int server = 0; server < kServers; ++server) {
          ASSERT_EQ(connection(worker, server).reply.version, worker.version);
          worker.weights[server] = memory[server];
        }
        worker.pending = false;
        if (leaving_) return leave(worker);
        worker.phase = worker.version == kSteps ? Phase::Done : Phase::Rows;
    }
    if (worker.phase != Phase::Done) send(worker);
  }

  // Some workers die. The others finish what they commit, and keep what they have then.
  void lose() {
    leaving_ = true;
    if (best_) older_ = best_;
    best_.reset();
    for (Worker& one : workers_) {
      const bool dies = draw(3) > 0;
      if (dies) {
        for (const int client : one.clients) {
          auto& sent = connections_[static_cast<std::size_t>(client)].sent;
          if (draw(2) == 0) sent.clear();
        }
        close(one);
      } else if (one.phase != Phase::Commit) {
        leave(one);
      }
    }
    const auto committing = [this] {
      return std::any_of(workers_.begin(), workers_.end(),
                         [](const Worker& one) { return one.phase == Phase::Commit; });
    };
    while (committing()) ASSERT_TRUE(go_on());
    leaving_ = false;
    for (int left = draw(10); left > 0 && go_on(); --left) {
    }
    for (int server = 0; server < kServers; ++server)
      if (draw(2) == 0) fail_over(server);
    ++epoch_;
    rounds_.clear();
    const int workers = 1 + draw(4);
    stale_ = false;
    checkpoint_ = draw(static_cast<int>(std::min(service(0).version(), service(1).version())) + 1);
    if (best_) {
      ++num_kept;
      for (int server = 0; server < kServers; ++server)
        num_ahead += service(server).version() > best_->version;
      return begin_epoch(workers, best_->version, {best_->weights[0], best_->weights[1]}, true);
    }
    if (older_ && draw(2) == 0) {  // of a worker that had no place in this epoch
      stale_ = true;
      ++num_stale;
      return begin_epoch(workers, older_->version, {older_->weights[0], older_->weights[1]}, true);
    }
    begin_epoch(workers, 0, {Bytes(), Bytes()}, /*kept=*/false);
    for (Worker& one : workers_) take_checkpoint(one);
  }

  void take_checkpoint(Worker& worker) {
    worker.version = checkpoint_;
    worker.pending = true;
    for (int server = 0; server < kServers; ++server) {
      const Bytes& memory =
          known()[static_cast<std::size_t>(checkpoint_)][static_cast<std::size_t>(server)].memory;
      const auto bytes = static_cast<std::ptrdiff_t>(two_shards().bytes(server));
      worker.weights[server].assign(memory.begin(), memory.begin() + bytes);
    }
  }

  void leave(Worker& worker) {
    if (!worker.pending && (!best_ || best_->version < worker.version)) best_ = worker;
    close(worker);
  }

  void close(Worker& worker) {
    worker.phase = Phase::Done;
    for (const int client : worker.clients)
      connections_[static_cast<std::size_t>(client)].closed = true;
  }

  std::minstd_rand random_;
  const History* const history_;
  std::vector<std::unique_ptr<Service>> services_;
  std::deque<Connection> connections_;
  std::vector<Worker> workers_;
  std::map<int, std::int64_t> rounds_;
  std::optional<Worker> best_, older_;  // of those that have left
  std::int64_t checkpoint_ = 0;
  double scale_ = 0;
  std::int64_t epoch_ = 0;
  bool leaving_ = false, kept_ = false, stale_ = false;
};

}  // namespace trireme::inline v0::ps::regroup
