// StageLink: transfers parcels through one cut of the pipeline, between two ranks, in one direction.
//
// A parcel is a note of fixed size (failed? which tensors are absent?) and its tensors. Both sides
// first agree on layouts per form of micro-batch ("key": the shapes of its fields): in the first
// step with a key every parcel brings its own layouts; after that step they are fixed. Then the
// receiver can post its receives ahead, and a failed parcel sends zeros instead of the tensors, so
// that nobody waits for bytes that do not come.
//
// Sends start and return. One thread at a time; the communicator's errors are thrown.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/pipeline/parcel.h"

namespace trireme::inline v0::parallel {

struct StageLinkOptions {
  comm::Communicator* pipeline = nullptr;
  int peer = 0;          // its rank there
  int from = 0, to = 0;  // stages
  bool gradients = false;
  at::Device device = at::kCPU;  // of the parcels' tensors
};

class StageLink {
 public:
  explicit StageLink(StageLinkOptions options) : options_(options) {}
  StageLink(StageLink&&) = default;

  /// Sender: ConfigError naming value, tensor and both shapes if the layout differs from the one
  /// agreed for this key, or of an earlier parcel of this step. `names`: of the values that cross.
  void check(const std::string& key, const Parcel& parcel,
             const std::vector<std::string>& names) const;
  /// Sender. A parcel that check() accepts, or a failed one.
  void send(const std::string& key, std::uint32_t micro, const Parcel& parcel);
  /// Done when everything sent has left its memory.
  Work sent();

  /// Receiver: posts what can be posted. Once for each micro-batch, in the order of receive().
  void post(const std::string& key, std::uint32_t micro);
  /// Waits for what was posted first.
  Parcel receive();

  /// Both sides, after a step: agrees on its layouts if `good` (all ranks know it), else forgets.
  void settle(bool good);

 private:
  // [failed, words that follow, absent tensors (a bit each)]
  static constexpr std::size_t kMaskWords = 4;
  static constexpr std::size_t kMostTensors = 64 * kMaskWords - 8;  // tags have 8 bits for a part
  using Note = std::array<std::int64_t, 2 + kMaskWords>;
  struct Sending {
    Work work;
    std::shared_ptr<Note> note;
    std::shared_ptr<std::vector<std::int64_t>> words;
    std::vector<at::Tensor> tensors;
  };
  struct Receiving {
    std::string key;
    std::uint32_t micro = 0;
    std::shared_ptr<Note> note;
    Work noted;
    Parcel parcel;  // its tensors are there already where layouts are agreed
    std::vector<Work> works;
  };
  struct First {
    std::uint32_t micro = 0;
    Parcel layouts;
  };

  const Parcel* known(const std::string& key) const;
  void remember(const std::string& key, std::uint32_t micro, const Parcel& parcel);
  std::uint32_t tag(std::uint32_t micro, std::size_t part) const;
  std::string label(std::uint32_t micro) const;
  void receive_tensors(Receiving& receiving);

  StageLinkOptions options_;
  std::map<std::string, Parcel> agreed_;  // layouts only
  std::map<std::string, First> pending_;  // of this step, by key
  std::deque<Sending> sending_;
  std::deque<Receiving> receiving_;
};

}  // namespace trireme::inline v0::parallel
