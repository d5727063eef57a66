// The exchange of bench.servers over gRPC: workers push a gradient and get the new weights, one server.
//
//     bench.grpc [--bytes 67108864] [--workers 2] [--piece 0] [--seconds 2] [--transport unix|tcp]
//
// This program starts itself once for the server and once for each worker. Its settings are the best
// that were found: the generic interface, whose byte buffers are sent without serialisation; one stream
// a worker; messages of any size; --piece sends a gradient in pieces of so many bytes (0: one message)
// and the server updates each piece when it comes; large frames, windows and write buffers. A worker
// prints a JSON line with its exchanges and their median seconds.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using grpc::ByteBuffer;

struct Options {
  std::size_t bytes = 64 << 20, piece = 0;
  int workers = 2, worker = -1;  // -1: the first process
  double seconds = 2;
  bool tcp = false;
  std::string address;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string key = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (key == "--bytes")
      options.bytes = std::stoul(value);
    else if (key == "--piece")
      options.piece = std::stoul(value);
    else if (key == "--workers")
      options.workers = std::stoi(value);
    else if (key == "--seconds")
      options.seconds = std::stod(value);
    else if (key == "--transport" && (value == "tcp" || value == "unix"))
      options.tcp = value == "tcp";
    else if (key == "--address")
      options.address = value;
    else if (key == "--worker")
      options.worker = std::stoi(value);
    else
      std::exit((std::fprintf(stderr, "unknown option %s %s\n", key.c_str(), value.c_str()), 2));
  }
  if (options.piece == 0) options.piece = options.bytes;
  return options;
}

grpc::ChannelArguments arguments() {
  grpc::ChannelArguments result;
  result.SetMaxReceiveMessageSize(-1);
  result.SetMaxSendMessageSize(-1);
  result.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 16777215);
  result.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 128 << 20);
  result.SetInt(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 4 << 20);
  result.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 1);
  return result;
}

// The caller's memory, which stays until the message has been sent.
ByteBuffer message_of(const void* data, std::size_t bytes) {
  grpc::Slice slice(const_cast<void*>(data), bytes, [](void*) {});
  return ByteBuffer(&slice, 1);
}

template <class Take>
void each_slice(const ByteBuffer& message, const Take& take) {
  std::vector<grpc::Slice> slices;
  message.Dump(&slices);
  std::size_t at = 0;
  for (const grpc::Slice& slice : slices) {
    take(at, slice.begin(), slice.size());
    at += slice.size();
  }
}

bool wait(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  return queue.Next(&tag, &ok) && ok;
}

// weights -= rate * gradient, for bytes that may end in the middle of a number.
void update(std::byte* weights, std::size_t at, const std::uint8_t* gradient, std::size_t bytes) {
  const std::size_t skip = (sizeof(float) - at % sizeof(float)) % sizeof(float);
  if (bytes <= skip) return;  // what is cut is less than a millionth
  float* w = reinterpret_cast<float*>(weights + at + skip);
  const std::size_t count = (bytes - skip) / sizeof(float);
  for (std::size_t i = 0; i < count; ++i) {
    float g = 0;
    std::memcpy(&g, gradient + skip + i * sizeof(float), sizeof g);
    w[i] -= 1e-3f * g;
  }
}

// One worker's stream after the other comes in; each has a thread.
void serve_one(const Options& options, grpc::AsyncGenericService& service,
               grpc::ServerCompletionQueue& queue, std::vector<std::byte>& weights,
               std::mutex& mutex) {
  grpc::GenericServerContext context;
  grpc::GenericServerAsyncReaderWriter stream(&context);
  service.RequestCall(&context, &stream, &queue, &queue, nullptr);
  if (!wait(queue)) return;
  ByteBuffer message;
  for (;;) {
    for (std::size_t at = 0; at < options.bytes; at += options.piece) {
      stream.Read(&message, nullptr);
      if (!wait(queue)) {
        stream.Finish(grpc::Status::OK, nullptr);
        wait(queue);
        return;
      }
      const std::lock_guard lock(mutex);
      each_slice(message, [&](std::size_t in, const std::uint8_t* data, std::size_t bytes) {
        update(weights.data(), at + in, data, bytes);
      });
    }
    for (std::size_t at = 0; at < options.bytes; at += options.piece) {
      const std::size_t bytes = std::min(options.piece, options.bytes - at);
      stream.Write(message_of(weights.data() + at, bytes), nullptr);
      if (!wait(queue)) return;
    }
  }
}

