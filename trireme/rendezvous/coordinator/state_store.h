// StateStore: keeps a coordinator's state, from which its successor goes on.
//
// Holds one text, replaced as a whole. Only the coordinator that opened the store last may write to
// it: of two that a broken network has separated, only one decides. Called by one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trireme/base/clock.h"

namespace trireme::inline v0::rendezvous {

class StateStore {
 public:
  virtual ~StateStore() = default;
  /// Takes the store over, and returns what was saved last. Throws ConfigError if a file is locked
  /// by another coordinator, ResourceError if the store cannot be reached or read.
  virtual std::optional<std::string> open() = 0;
  /// The text is durable when this returns. Throws ResourceError if the store is full or away: the
  /// call may be repeated; and RefusedError if another coordinator has taken the store over, or the
  /// store will never take this text (etcd: it is too large).
  virtual void save(const std::string& text) = 0;
  /// The job has ended: the store has no text. Throws as save() does.
  virtual void clear() = 0;
  /// As the user gave it.
  virtual const std::string& address() const noexcept = 0;
};

/// "etcd://HOST:PORT/KEY", or a file (its folder must exist). Throws ConfigError for anything else.
/// Connects to nothing. `timeout` bounds each call to etcd.
std::unique_ptr<StateStore> make_store(const std::string& address,
                                       Duration timeout = std::chrono::seconds(5));
/// For stores: throws RefusedError, because another coordinator writes to it now.
[[noreturn]] void refuse_taken_store(const std::string& address);
/// The store in one key of etcd. `address` is for messages.
std::unique_ptr<StateStore> etcd_store(const std::string& address, const std::string& endpoint,
                                       const std::string& key, Duration timeout);

}  // namespace trireme::inline v0::rendezvous
