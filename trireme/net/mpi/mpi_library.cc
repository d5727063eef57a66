#include "trireme/net/mpi/mpi_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/refuse.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/observe/wait_notice.h"

#ifndef TRIREME_MPI_FOLDER
#define TRIREME_MPI_FOLDER ""
#endif

namespace trireme::inline v0::net {
namespace {

constexpr const char* kOwn = "libtrireme_mpi.so";
constexpr const char* kOpenMpi = "libtrireme_mpi_openmpi.so";
constexpr const char* kMpich = "libtrireme_mpi_mpich.so";

// The program's own MPI comes first: a second MPI in the same process could not start.
std::vector<std::string> names() {
  if (dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world")) return {kOwn, kOpenMpi};
  if (dlsym(RTLD_DEFAULT, "MPIR_Err_create_code")) return {kOwn, kMpich};
  if (dlsym(RTLD_DEFAULT, "MPI_Init")) return {kOwn, kMpich, kOpenMpi};
  if (std::getenv("OMPI_COMM_WORLD_SIZE")) return {kOwn, kOpenMpi};
  if (std::getenv("PMI_SIZE")) return {kOwn, kMpich};
  return {kOwn, kOpenMpi, kMpich};
}

std::vector<std::string> folders_of_the_program() {
  std::error_code none;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  return {program.string(), (program / "../lib").string(), (program / "..").string()};
}

struct Loaded {
  const TriremeMpi* functions = nullptr;
  std::string path;
};

[[noreturn]] void refuse_broken(const std::string& path, const std::string& reason) {
  refuse("mpi", "cannot open " + path + ": " + reason, "Rebuild it: make mpi MPICC=mpicc");
}

// RTLD_GLOBAL because Open MPI's components look for its symbols.
void* open_global(const std::string& path) { return dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL); }

Loaded check_library(void* handle, const std::string& path) {
  const auto symbol = reinterpret_cast<const TriremeMpi* (*)()>(dlsym(handle, "trireme_mpi"));
  if (!symbol || symbol()->abi != TRIREME_MPI_ABI) {
    refuse("mpi", path + " is of another version of Trireme", "Rebuild it: make mpi MPICC=mpicc");
  }
  return {symbol(), path};
}

Loaded open_library(const std::string& path) {
  void* const handle = open_global(path);
  if (!handle) refuse_broken(path, dlerror());
  return check_library(handle, path);
}

std::optional<Loaded> open_in(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  std::error_code hidden;  // the build folder may be in another user's home
  if (!std::filesystem::exists(path, hidden)) return std::nullopt;
  return open_library(path);
}

// The run path of an installed program contains the folder of `name` (cmake/install.cmake).
std::optional<Loaded> open_by_run_path(const std::string& name) {
  void* const handle = open_global(name);
  if (!handle) {
    const std::string reason = dlerror();
    // If `name` exists but lacks a library, the error begins with that library's name.
    if (!reason.starts_with(name + ":")) refuse_broken(name, reason);
    return std::nullopt;
  }
  link_map* map = nullptr;
  return check_library(handle, dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : name);
}

Loaded load() {
  if (const char* given = std::getenv("TRIREME_MPI_LIBRARY"); given && *given) {
    return open_library(given);
  }
  const std::vector<std::string> tried = names();
  for (const std::string& name : tried) {
    for (const std::string& folder : folders_of_the_program()) {
      if (const auto found = open_in(folder, name)) return *found;
    }
    if (const auto found = open_by_run_path(name)) return *found;
    if (const auto found = open_in(TRIREME_MPI_FOLDER, name)) return *found;
  }
  refuse("mpi", "this build has no MPI: found no " + joined(tried, {}, " or "),
         "Build it with the mpicc of your MPI (make mpi MPICC=mpicc), or use `trireme launch`.");
}

bool equal_variables(const char* one, const char* other) {
  const char* const a = std::getenv(one);
  const char* const b = std::getenv(other);
  return a && b && std::strcmp(a, b) == 0;
}

// If all ranks are on this host, they use shared memory. Otherwise MPI would still listen on every
// interface. The user's own choice is kept.
void keep_on_one_host() {
  if (equal_variables("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE")) {
    const bool chosen = std::getenv("OMPI_MCA_pml") || std::getenv("OMPI_MCA_btl");
    if (chosen) return;
    setenv("OMPI_MCA_pml", "ob1", 0);
    setenv("OMPI_MCA_btl", "self,vader", 0);
  } else if (equal_variables("MPI_LOCALNRANKS", "PMI_SIZE")) {
    setenv("UCX_TLS", "self,sm", 0);
  }
}

// Unless told otherwise when it is loaded, MPICH's UCX writes warnings to stdout, where results
// are. The user's own choice is kept.
void keep_off_stdout() { setenv("UCX_LOG_FILE", "stderr", 0); }

// At least one of these two ranks waits for others. The rest stay silent on the shared terminal.
bool speaks(int rank) { return rank <= 1; }

// MPI_Init returns when all processes of mpirun have called it. Says so if that takes long.
int start(const TriremeMpi& functions) {
  const char* rank = nullptr;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"})
    if (rank == nullptr) rank = std::getenv(name);
  if (rank == nullptr || !speaks(std::atoi(rank))) return functions.start();
  const auto waiter = RealWaiter::make();
  const observe::WaitNotice notice(*waiter, "rank " + std::string(rank),
                                   [] { return "other processes of mpirun, in MPI_Init"; });
  return functions.start();
}

std::atomic<const TriremeMpi*> in_use{nullptr};

const Loaded& loaded() {
  static const Loaded one = [] {
    keep_off_stdout();
    Loaded result = load();
    keep_on_one_host();
    in_use = result.functions;
    if (start(*result.functions) != 0) {
      refuse("mpi", std::string(result.functions->library()) + ": " + result.functions->error(),
             "See TRIREME_MPI_LIBRARY, and start MPI with at least MPI_THREAD_SERIALIZED.");
    }
    return result;
  }();
  return one;
}

}  // namespace

void abort_mpi(int code) noexcept {
  if (const TriremeMpi* functions = in_use.load()) functions->abort(code);
}

const TriremeMpi& mpi() { return *loaded().functions; }

std::string mpi_description() {
  return std::string(loaded().functions->library()) + " (" + loaded().path + ")";
}

MpiGroup::MpiGroup(const void* communicator, int size)
    : functions_(mpi()), group_(functions_.open(communicator, size)) {
  if (!group_ && size == 0) {
    refuse("mpi", std::string("MPI gave no communicator: ") + functions_.error(),
           "See what mpirun printed.");
  }
}

MpiGroup::~MpiGroup() {
  if (group_) functions_.close(group_, clean_);
}

std::exception_ptr MpiGroup::failure() const {
  return std::make_exception_ptr(
      PeerLost(functions_.error(), {.rank = rank(),
                                    .operation = "mpi",
                                    .advice = "See what mpirun and the other ranks print."}));
}

std::string MpiGroup::gather(Waiter& waiter, std::string mine, Duration timeout) {
  struct Buffers {
    std::string mine, all;
  };
  auto buffers = std::make_unique<Buffers>();
  buffers->mine = std::move(mine);
  buffers->all.resize(static_cast<std::size_t>(size()) * buffers->mine.size());
  const int begun =
      functions_.gather(group_, buffers->mine.data(), buffers->mine.size(), buffers->all.data());
  if (begun != 0) std::rethrow_exception(failure());
  std::optional<observe::WaitNotice> notice;
  if (speaks(rank()))
    notice.emplace(waiter, "rank " + std::to_string(rank()),
                   [] { return "the other ranks, over MPI"; });
  const TimePoint deadline = waiter.now() + timeout;
  for (int done = 0; done == 0;) {
    done = functions_.gathered(group_);
    if (done < 0) std::rethrow_exception(failure());
    if (done == 0 && waiter.now() > deadline) {
      static_cast<void>(buffers.release());  // MPI may still write there: they are never freed
      throw TimeoutError("not all ranks came to the exchange over MPI",
                         {.rank = rank(), .operation = "join", .advice = "See the other ranks."});
    }
    if (done == 0) waiter.sleep(std::chrono::microseconds(50));
  }
  return std::move(buffers->all);
}

std::vector<std::string> MpiGroup::exchange(Waiter& waiter, const std::string& mine,
                                            Duration timeout) {
  std::vector<std::size_t> lengths(static_cast<std::size_t>(size()));
  std::string own(sizeof(std::size_t), '\0');
  const std::size_t length = mine.size();
  std::memcpy(own.data(), &length, sizeof length);
  std::memcpy(lengths.data(), gather(waiter, own, timeout).data(), lengths.size() * sizeof length);
  const std::size_t most = *std::max_element(lengths.begin(), lengths.end());
  if (most == 0) return std::vector<std::string>(lengths.size());
  own = mine;
  own.resize(most);
  const std::string all = gather(waiter, own, timeout);
  std::vector<std::string> result;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    result.push_back(all.substr(rank * most, lengths[rank]));
  }
  return result;
}

}  // namespace trireme::inline v0::net