int serve(const Options& options, int ready) {
  std::vector<std::byte> weights(options.bytes);
  std::mutex mutex;
  grpc::AsyncGenericService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterAsyncGenericService(&service);
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 16777215);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 128 << 20);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 4 << 20);
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues;
  for (int i = 0; i < options.workers; ++i) queues.push_back(builder.AddCompletionQueue());
  const auto server = builder.BuildAndStart();
  if (!server) return 1;
  if (write(ready, &port, sizeof port) != sizeof port) return 1;
  std::vector<std::thread> threads;
  for (const auto& queue : queues)
    threads.emplace_back([&] { serve_one(options, service, *queue, weights, mutex); });
  for (std::thread& thread : threads) thread.join();
  _exit(0);  // queues that are shut down in order would only take time
}

int work(const Options& options) {
  std::vector<std::byte> gradient(options.bytes), weights(options.bytes);
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(options.address, grpc::InsecureChannelCredentials(), arguments()));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  grpc::CompletionQueue queue;
  const auto stream = stub.PrepareCall(&context, "/bench/exchange", &queue);
  stream->StartCall(nullptr);
  if (!wait(queue)) return 1;
  ByteBuffer message;
  const auto exchange = [&] {
    for (std::size_t at = 0; at < options.bytes; at += options.piece) {
      const std::size_t bytes = std::min(options.piece, options.bytes - at);
      stream->Write(message_of(gradient.data() + at, bytes), nullptr);
      if (!wait(queue)) return false;
    }
    for (std::size_t at = 0; at < options.bytes; at += options.piece) {
      stream->Read(&message, nullptr);
      if (!wait(queue)) return false;
      each_slice(message, [&](std::size_t in, const std::uint8_t* data, std::size_t bytes) {
        std::memcpy(weights.data() + at + in, data, bytes);
      });
    }
    return true;
  };
  for (int i = 0; i < 2; ++i)
    if (!exchange()) return 1;
  std::vector<double> times;
  const auto start = Clock::now();
  for (auto now = start;
       times.empty() || std::chrono::duration<double>(now - start).count() < options.seconds;) {
    const auto before = now;
    if (!exchange()) return 1;
    now = Clock::now();
    times.push_back(std::chrono::duration<double>(now - before).count());
  }
  std::sort(times.begin(), times.end());
  std::printf("{\"worker\": %d, \"exchanges\": %zu, \"median_seconds\": %.9f}\n", options.worker,
              times.size(), times[times.size() / 2]);
  std::fflush(stdout);
  _exit(0);
}

// gRPC starts threads, so each process begins anew.
pid_t start(const Options& options, int worker, const std::string& address) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<std::string> words = {"bench.grpc",
                                    "--bytes",
                                    std::to_string(options.bytes),
                                    "--workers",
                                    std::to_string(options.workers),
                                    "--piece",
                                    std::to_string(options.piece),
                                    "--seconds",
                                    std::to_string(options.seconds),
                                    "--address",
                                    address,
                                    "--worker",
                                    std::to_string(worker)};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
  _exit(127);
}

int ended(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

constexpr int kServer = 1'000'000;  // as --worker

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (options.worker == kServer) return serve(options, STDIN_FILENO);
  if (options.worker >= 0) return work(options);
  int ends[2];
  if (pipe(ends) != 0) return 1;
  const int input = dup(STDIN_FILENO);
  dup2(ends[1], STDIN_FILENO);  // where the server says its port
  // An abstract socket has no file that could be left.
  const std::string name = "unix-abstract:bench-grpc-" + std::to_string(getpid());
  const pid_t server = start(options, kServer, options.tcp ? "127.0.0.1:0" : name);
  dup2(input, STDIN_FILENO);
  close(ends[1]);
  int port = 0, failed = 0;
  if (read(ends[0], &port, sizeof port) != sizeof port) return 1;
  const std::string address = options.tcp ? "127.0.0.1:" + std::to_string(port) : name;
  std::vector<pid_t> workers;
  for (int i = 0; i < options.workers; ++i) workers.push_back(start(options, i, address));
  for (const pid_t worker : workers) failed |= ended(worker);
  failed |= ended(server);
  return failed == 0 ? 0 : 1;
}
