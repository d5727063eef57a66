#include "trireme/ps/server/service.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/ps/rows/row_message.h"

namespace trireme::inline v0::ps {
namespace {

std::string text_at(const Request& request, std::span<const std::byte> memory) {
  if (request.text_bytes > memory.size())
    throw RefusedError("a text of " + std::to_string(request.text_bytes) +
                       " bytes in a message of " + std::to_string(memory.size()));
  return {reinterpret_cast<const char*>(memory.data()), request.text_bytes};
}

// Weights can be read in place only if each round waits for its readers. Copies of a shard know no
// readers; with backup workers or an elastic job a round may close without them.
bool is_read_in_place(const Settings& settings) {
  const ServerOptions& server = settings.server;
  return !server.alone() && server.replicas <= 1 && !settings.elastic;
}

PeerLost regrouped() {
  return PeerLost("the workers have regrouped without it", {.operation = "parameter server"});
}
RefusedError replaced() { return RefusedError("another process has taken its place"); }

Reply refusal(int server, int worker, Ask ask, const Error& error) {
  return {.ask = ask,
          .exit_code = error.exit_code(),
          .text = "server " + std::to_string(server) + " refuses worker " + std::to_string(worker) +
                  ": " + error.message(),
          .advice = error.advice()};
}

// For the round that was closed last, with its squares as memory.
Reply terms_reply(const Rounds& rounds, std::int64_t version) {
  return {.ask = Ask::Terms,
          .version = version,
          .round = rounds.number(),
          .not_finite = rounds.not_finite()};
}

}  // namespace

std::unique_ptr<Shard> make_shard(const Settings& settings, int server, const Spread& spread,
                                  std::span<std::byte> shared) {
  return std::make_unique<Shard>(settings.model, server, settings.optimizer, spread,
                                 predicts(settings.server, settings.optimizer), settings.elastic,
                                 shared);
}

Service::Service(int shard, Answer answer, OnApplied on_applied, Spread spread, Rooms rooms)
    : server_(shard),
      answer_(std::move(answer)),
      on_applied_(std::move(on_applied)),
      spread_(std::move(spread)),
      rooms_(std::move(rooms)) {}

void Service::handle(int client, const Request& request, std::span<const std::byte> memory) {
  try {
    serve(client, request, memory);
  } catch (const Error& error) {
    answer_(client, refusal(server_, request.worker, request.ask, error), {});
  } catch (const std::bad_alloc&) {
    if (changes_state(request.ask)) throw;  // perhaps half of it has been done
    const ResourceError error("there is not enough memory for the reply",
                              {.advice = "Use more servers, or hosts with more memory."});
    answer_(client, refusal(server_, request.worker, request.ask, error), {});
  }
  release();
}

void Service::serve(int client, const Request& request, std::span<const std::byte> memory) {
  if (request.ask != Ask::Push && request.ask != Ask::Commit && request.ask != Ask::PullRows)
    finish();
  if (request.ask == Ask::Attach) return attach(client, request, memory);
  if (!ledger_ || ledger_->client_of(request.worker) != client) throw replaced();
  switch (request.ask) {
    case Ask::Write:
      return write(client, request, memory);
    case Ask::Read:
      return read(client, request);
    case Ask::PullRows:
      return pull_rows(client, request, memory);
    case Ask::Pull:
      return waiting_.push_back({client, request.worker, {.ask = Ask::Pull}});
    case Ask::Push:
      return push(client, request, memory);
    case Ask::Terms:
      return take_terms(client, request, memory);
    case Ask::Commit:
      return commit(client, request);
    case Ask::Begin:
      return begin(client, request);
    case Ask::Figures: {
      const std::string text = figures();
      return answer_(client, {.ask = Ask::Figures, .version = version_, .text_bytes = text.size()},
                     std::as_bytes(std::span(text)));
    }
    default:
      ledger_->leave(request.worker);
      rounds_.leave(request.worker);
      before_.erase(request.worker);
      answer_(client, {.ask = Ask::Leave}, {});
  }
}

void Service::advance() {
  shard_->updates().advance();
  release();
}

// Applies all that was pushed; release() answers.
void Service::finish() {
  if (shard_) shard_->updates().finish();
}

void Service::lost(int client) {
  finish();
  std::erase_if(waiting_, [&](const Waiting& one) { return one.client == client; });
  rounds_.lost(client);
  if (ledger_) ledger_->lost(client);
  release();
}

std::vector<int> Service::clients() const {
  std::set<int> all;
  if (ledger_)
    for (const auto& [number, worker] : ledger_->workers())
      if (worker.client >= 0) all.insert(worker.client);
  for (const Waiting& one : waiting_) all.insert(one.client);
  for (const auto& [worker, client] : rounds_.clients()) all.insert(client);
  return {all.begin(), all.end()};
}

void Service::attach(int client, const Request& request, std::span<const std::byte> memory) {
  Settings settings = Settings::from_text(text_at(request, memory));
  if (request.epoch < epoch_) throw regrouped();
  const bool regroups = settings_ && request.epoch > epoch_;
  const int workers = settings.workers;
  if (settings_) {
    Settings expected = *settings_;
    if (regroups) expected.workers = workers;
    if (const std::string what = expected.difference(settings); !what.empty())
      throw MismatchError(
          what, {.advice = "Start all workers with the same model, optimizer and server.* "
                           "settings; a server takes those of the worker that comes first."});
  }
  if (server_ >= settings.model.servers())
    throw MismatchError("it expects " + counted(settings.model.servers(), "server"));
  if (request.worker < 0) throw MismatchError("workers have numbers from 0 on");
  if (settings.server.backup > 0 && request.worker >= workers)
    throw MismatchError("the job has " + counted(workers, "worker") +
                        ". With server.backup a step takes the gradients of a fixed number of "
                        "workers: start no more, or use server.staleness");
  if (!settings_) {
    std::span<std::byte> shared;
    if (is_read_in_place(settings)) shared = rooms_.shard(client, settings.model.bytes(server_));
    shard_ = make_shard(settings, server_, spread_, shared);
    ledger_.emplace(settings.server.bound());
    epoch_ = request.epoch;
    settings_ = std::move(settings);  // last: memory may have been refused
  }
  if (regroups) {
    end_epoch();
    settings_->workers = workers;
    epoch_ = request.epoch;
    attempt_ = 0;
  }
  ledger_->arrive(request.worker, client);
  rounds_.arrive(request.worker);
  answer_(client,
          {.ask = Ask::Attach,
           .version = version_,
           .sequence = ledger_->workers().at(request.worker).last,
           .round = rounds_.number(),
           .slowest = ledger_->slowest(),
           .ready = has_weights_},
          {});
}

// Commits that are being made are answered as usual. Other requests are refused, since a connection
// that waits for an answer forever would not be seen to end.
void Service::end_epoch() {
  release();
  for (const Waiting& one : waiting_)
    answer_(one.client, refusal(server_, one.worker, one.reply.ask, regrouped()), {});
  for (const auto& [worker, client] : rounds_.clients())
    answer_(client, refusal(server_, worker, Ask::Terms, regrouped()), {});
  for (const auto& [number, worker] : ledger_->workers()) ledger_->leave(number);
  waiting_.clear(), rounds_.clear();
}

// All workers of the epoch have weights of the same version, and do their next step as round 0. If
// this server has committed that step already, for a worker that was lost, it gives the same
// answers again. A round that is complete but not committed is collected again. With weights of any
// other version the workers make another attempt, or worker 0 writes its own.
void Service::begin(int client, const Request& request) {
  if (request.attempt > attempt_) {
    attempt_ = request.attempt;
    const std::int64_t ahead = version_ - request.version;
    const bool has_step = request.kept && ahead == 1 && squares_of_ == version_;
    ready_ = has_weights_ && (ahead == 0 || has_step);
    rounds_.restart(has_step, settings_->workers);
  }
  const bool ready = ready_ && request.attempt == attempt_;
  answer_(client, {.ask = Ask::Begin, .version = version_, .ready = ready}, {});
}

void Service::write(int client, const Request& request, std::span<const std::byte> memory) {
  if (!ready_) {  // else this is a repetition, and pushes may have come since
    const std::string text = text_at(request, memory);
    version_ = fill(*shard_, text, memory.subspan(request.text_bytes), version_);
    squares_of_ = -1;
  }
  ready_ = has_weights_ = true;
  answer_(client, {.ask = Ask::Write, .version = version_}, {});
}

void Service::read(int client, const Request& request) {
  const Saving saving(*shard_, version_, request.with_rows);
  const std::string text = saving.text();
  const std::size_t bytes = text.size() + saving.bytes();
  std::span<std::byte> all = rooms_.reply(client, bytes);
  const bool written = !all.empty();
  std::vector<std::byte> own(written ? 0 : bytes);
  if (!written) all = own;
  std::memcpy(all.data(), text.data(), text.size());
  saving.write(all.subspan(text.size()));
  answer_(client,
          {.ask = Ask::Read, .version = version_, .text_bytes = text.size(), .written = written},
          all);
}

void Service::pull_rows(int client, const Request& request, std::span<const std::byte> ids) {
  if (!ready_) throw MismatchError("it asks for rows before there are weights");
  const RowShard& rows = shard_->rows();
  if (request.rows.size() != rows.num_tables())
    throw MismatchError("it asks for rows of " + counted(request.rows.size(), "table") +
                        ", not of " + std::to_string(rows.num_tables()));
  // The step is being repeated, and has updated the rows already.
  const bool previous = squares_of_ == version_ && request.version + 1 == version_;
  rows.read(rows_in(rows.tables(), request.rows, ids, /*with_rows=*/false), previous, pulled_);
  answer_(client, {.ask = Ask::PullRows, .version = version_}, std::as_bytes(std::span(pulled_)));
}

void Service::push(int client, const Request& request, std::span<const std::byte> memory) {
  if (!ready_) throw MismatchError("it pushes before there are weights");
  if (settings_->server.bound() == 0)
    throw MismatchError("it pushes a gradient of its own to a synchronous server");
  const auto [gradient, rows] =
      divided(shard_->rows().tables(), 1, request.rows, memory, shard_->bytes());
  if (gradient.size() != shard_->bytes())
    throw MismatchError("its gradient has " + std::to_string(gradient.size()) + " bytes, not " +
                        std::to_string(shard_->bytes()));
  shard_->rows().check(rows);
  const int worker = request.worker;
  Waiting own{client, worker, {.ask = Ask::Push}};
  const bool is_new = ledger_->take(worker, request.sequence, request.clock);
  // If the push is repeated, one of the updates since then is its own.
  own.reply.staleness = std::max<std::int64_t>(version_ - request.version - (is_new ? 0 : 1), 0);
  if (is_new) {
    const auto before = before_.find(worker);
    const auto old = before == before_.end() ? std::span<const std::byte>() : before->second;
    const auto room =
        ledger_->may_go_on(worker) ? rooms_.reply(client, shard_->bytes()) : std::span<std::byte>();
    const bool alone = room.empty() || settings_->server.compensation > 0;
    if (alone) finish();
    if (const auto broken =
            shard_->push(gradient, request.rate, request.scale, old, settings_->server.compensation,
                         rows, {room, own.reply.staleness}, request.finite)) {
      ledger_->dropped(worker);
      own.reply.dropped = true;
      own.reply.text = *broken;
    } else {
      own.reply.version = ++version_;
      own.reply.written = !room.empty();
      own.written = room;
      own.push = shard_->updates().begun();
      ledger_->applied(worker, own.reply.staleness);
      if (on_applied_)
        on_applied_({.shard = server_,
                     .worker = worker,
                     .sequence = request.sequence,
                     .version = version_,
                     .staleness = own.reply.staleness});
      if (alone) finish();
    }
  }
  waiting_.push_back(std::move(own));
}

void Service::release() {
  const auto may_go_on = [this](const Waiting& one) {
    if (one.is_written()) return one.push <= shard_->updates().completed();
    return ready_ && (one.reply.ask != Ask::Push || ledger_->may_go_on(one.worker));
  };
  // Weights that are not written are copied. No push may change them meanwhile.
  const bool copies = std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& one) {
    return !one.is_written() && may_go_on(one);
  });
  if (copies) finish();
  const auto first =
      std::stable_partition(waiting_.begin(), waiting_.end(), std::not_fn(may_go_on));
  std::vector<Waiting> now(std::make_move_iterator(first), std::make_move_iterator(waiting_.end()));
  waiting_.erase(first, waiting_.end());
  for (Waiting& one : now) {
    std::span<const std::byte> weights = one.written;
    if (!one.is_written()) {
      one.reply.version = version_;
      // A pull gets the present weights, not predicted ones.
      weights =
          one.reply.ask == Ask::Push ? shard_->predicted(one.reply.staleness) : shard_->weights();
    }
    if (settings_->server.compensation > 0)
      before_[one.worker].assign(weights.begin(), weights.end());
    answer_(one.client, one.reply, weights);
  }
  if (settings_ && rounds_.complete(settings_->workers, settings_->server.backup)) complete_round();
}

