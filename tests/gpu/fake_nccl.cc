// The fake NCCL (fake_gpu.h): non-blocking communicators, matched within one process.
//
// As in NCCL, collectives of a communicator match by their number, and sends and receives by their
// order between two ranks. A native sum is added from the last rank down, which is not the tree's
// order, so a test can tell which was used.
//
// ncclCommAbort waits until the streams have carried out the communicator's groups, as NCCL's does.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "fake_state.h"
#include "trireme/base/buffer.h"
#include "trireme/comm/nccl/nccl_api.h"
#include "trireme/kernel/reduce.h"

namespace trireme::test {
namespace {

using namespace comm::nccl;

constexpr int kInvalidUsage = 5;
// An abort that takes longer counts as one that never returns.
constexpr std::chrono::seconds kLongestAbort(20);

struct Comm;
struct Posted {
  std::string name;
  Comm* comm = nullptr;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  int type = 0, op = 0, peer = 0;
  bool done = false;
};
using Post = std::shared_ptr<Posted>;

struct World {
  int size = 0;
  std::set<int> joined;
  std::map<std::pair<int, int>, std::deque<Post>> sends, recvs;  // (from, to)
  std::map<int, std::map<int, Post>> collectives;                // number, rank
};
struct Group {
  std::vector<Post> posts;
  bool posted = false;
  std::uint64_t since = 0;
};
struct Comm {
  std::shared_ptr<World> world;
  int rank = 0, gpu = 0, collectives = 0;
  int in_progress = 0;  // queries left until it is not
  bool joining = true, aborted = false;
  int in_streams = 0;  // groups that a stream has not carried out
  std::vector<std::pair<void*, std::shared_ptr<Group>>> unlaunched;
};

std::map<std::string, std::shared_ptr<World>>& worlds() {
  static std::map<std::string, std::shared_ptr<World>> all;
  return all;
}
thread_local std::vector<std::pair<void*, Post>> group;
thread_local int depth = 0;

DType dtype_of(int type) {
  switch (type) {
    case kNcclInt32:
      return DType::I32;
    case kNcclInt64:
      return DType::I64;
    case kNcclFloat16:
      return DType::F16;
    case kNcclFloat32:
      return DType::F32;
    case kNcclFloat64:
      return DType::F64;
    case kNcclBfloat16:
      return DType::BF16;
    default:
      return DType::U8;
  }
}
std::size_t bytes_of(const Posted& post) { return post.count * size_of(dtype_of(post.type)); }

std::vector<std::byte> taken(const void* from, std::size_t bytes, const std::string& who) {
  FakeState::get().touch(from, bytes, who);
  const auto* begin = static_cast<const std::byte*>(from);
  return {begin, begin + bytes};
}
void put(void* to, const std::byte* from, std::size_t bytes, const std::string& who) {
  FakeState::get().touch(to, bytes, who);
  if (bytes > 0) std::memcpy(to, from, bytes);
}

std::vector<std::byte> reduced(const std::map<int, Post>& all, std::size_t begin,
                               std::size_t count) {
  const Posted& first = *all.begin()->second;
  const DType dtype = dtype_of(first.type);
  const std::size_t offset = begin * size_of(dtype), bytes = count * size_of(dtype);
  std::vector<std::byte> sum;
  const kernel::Combine ops[] = {kernel::Combine::Sum, kernel::Combine::Product,
                                 kernel::Combine::Max, kernel::Combine::Min, kernel::Combine::Sum};
  for (auto one = all.rbegin(); one != all.rend(); ++one) {
    auto part = taken(static_cast<const std::byte*>(one->second->in) + offset, bytes, first.name);
    if (sum.empty()) {
      sum = std::move(part);
    } else {
      kernel::combine(ops[first.op], dtype, sum.data(), part.data(), sum.data(), count);
    }
  }
  if (first.op == kNcclAvg) kernel::divide(dtype, sum.data(), count, double(all.size()));
  return sum;
}

void carry_out(const std::map<int, Post>& all) {
  const Posted& first = *all.begin()->second;
  for (const auto& [rank, post] : all) {
    if (post->name != first.name || post->count != first.count || post->type != first.type ||
        post->op != first.op || post->peer != first.peer)
      FakeState::get().violate("ranks differ in " + first.name + " and " + post->name);
  }
  const std::size_t bytes = bytes_of(first);
  if (first.name == "ncclAllReduce" || first.name == "ncclReduce") {
    const auto sum = reduced(all, 0, first.count);
    for (const auto& [rank, post] : all) {
      if (first.name == "ncclAllReduce" || rank == first.peer)
        put(post->out, sum.data(), bytes, first.name);
    }
  } else if (first.name == "ncclReduceScatter") {
    std::vector<std::vector<std::byte>> sums;
    for (const auto& [rank, post] : all)
      sums.push_back(reduced(all, rank * first.count, first.count));
    for (const auto& [rank, post] : all) put(post->out, sums[rank].data(), bytes, first.name);
  } else if (first.name == "ncclAllGather") {
    std::vector<std::byte> whole;
    for (const auto& [rank, post] : all) {
      const auto part = taken(post->in, bytes, first.name);
      whole.insert(whole.end(), part.begin(), part.end());
    }
    for (const auto& [rank, post] : all) put(post->out, whole.data(), whole.size(), first.name);
  } else {  // ncclBroadcast
    const auto data = taken(all.at(first.peer)->in, bytes, first.name);
    for (const auto& [rank, post] : all) put(post->out, data.data(), bytes, first.name);
  }
  for (const auto& [rank, post] : all) post->done = true;
}

void match(World& world) {
  for (auto& [pair, sends] : world.sends) {
    auto& recvs = world.recvs[pair];
    while (!sends.empty() && !recvs.empty()) {
      Posted &from = *sends.front(), &to = *recvs.front();
      if (bytes_of(from) != bytes_of(to)) FakeState::get().violate("send and receive differ");
      const auto data = taken(from.in, bytes_of(from), "ncclSend");
      put(to.out, data.data(), std::min(data.size(), bytes_of(to)), "ncclRecv");
      from.done = to.done = true;
      sends.pop_front(), recvs.pop_front();
    }
  }
  for (auto at = world.collectives.begin(); at != world.collectives.end();) {
    if (static_cast<int>(at->second.size()) < world.size) break;
    carry_out(at->second);
    at = world.collectives.erase(at);
  }
}

// One query of the stream at the group at its front.
bool carry_out(const std::shared_ptr<Group>& one) {
  FakeState& fake = FakeState::get();
  Comm& comm = *one->posts.front()->comm;
  if (comm.aborted && !fake.frozen_for_good) return true;
  if (!one->posted) {
    one->posted = true;
    one->since = fake.looks;
    for (const Post& post : one->posts) {
      if (post->name == "ncclSend") comm.world->sends[{comm.rank, post->peer}].push_back(post);
      if (post->name == "ncclRecv") comm.world->recvs[{post->peer, comm.rank}].push_back(post);
      if (post->name != "ncclSend" && post->name != "ncclRecv")
        comm.world->collectives[comm.collectives++][comm.rank] = post;
    }
  }
  if (fake.frozen || fake.looks < one->since + static_cast<std::uint64_t>(fake.latency))
    return false;
  match(*comm.world);
  return std::all_of(one->posts.begin(), one->posts.end(),
                     [](const Post& post) { return post->done; });
}

int give(void* stream, Posted posted) {
  const auto lock = locked();
  FakeState& fake = FakeState::get();
  fake.current();
  ++fake.calls[posted.name];
  if (posted.comm->in_progress > 0 || posted.comm->joining)
    return fake.violate(posted.name + " while the communicator is in progress"), kInvalidUsage;
  if (depth == 0) return fake.violate("a call outside of a group"), kInvalidUsage;
  group.emplace_back(stream, std::make_shared<Posted>(std::move(posted)));
  return kNcclSuccess;
}

Comm* comm_of(void* handle) {
  const auto lock = locked();
  if (!FakeState::get().comms.contains(handle))
    FakeState::get().violate("a communicator that is gone");
  return static_cast<Comm*>(handle);
}

// The kernels of an aborted communicator have ended, and touch no memory any more.
void forget_posts(const Comm& comm) {
  for (auto* const all : {&comm.world->sends, &comm.world->recvs}) {
    for (auto& [pair, posts] : *all)
      std::erase_if(posts, [&](const Post& post) { return post->comm == &comm; });
  }
  for (auto& [number, posts] : comm.world->collectives) posts.erase(comm.rank);
}

class Control final : public FakeGpu {
 public:
  void reset() override {
    thaw();
    while (locked(), fake.aborting > 0) std::this_thread::yield();
    const auto lock = locked();
    fake.violation.clear(), fake.broken.clear(), fake.refused.clear(), fake.async_errors.clear();
    fake.takes_kernels = true;
    fake.calls.clear();
    fake.gates_open = true;
    fake.latency = 3;
    fake.pump();
  }
  std::string first_violation() override { return locked(), fake.violation; }
  std::size_t leftovers() override {
    const auto lock = locked();
    return fake.memory.size() + fake.streams.size() + fake.comms.size();
  }
  std::string leftovers_text() override {
    const auto lock = locked();
    return std::to_string(fake.memory.size()) + " blocks, " + std::to_string(fake.streams.size()) +
           " streams, " + std::to_string(fake.comms.size()) + " communicators";
  }
  void set_latency(int looks) override { locked(), fake.latency = looks; }
  void freeze() override { locked(), fake.frozen = true; }
  void freeze_for_good() override { locked(), fake.frozen = fake.frozen_for_good = true; }
  void thaw() override { locked(), fake.frozen = fake.frozen_for_good = false; }
  void set_async_error(int gpu, int error) override { locked(), fake.async_errors[gpu] = error; }
  void refuse_communicator(int gpu) override { locked(), fake.refused.insert(gpu); }
  void refuse_kernels() override { locked(), fake.takes_kernels = false; }
  void break_gpu(int gpu) override { locked(), fake.broken.insert(gpu); }
  void close_gate(void* stream) override {
    const auto lock = locked();
    fake.gates_open = false;
    fake.push(stream, [this] { return fake.gates_open; });
  }
  void open_gates() override { locked(), fake.gates_open = true; }
  int calls(const std::string& name) override { return locked(), fake.calls[name]; }

