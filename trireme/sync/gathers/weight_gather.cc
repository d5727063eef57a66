#include "trireme/sync/gathers/weight_gather.h"

#include "trireme/base/check.h"
#include "trireme/sync/gathers/unit_gather.h"
#include "trireme/sync/sync_setup.h"

namespace trireme::inline v0::parallel {
namespace {

class AfterUpdate final : public WeightGather {
 public:
  explicit AfterUpdate(const SyncSetup& setup)
      : store_(setup.store), owners_(setup.groups.exchange) {
    TRIREME_CHECK(!store_.shards_weights());
  }
  bool in_passes() const override { return false; }
  void begin(std::span<const Use>) override {}
  Pin acquire(Use, std::size_t) override { return {}; }
  void pass(std::size_t) override {}
  Work publish() override {
    std::vector<Work> works;
    for (std::uint32_t unit = 0; unit < store_.ownership().units().size(); ++unit) {
      const Unit& layout = store_.ownership().units()[unit];
      if (layout.bytes == 0) continue;
      works.push_back(owners_->all_gather_v(store_.own(unit), store_.whole(unit), layout.counts(),
                                            {.label = "weights of block " + std::to_string(unit)}));
    }
    return Work::all(works);
  }

 private:
  ParameterStore& store_;
  const std::shared_ptr<comm::Communicator> owners_;
};

}  // namespace

std::shared_ptr<WeightGather> gather_after_update(const SyncSetup& setup) {
  return std::make_shared<AfterUpdate>(setup);
}

std::shared_ptr<WeightGather> gather_before_use(const SyncSetup& setup) {
  TRIREME_CHECK(setup.store.shards_weights());
  if (setup.gather) return setup.gather;
  return std::make_shared<UnitGather>(*setup.groups.gather, std::vector{&setup.store},
                                      setup.on_event);
}

}  // namespace trireme::inline v0::parallel