void Service::take_terms(int client, const Request& request, std::span<const std::byte> memory) {
  if (!ready_) throw MismatchError("it sends terms before there are weights");
  if (settings_->server.bound() != 0)
    throw MismatchError("it sends terms to a server that is not synchronous");
  const auto clients = rounds_.clients();
  switch (rounds_.take(client, request, memory, *shard_)) {
    case Rounds::Taken::Collected:
      if (const auto before = clients.find(request.worker); before != clients.end())
        answer_(before->second, refusal(server_, request.worker, Ask::Terms, replaced()), {});
      return;
    case Rounds::Taken::Repeated:
      return answer_(client, terms_reply(rounds_, version_),
                     std::as_bytes(std::span(rounds_.squares())));
    case Rounds::Taken::Late:
      ledger_->late(request.worker, request.round);
      answer_(client,
              {.ask = Ask::Terms, .version = version_, .round = rounds_.number(), .dropped = true},
              {});
  }
}

void Service::complete_round() {
  const Rounds::Closed round = rounds_.close(*shard_);
  squares_of_ = -1;
  // No commit is awaited: late workers ask for the weights at once, and the others may be lost.
  if (settings_->server.backup > 0) {
    rounds_.commit(rounds_.number() - 1);
    if (rounds_.not_finite() < 0) {
      // If workers have left, the mean is over fewer gradients than usual.
      const double usual = settings_->workers - settings_->server.backup;
      const double more = usual / static_cast<double>(round.clients.size());
      update_by_round(round.rate, round.scale * more, {});
    } else {
      for (const int worker : rounds_.members()) ledger_->dropped(worker);
    }
  }
  for (const auto& [worker, client] : round.clients)
    answer_(client, terms_reply(rounds_, version_), std::as_bytes(std::span(rounds_.squares())));
}

