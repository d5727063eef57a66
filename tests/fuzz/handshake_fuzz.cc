// Whatever the peer sends in the join handshake, it is not let in: nobody can guess a proof over a
// fresh nonce. Answers are bounded, and no byte is read that was not asked for.
#include <cstdint>
#include <cstdlib>

#include "tests/fuzz/poll_waiter.h"
#include "trireme/base/error.h"
#include "trireme/net/handshake.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  fuzz::Bytes input(data, size);
  const bool dialler = (input.byte() & 1) != 0;
  net::HandshakeState state(dialler, {0, 1, 2, 3}, "a secret of the job");
  std::size_t said = state.take_output().size();
  try {
    while (state.wanted() > 0) {
      const auto bytes = input.take(state.wanted());
      if (bytes.size() < state.wanted()) return 0;  // it hangs up
      state.feed(bytes);
      said += state.take_output().size();
    }
    std::abort();
  } catch (const RefusedError&) {
    said += state.take_output().size();
  }
  if (said > 96) std::abort();
  return 0;
}
