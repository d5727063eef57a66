#include "trireme/ps/worker/client.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/ps/rows/row_message.h"

namespace trireme::inline v0::ps {
namespace {

std::string text_of(const ShardLink& link, const Reply& reply) {
  const auto memory = link.received();
  TRIREME_CHECK(reply.text_bytes <= memory.size());
  return {reinterpret_cast<const char*>(memory.data()), reply.text_bytes};
}

// Adds the tables' sums, which `squares` ends with if the round was complete; returns the rest.
std::span<const std::byte> take_tables(std::span<const std::byte> squares,
                                       std::span<ExactSum> tables) {
  const std::size_t bytes = tables.size() * sizeof(ExactSum::Limbs);
  if (squares.size() < bytes) return squares;
  const std::byte* from = squares.data() + (squares.size() - bytes);
  for (ExactSum& table : tables) {
    ExactSum::Limbs limbs;
    std::memcpy(limbs.data(), from, sizeof limbs);
    table.add(limbs);
    from += sizeof limbs;
  }
  return squares.first(squares.size() - bytes);
}

}  // namespace

ParameterClient::ParameterClient(std::shared_ptr<Waiter> waiter, Settings settings,
                                 ClientOptions options)
    : settings_(std::move(settings)), router_(settings_.model.tables(), settings_.model.servers()) {
  settings_.check();
  for (int server = 0; server < settings_.model.servers(); ++server) {
    auto link = std::make_unique<ShardLink>(waiter, server, settings_.to_text(), options);
    link->connect();
    const Reply& attached = link->attached();
    sequence_ = std::max(sequence_, attached.sequence);
    clock_ = std::max(clock_, attached.slowest);
    ready_ = ready_ && attached.ready;
    servers_.push_back({std::move(link), attached.version, attached.round});
  }
}

ParameterClient::~ParameterClient() {
  for (Server& server : servers_)
    getpid() == process_ ? server.link->close() : static_cast<void>(server.link.release());
}

void ParameterClient::begin(std::int64_t version, bool kept) {
  for (Server& server : servers_) {
    server.version = version;
    server.round = 0;
  }
  ask_all({.ask = Ask::Begin, .attempt = ++attempts_, .kept = kept}, 0, false);
  ready_ = true;
  for (const Server& server : servers_) ready_ = server.link->finish().ready && ready_;
}

std::int64_t ParameterClient::version() const noexcept {
  return std::ranges::min_element(servers_, {}, &Server::version)->version;
}

std::span<std::byte> ParameterClient::gradient(int server, std::size_t terms) {
  const std::size_t bytes = settings_.server.bound() == 0 ? settings_.model.sum_bytes(server)
                                                          : settings_.model.bytes(server);
  return link(server).outgoing(router_.counts(server).empty()
                                   ? terms * bytes
                                   : rows_offset(terms * bytes) + router_.bytes(server));
}

// All servers work at the same time. If they answer with weights, it waits for these.
void ParameterClient::ask_all(const Request& request, std::size_t terms, bool weights) {
  if (!std::isfinite(request.rate) || !std::isfinite(request.scale))
    throw ConfigError(
        "an update at a rate of " + std::to_string(request.rate) + ", of gradients times " +
            std::to_string(request.scale),
        {.operation = "parameter server", .advice = "Correct the schedule of the learning rate."});
  for (int server = 0; server < servers(); ++server) {
    Request own = request;
    own.version = at(server).version;
    own.round = at(server).round - (own.ask == Ask::Commit ? 1 : 0);
    std::span<std::byte> memory;
    if (terms > 0) memory = gradient(server, terms);
    if (terms > 0 && !settings_.model.tables().empty()) {
      own.rows = router_.counts(server);
      router_.write(server, memory.last(router_.bytes(server)));
    }
    link(server).ask(std::move(own), memory.size(), weights ? settings_.model.bytes(server) : 0);
  }
  for (int server = 0; weights && server < servers(); ++server) {
    at(server).version = link(server).finish().version;
    TRIREME_CHECK(link(server).received().size() == settings_.model.bytes(server));
  }
}

void ParameterClient::pull() { ask_all({.ask = Ask::Pull}, 0, true); }

std::optional<std::string> ParameterClient::push(double rate, double scale, bool finite) {
  // If a connection was lost for a while, the others have gone on without this worker.
  for (const Server& server : servers_) clock_ = std::max(clock_, server.link->attached().slowest);
  ask_all({.ask = Ask::Push,
           .sequence = ++sequence_,
           .clock = ++clock_,
           .rate = rate,
           .scale = scale,
           .finite = finite},
          1, true);
  std::optional<std::string> dropped;
  for (const Server& server : servers_) {
    const Reply& reply = server.link->reply();
    if (reply.dropped && !dropped) dropped = reply.text;
  }
  return dropped;
}

ParameterClient::Sums ParameterClient::sum(const std::vector<kernel::LeafRange>& nodes,
                                           std::uint32_t total) {
  TRIREME_CHECK(settings_.server.backup == 0);  // else update()
  ask_all({.ask = Ask::Terms, .total = total, .nodes = nodes}, nodes.size(), false);
  return take_sums();
}

ParameterClient::Sums ParameterClient::take_sums() {
  Sums sums;
  std::vector<ExactSum> tables(settings_.model.tables().size());
  for (int server = 0; server < servers(); ++server) {
    const Reply& reply = link(server).finish();
    sums.dropped = sums.dropped && reply.dropped;
    at(server).round = reply.round;
    if (reply.not_finite >= 0 && (sums.not_finite < 0 || reply.not_finite < sums.not_finite))
      sums.not_finite = reply.not_finite;
    const auto squares = take_tables(link(server).received(), tables);
    const std::size_t before = sums.squares.size();
    sums.squares.resize(before + squares.size() / sizeof(double));
    if (!squares.empty()) std::memcpy(sums.squares.data() + before, squares.data(), squares.size());
  }
  for (const ExactSum& table : tables) sums.squares.push_back(table.value());
  return sums;
}

void ParameterClient::commit(double rate, double scale) {
  ask_all({.ask = Ask::Commit, .rate = rate, .scale = scale}, 0, true);
}

bool ParameterClient::update(const std::vector<kernel::LeafRange>& nodes, std::uint32_t total,
                             double rate, double scale) {
  TRIREME_CHECK(settings_.server.backup > 0);
  ask_all({.ask = Ask::Terms, .rate = rate, .scale = scale, .total = total, .nodes = nodes},
          nodes.size(), false);
  const bool used = !take_sums().dropped;
  commit(rate, scale);  // the servers have: this gets the weights
  for (Server& server : servers_) server.round = server.link->reply().round;
  return used;
}

void ParameterClient::pull_rows(std::uint32_t table, std::span<const std::int64_t> ids,
                                float* rows) {
  router_.route_ids(table, ids);
  const auto width = static_cast<std::size_t>(settings_.model.tables()[table].width);
  for (int server = 0; server < servers(); ++server) {
    const std::vector<std::uint32_t>& counts = router_.counts(server);
    if (counts[table] == 0) continue;
    router_.write(server, link(server).outgoing(router_.bytes(server)));
    link(server).ask({.ask = Ask::PullRows, .version = at(server).version, .rows = counts},
                     router_.bytes(server), counts[table] * width * sizeof(float));
  }
  for (int server = 0; server < servers(); ++server) {
    const std::vector<std::uint32_t>& positions = router_.positions(server);
    if (positions.empty()) continue;
    link(server).finish();
    const std::span<const std::byte> received = link(server).received();
    TRIREME_CHECK(received.size() == positions.size() * width * sizeof(float));
    const std::byte* from = received.data();
    for (const std::uint32_t position : positions) {
      std::memcpy(rows + position * width, from, width * sizeof(float));
      from += width * sizeof(float);
    }
  }
  router_.clear();
}

Saved ParameterClient::read(int server, bool with_rows) {
  link(server).ask({.ask = Ask::Read, .with_rows = with_rows}, 0, 0);
  const Reply& reply = link(server).finish();
  const auto memory = link(server).received().subspan(reply.text_bytes);
  return {text_of(link(server), reply), {memory.begin(), memory.end()}};
}

void ParameterClient::write(int server, const Saved& saved) {
  const std::span<std::byte> out = link(server).outgoing(saved.text.size() + saved.memory.size());
  std::memcpy(out.data(), saved.text.data(), saved.text.size());
  std::copy(saved.memory.begin(), saved.memory.end(),
            out.begin() + static_cast<std::ptrdiff_t>(saved.text.size()));
  link(server).ask({.ask = Ask::Write, .text_bytes = saved.text.size()}, out.size(), 0);
  link(server).finish();
}

Duration ParameterClient::time_waited() const noexcept {
  Duration sum{};
  for (const Server& server : servers_) sum += server.link->time_waited();
  return sum;
}

std::string ParameterClient::figures() {
  std::string all;
  for (int server = 0; server < servers(); ++server) {
    link(server).ask({.ask = Ask::Figures}, 0, 0);
    const Reply& reply = link(server).finish();
    all += (server > 0 ? "," : "[") + text_of(link(server), reply);
  }
  return all + "]";
}

}  // namespace trireme::inline v0::ps
