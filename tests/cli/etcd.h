// A real etcd, where one is installed, which tests kill and start again.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "tests/cli/command.h"

namespace trireme::testing {

inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), length), 0);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  ::close(socket);
  return ntohs(address.sin_port);
}

#ifdef TRIREME_ETCD
class Etcd {
 public:
  explicit Etcd(const Folder& folder) : folder_(folder) { start(); }
  void start() {
    const std::string own = "http://" + address(), peers = "http://127.0.0.1:" + peer_port_;
    server_ = started(
        Command({TRIREME_ETCD, "--data-dir", folder_.file("etcd"), "--listen-client-urls", own,
                 "--advertise-client-urls", own, "--listen-peer-urls", peers,
                 "--initial-advertise-peer-urls", peers, "--initial-cluster", "default=" + peers})
            .in(folder_.path()));
    ASSERT_TRUE(server_->wait_for("ready to serve client requests")) << server_->output();
  }
  void kill() {
    server_->send(SIGKILL);
    server_->wait_beside_others();
  }
  std::string address() const { return "127.0.0.1:" + client_port_; }

 private:
  const Folder& folder_;
  const std::string client_port_ = std::to_string(free_port()),
                    peer_port_ = std::to_string(free_port());
  std::unique_ptr<Command::Running> server_;
};
#endif

}  // namespace trireme::testing