 private:
  FakeState& fake = FakeState::get();
};

}  // namespace
}  // namespace trireme::test

using namespace trireme::test;

extern "C" {
FakeGpu* trireme_fake_gpu() {
  static Control control;
  return &control;
}

int ncclGetVersion(int* version) { return *version = 22803, kNcclSuccess; }
const char* ncclGetErrorString(int error) {
  return error == kNcclRemoteError ? "remote process exited or there was a network error"
                                   : "unhandled system error";
}
const char* ncclGetLastError(void*) { return ""; }
int ncclGetUniqueId(NcclId* id) {
  const auto lock = locked();
  static int made = 0;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->bytes, sizeof id->bytes, "made-up %d", ++made);
  return kNcclSuccess;
}
int ncclCommInitRankConfig(void** handle, int size, NcclId id, int rank, NcclConfig* config) {
  const auto lock = locked();
  FakeState& fake = FakeState::get();
  if (config->magic != kConfigMagic || config->blocking != 0) return kInvalidUsage;
  const int gpu = fake.current();
  if (fake.refused.contains(gpu)) return kNcclSystemError;
  auto& world = worlds()[id.bytes];
  if (!world) world = std::make_shared<World>(World{.size = size});
  if (world->size != size || !world->joined.insert(rank).second)
    fake.violate("ranks of a communicator do not fit");
  *handle = new Comm{.world = world, .rank = rank, .gpu = gpu, .in_progress = 2};
  fake.comms.insert(*handle);
  return kNcclInProgress;
}
int ncclCommGetAsyncError(void* handle, int* error) {
  const auto lock = locked();
  FakeState& fake = FakeState::get();
  Comm& comm = *comm_of(handle);
  if (const int set = fake.async_errors[comm.gpu]) return *error = set, kNcclSuccess;
  if (comm.in_progress > 0) --comm.in_progress;
  if (comm.joining && comm.in_progress == 0)
    comm.joining = static_cast<int>(comm.world->joined.size()) < comm.world->size;
  if (comm.in_progress == 0) {
    for (auto& [stream, one] : std::exchange(comm.unlaunched, {})) {
      ++comm.in_streams;
      fake.push(stream, [one, &comm] {
        const bool done = carry_out(one);
        if (done) --comm.in_streams;
        return done;
      });
    }
  }
  *error = comm.in_progress > 0 || comm.joining ? kNcclInProgress : kNcclSuccess;
  return kNcclSuccess;
}
int ncclCommFinalize(void* handle) {
  const auto lock = locked();
  return comm_of(handle)->in_progress = 1, kNcclInProgress;
}
static int end_comm(void* handle, const char* name) {
  const auto lock = locked();
  ++FakeState::get().calls[name];
  comm_of(handle)->aborted = true;
  return FakeState::get().comms.erase(handle), kNcclSuccess;  // its groups may still use it
}
int ncclCommDestroy(void* handle) { return end_comm(handle, "ncclCommDestroy"); }
int ncclCommAbort(void* handle) {
  FakeState& fake = FakeState::get();
  const auto ended = [&] {
    const auto lock = locked();
    Comm& comm = *comm_of(handle);
    comm.aborted = true;
    if (!fake.frozen_for_good) forget_posts(comm);
    fake.pump();
    return comm.in_streams == 0;
  };
  locked(), ++fake.aborting;
  const auto end = std::chrono::steady_clock::now() + kLongestAbort;
  while (!ended() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  const auto lock = locked();
  if (!ended()) fake.violate("ncclCommAbort waits for ever");
  --fake.aborting;
  return end_comm(handle, "ncclCommAbort");
}

int ncclGroupStart() { return ++depth, kNcclSuccess; }
int ncclGroupEnd() {
  const auto lock = locked();
  if (--depth > 0 || group.empty()) return kNcclSuccess;
  auto one = std::make_shared<Group>();
  Comm* const comm = group.front().second->comm;
  void* const stream = group.front().first;
  for (auto& [where, post] : std::exchange(group, {})) one->posts.push_back(std::move(post));
  comm->unlaunched.emplace_back(stream, std::move(one));
  comm->in_progress = 2;
  return kNcclInProgress;
}
int ncclAllReduce(const void* in, void* out, std::size_t count, int type, int op, void* comm,
                  void* stream) {
  return give(stream, {"ncclAllReduce", comm_of(comm), in, out, count, type, op});
}
int ncclReduce(const void* in, void* out, std::size_t count, int type, int op, int root, void* comm,
               void* stream) {
  return give(stream, {"ncclReduce", comm_of(comm), in, out, count, type, op, root});
}
int ncclReduceScatter(const void* in, void* out, std::size_t count, int type, int op, void* comm,
                      void* stream) {
  return give(stream, {"ncclReduceScatter", comm_of(comm), in, out, count, type, op});
}
int ncclAllGather(const void* in, void* out, std::size_t count, int type, void* comm,
                  void* stream) {
  return give(stream, {"ncclAllGather", comm_of(comm), in, out, count, type});
}
int ncclBroadcast(const void* in, void* out, std::size_t count, int type, int root, void* comm,
                  void* stream) {
  return give(stream, {"ncclBroadcast", comm_of(comm), in, out, count, type, 0, root});
}
int ncclSend(const void* in, std::size_t count, int type, int peer, void* comm, void* stream) {
  return give(stream, {"ncclSend", comm_of(comm), in, nullptr, count, type, 0, peer});
}
int ncclRecv(void* out, std::size_t count, int type, int peer, void* comm, void* stream) {
  return give(stream, {"ncclRecv", comm_of(comm), nullptr, out, count, type, 0, peer});
}
}