// `room`: memory of Shard::apply()'s destination.
void Service::update_by_round(double rate, double scale, std::span<std::byte> room) {
  shard_->apply(rate, scale, {room});
  squares_of_ = ++version_;
  for (const int worker : rounds_.members()) ledger_->applied(worker, 0);
  if (on_applied_) on_applied_({.shard = server_, .version = version_});
}

void Service::commit(int client, const Request& request) {
  Waiting own{client, request.worker, {.ask = Ask::Commit, .round = rounds_.number()}};
  const Rounds::Commit kind = rounds_.commit(request.round);
  own.reply.dropped = kind == Rounds::Commit::Over;
  own.reply.in_place = !own.reply.dropped && !shard_->shared().empty() && rooms_.reads(client);
  std::span<std::byte> room;
  if (!own.reply.dropped && !own.reply.in_place) room = rooms_.reply(client, shard_->bytes());
  if (kind == Rounds::Commit::First) {
    update_by_round(request.rate, request.scale, room);
  } else if (!room.empty()) {
    shard_->give_weights(room);
  }
  if (own.reply.in_place) rounds_.add_reader(request.worker, client);
  own.written = own.reply.in_place ? shard_->shared() : room;
  own.reply.written = own.is_written();
  if (!own.is_written()) finish();
  own.reply.version = version_;
  own.push = shard_->updates().begun();
  waiting_.push_back(std::move(own));
}

std::string Service::figures() const {
  nlohmann::json workers = nlohmann::json::object(), histogram = nlohmann::json::object();
  if (ledger_) {
    for (const auto& [number, worker] : ledger_->workers())
      workers[std::to_string(number)] = {{"pushes", worker.pushes},
                                         {"dropped", worker.dropped},
                                         {"late", worker.late},
                                         {"repeated", worker.repeated},
                                         {"here", worker.client >= 0}};
    for (const auto& [staleness, count] : ledger_->histogram())
      histogram[std::to_string(staleness)] = count;
  }
  nlohmann::json tables = nlohmann::json::object();
  for (std::size_t i = 0; shard_ && i < shard_->rows().num_tables(); ++i) {
    const RowTable& table = shard_->rows().table(i);
    tables[table.table().name] = {{"rows", table.size()}, {"dropped", table.dropped()}};
  }
  return nlohmann::json{
      {"server", server_}, {"version", version_}, {"bytes", shard_ ? shard_->bytes() : 0},
      {"tables", tables},  {"workers", workers},  {"staleness", histogram}}
      .dump();
}

}  // namespace trireme::inline v0::ps
