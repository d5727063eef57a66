// ChangedInput: the batches of a resumed run whose data, batch size or seed were changed on
// purpose. Restores only the saved position, so the run continues with that batch of the new data.
// Does not own the batches.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trireme/input/batches.h"
#include "trireme/tensor/saved_count.h"

namespace trireme::inline v0::train {

class ChangedInput final : public Saveable {
 public:
  explicit ChangedInput(Batches& batches) : batches_(batches) {}
  std::vector<NamedShard> state() override { return batches_.state(); }
  std::string metadata() const override { return batches_.metadata(); }
  void restored(const std::string& metadata) override {
    batches_.seek(saved_count(nlohmann::json::parse(metadata), "position"));
  }

 private:
  Batches& batches_;
};

}  // namespace trireme::inline v0::train
