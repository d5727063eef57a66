// Parts of JobState, each alone: what servers report, sessions, and saving.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "trireme/base/error.h"
#include "trireme/rendezvous/coordinator/job_state.h"
#include "trireme/rendezvous/coordinator/server_reports.h"
#include "trireme/rendezvous/coordinator/sessions.h"
#include "trireme/rendezvous/coordinator/state_saver.h"

namespace trireme::rendezvous::job_parts_test {
namespace {

constexpr Roles kRoles{.workers = 2, .servers = 2};  // servers are processes 2 and 3

wire::ServerNews listens_at(const std::string& address) {
  wire::ServerNews news;
  news.set_listens_at(address);
  return news;
}

TEST(ServerReports, AServerThatSaysItAgainIsTheSameProcess) {
  ServerReports reports(kRoles.servers);
  const auto first = reports.take(kRoles, 2, listens_at("here"));
  EXPECT_TRUE(first.changed && first.view_changed);
  const auto again = reports.take(kRoles, 2, listens_at("here"));
  EXPECT_FALSE(again.changed || again.view_changed);
  EXPECT_EQ(again.incarnation, first.incarnation);
  const auto elsewhere = reports.take(kRoles, 2, listens_at("elsewhere"));
  EXPECT_TRUE(elsewhere.view_changed);
  EXPECT_EQ(elsewhere.incarnation, *first.incarnation + 1);
}

TEST(ServerReports, TheOnlyServerOfAShardIsNotTakenForDead) {
  ServerReports reports(kRoles.servers);
  const auto up = reports.take(kRoles, 2, listens_at("here"));
  wire::ServerNews news;
  news.mutable_unreachable()->set_server(0);
  news.mutable_unreachable()->set_incarnation(*up.incarnation);
  const auto effect = reports.take(kRoles, 3, news);
  EXPECT_EQ(effect.dead, std::nullopt);
  EXPECT_FALSE(effect.changed);
}

TEST(ServerReports, OnlyServersPassAStopOn) {
  ServerReports reports(kRoles.servers);
  wire::ServerNews news;
  news.set_stop_signal(15);
  EXPECT_TRUE(ServerReports::may_tell(Role::Server, news.what_case()));
  EXPECT_FALSE(ServerReports::may_tell(Role::Worker, news.what_case())) << "workers vote";
  EXPECT_FALSE(reports.take(kRoles, 2, news).changed);
}

TEST(ServerReports, WorkersAloneAreSavedButChangeNoView) {
  ServerReports reports(kRoles.servers);
  wire::ServerNews news;
  news.set_alone(3);
  EXPECT_TRUE(ServerReports::may_tell(Role::Worker, news.what_case()));
  EXPECT_FALSE(ServerReports::may_tell(Role::Server, news.what_case()));
  const auto effect = reports.take(kRoles, 1, news);
  EXPECT_TRUE(effect.changed);
  EXPECT_FALSE(effect.view_changed);
  EXPECT_FALSE(reports.take(kRoles, 1, news).changed) << "it is known already";

  wire::SavedState state;
  reports.save(state);
  ServerReports next(kRoles.servers);
  next.restore(ServerView::from_text(state.server_view()), state);
  EXPECT_TRUE(next.trains_alone(1));
  EXPECT_FALSE(next.trains_alone(0));
  EXPECT_EQ(next.workers_needed(), 3);
  EXPECT_EQ(next.view(), reports.view());
}

TEST(ServerReports, WorkersThatTrainAloneAndTogetherAreToldOfEachOther) {
  ServerReports reports(kRoles.servers);
  wire::ServerNews alone, together;
  alone.set_alone(1);
  together.set_alone(0);
  EXPECT_EQ(reports.take(kRoles, 0, together).other, std::nullopt);
  EXPECT_EQ(reports.take(kRoles, 1, alone).other, 0);
  EXPECT_FALSE(reports.trains_alone(1));
  EXPECT_EQ(reports.take(kRoles, 1, together).other, std::nullopt);
  ServerReports others(kRoles.servers);
  EXPECT_EQ(others.take(kRoles, 1, alone).other, std::nullopt);
  const auto effect = others.take(kRoles, 0, together);
  EXPECT_EQ(effect.other, 1);
  EXPECT_FALSE(effect.changed);
}

TEST(Sessions, OnlyTheLatestTokenOfAProcessIsValid) {
  Sessions sessions(2);
  wire::Session session;
  session.set_rank(1);
  EXPECT_EQ(sessions.process_of(session), -1) << "no token, and none was given";
  session.set_token(sessions.begin(1));
  EXPECT_EQ(sessions.process_of(session), 1);
  sessions.begin(1);
  EXPECT_EQ(sessions.process_of(session), -1);
  sessions.resume(1, session.token());
  EXPECT_EQ(sessions.process_of(session), 1);
  sessions.end(1);
  EXPECT_EQ(sessions.process_of(session), -1);
  session.set_rank(2);
  EXPECT_EQ(sessions.process_of(session), -1) << "there is no such process";
}

struct OneText final : StateStore {
  std::optional<std::string> open() override { return text; }
  void save(const std::string& what) override {
    if (taken_over) throw RefusedError("another coordinator has it", {});
    text = what;
  }
  void clear() override { text.reset(); }
  const std::string& address() const noexcept override { return name; }
  const std::string name = "memory";
  std::optional<std::string> text;
  bool taken_over = false;
};

TEST(StateSaver, AStoreThatRefusesIsLostForGood) {
  const auto store = std::make_shared<OneText>();
  int lost = 0;
  StateSaver saver(store, Duration::max(), [&](const std::exception_ptr&) { ++lost; });
  const auto not_away = [](bool) { FAIL() << "it is not away"; };
  EXPECT_TRUE(saver.save("one", not_away));
  store->taken_over = true;
  EXPECT_FALSE(saver.save("two", not_away));
  store->taken_over = false;
  EXPECT_FALSE(saver.save("three", not_away));
  EXPECT_EQ(store->text, "one");
  EXPECT_EQ(lost, 1);
}

TEST(StateSaver, OnlyAStateThatWasNotClearedOutlivesTheCoordinator) {
  EXPECT_FALSE(StateSaver(nullptr, {}, {}).outlives_this());
  const auto store = std::make_shared<OneText>();
  StateSaver saver(store, {}, {});
  EXPECT_TRUE(saver.outlives_this());
  saver.clear();
  EXPECT_FALSE(saver.outlives_this());
}

// etcd takes 1.5 MiB at most.
TEST(JobState, IsSmallThoughEachOfManyRanksHasALongIdentity) {
  const auto store = std::make_shared<OneText>();
  const CoordinatorOptions options{.roles = {.workers = 1000},
                                   .secret = std::string(32, 's'),
                                   .elastic = Epoch{},
                                   .store = store};
  const std::string identity(2000, 'i');
  {
    JobState state(options);
    for (int process = 1; process < options.roles.workers; ++process) {
      state.members.join(process, "node" + std::to_string(process), identity, {});
      state.sessions.begin(process);
    }
    ASSERT_TRUE(state.save());
  }
  EXPECT_LT(store->text->size(), std::size_t{1} << 20);
  const JobState next(options);
  EXPECT_EQ(next.members.identity(999), identity);
  EXPECT_EQ(next.members.identity(0), "");
}

}  // namespace
}  // namespace trireme::rendezvous::job_parts_test
