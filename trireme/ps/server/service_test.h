// Shared by tests of a Service: a model, its settings, and a server with its clients.
#pragma once

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "trireme/ps/server/saved.h"
#include "trireme/ps/server/service.h"

namespace trireme::inline v0::ps::service_test {

using Floats = std::vector<float>;

inline std::vector<ServedParameter> parameters() {
  return {{.name = "w", .shape = {100, 123}},
          {.name = "b", .shape = {7}, .decay = false},
          {.name = "empty", .shape = {0}},
          {.name = "v", .shape = {9000}}};
}

inline Settings settings_of(std::int64_t staleness, int workers, int servers = 1) {
  return {.model = ServedModel(parameters(), servers),
          .optimizer = Sgd{.learning_rate = 0.1, .momentum = 0.9},
          .workers = workers,
          .server = {.staleness = staleness}};
}

inline std::span<const std::byte> bytes_of(const Floats& values) {
  return std::as_bytes(std::span(values));
}

inline Floats random_floats(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(bytes / sizeof(float));
  for (float& value : values) value = normal(random);
  return values;
}

// One server and its clients, each of which is one worker.
class Server {
 public:
  explicit Server(int number = 0)
      : service_(number,
                 [this](int client, const Reply& reply, std::span<const std::byte> memory) {
                   replies_[client] = reply;
                   memory_[client].assign(memory.begin(), memory.end());
                 },
                 {}, in_one_part,
                 {.reply = [this](int client, std::size_t bytes) { return room_(client, bytes); },
                  .shard = [this](int, std::size_t) { return std::span(shared_); },
                  .reads = [this](int client) { return readers_.contains(client); }}) {}
  void set_room(Rooms::Room room) { room_ = std::move(room); }
  /// Clients that read the shard's memory, of `bytes`.
  void set_readers(std::set<int> readers, std::size_t bytes) {
    readers_ = std::move(readers);
    shared_.resize(bytes);
  }
  std::span<const std::byte> shared() const { return shared_; }

  /// Null while the request is not answered.
  const Reply* ask(int client, Request request, std::span<const std::byte> memory = {}) {
    replies_.erase(client);
    request.worker = request.worker >= 0 ? request.worker : client;
    service_.handle(client, request, memory);
    while (service_.under_way() && !together_) service_.advance();
    return reply(client);
  }
  /// From now on pushes are answered when the test calls Service::advance().
  void apply_together() { together_ = true; }
  const Reply* reply(int client) const {
    const auto found = replies_.find(client);
    return found == replies_.end() ? nullptr : &found->second;
  }
  Floats floats(int client) const {
    Floats values(memory_.at(client).size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), memory_.at(client).data(), 4 * values.size());
    return values;
  }
  std::span<const std::byte> memory(int client) const { return memory_.at(client); }
  std::string text(int client) const {
    return {reinterpret_cast<const char*>(memory_.at(client).data()),
            replies_.at(client).text_bytes};
  }

  const Reply* attach(int client, const Settings& settings) {
    const std::string text = settings.to_text();
    return ask(client, {.ask = Ask::Attach, .worker = client, .text_bytes = text.size()},
               std::as_bytes(std::span(text)));
  }
  const Reply* write(int client, const Floats& weights) {
    std::string all = SavedText{}.to_text();
    const std::size_t text = all.size();
    all.append(reinterpret_cast<const char*>(weights.data()), 4 * weights.size());
    return ask(client, {.ask = Ask::Write, .worker = client, .text_bytes = text},
               std::as_bytes(std::span(all)));
  }
  const Reply* push(int client, std::uint64_t sequence, const Floats& gradient,
                    std::int64_t version = 0, double rate = 0.1, bool finite = false) {
    return ask(client,
               {.ask = Ask::Push,
                .worker = client,
                .sequence = sequence,
                .clock = static_cast<std::int64_t>(sequence),
                .version = version,
                .rate = rate,
                .scale = 0.5,
                .finite = finite},
               bytes_of(gradient));
  }
  Service& service() { return service_; }

 private:
  Service service_;
  bool together_ = false;
  Rooms::Room room_ = [](int, std::size_t) { return std::span<std::byte>(); };
  std::vector<std::byte> shared_;
  std::set<int> readers_;
  std::map<int, Reply> replies_;
  std::map<int, std::vector<std::byte>> memory_;
};

}  // namespace trireme::inline v0::ps::service_test
