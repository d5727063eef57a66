#include "trireme/rendezvous/server_view.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/base/error.h"

namespace trireme::inline v0::rendezvous {
namespace {

auto* at(auto& list, int index) {
  return index >= 0 && static_cast<std::size_t>(index) < list.size()
             ? &list[static_cast<std::size_t>(index)]
             : nullptr;
}

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ServerView::Server, incarnation, up, address)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ServerView::Shard, term, copies)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ServerView, number, servers, shards)

int ServerView::primary(int shard) const noexcept {
  const Shard* found = at(shards, shard);
  return found == nullptr || found->copies.empty() ? -1 : found->copies.front();
}

bool ServerView::has_copy(int shard, int server) const noexcept {
  const Shard* found = at(shards, shard);
  return found != nullptr && std::count(found->copies.begin(), found->copies.end(), server) > 0;
}

bool ServerView::lives(int server, std::uint32_t incarnation) const noexcept {
  const Server* found = at(servers, server);
  return found != nullptr && found->up && found->incarnation == incarnation;
}

bool ServerView::complete() const noexcept {
  return std::all_of(shards.begin(), shards.end(), [](const Shard& one) { return one.term > 0; });
}

std::string ServerView::to_text() const { return nlohmann::json(*this).dump(); }

ServerView ServerView::from_text(std::string_view text) {
  try {
    auto view = nlohmann::json::parse(text).get<ServerView>();
    const int servers = static_cast<int>(view.servers.size());
    const auto known = [&](int server) { return server >= 0 && server < servers; };
    if (std::all_of(view.shards.begin(), view.shards.end(), [&](const Shard& shard) {
          return std::all_of(shard.copies.begin(), shard.copies.end(), known);
        }))
      return view;
  } catch (const nlohmann::json::exception&) {
  }
  throw RefusedError("the coordinator sent a list of servers that cannot be read",
                     {.operation = "parameter server",
                      .advice = "Run the same version of Trireme in all processes."});
}

ServerAuthority::ServerAuthority(int servers) {
  view_.servers.resize(static_cast<std::size_t>(servers));
  view_.shards.resize(static_cast<std::size_t>(servers));
}

std::uint32_t ServerAuthority::up(int server, std::string address) {
  down(server);
  ServerView::Server* own = at(view_.servers, server);
  TRIREME_CHECK(own != nullptr);
  own->up = true;
  own->address = std::move(address);
  ServerView::Shard& shard = view_.shards[static_cast<std::size_t>(server)];
  ++own->incarnation;
  if (shard.term == 0) shard = {.term = 1, .copies = {server}};
  ++view_.number;
  return own->incarnation;
}

void ServerAuthority::down(int server) {
  ServerView::Server* own = at(view_.servers, server);
  if (own == nullptr || !own->up) return;
  own->up = false;
  for (ServerView::Shard& shard : view_.shards) {
    if (!shard.copies.empty() && shard.copies.front() == server) ++shard.term;
    std::erase(shard.copies, server);
  }
  ++view_.number;
}

void ServerAuthority::reset(int server) {
  down(server);
  view_.shards[static_cast<std::size_t>(server)] = {};
}

void ServerAuthority::has_copy(int shard, std::uint64_t term, int by, int server,
                               std::uint32_t incarnation) {
  ServerView::Shard* own = at(view_.shards, shard);
  if (own == nullptr || own->term != term || view_.primary(shard) != by) return;
  if (!view_.lives(server, incarnation) || view_.has_copy(shard, server)) return;
  own->copies.push_back(server);
  ++view_.number;
}

bool ServerAuthority::can_lose(int server) const noexcept {
  return std::all_of(view_.shards.begin(), view_.shards.end(), [&](const ServerView::Shard& one) {
    return std::any_of(one.copies.begin(), one.copies.end(),
                       [&](int copy) { return copy != server; });
  });
}

}  // namespace trireme::inline v0::rendezvous
