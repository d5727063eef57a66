#include "trireme/launch/hosts/hosts.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "trireme/base/file.h"
#include "trireme/base/joined.h"
#include "trireme/base/parse_number.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/net/endpoint.h"
#include "trireme/observe/machine.h"

namespace trireme::inline v0::launch {
namespace {

constexpr int kMostSlots = 65'536;

[[noreturn]] void refuse_host(const std::string& where, const std::string& what) {
  refuse("launch", where + what,
         "Write a host as \"node07:4\", in a hostfile also as \"node07 slots=4\".");
}

int slots_from(const std::string& text, const std::string& where) {
  if (const auto slots = parse_number<int>(text); slots >= 1 && slots <= kMostSlots) return *slots;
  refuse_host(where, "\"" + text + "\" is no number of slots from 1 to " + grouped(kMostSlots));
}

// ssh takes a name that begins with - as an option.
void check_name(const std::string& name, const std::string& where) {
  const std::size_t host = name.size() - host_without_user(name).size();
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || std::strchr("._-@:%", letter) != nullptr;
  });
  if (host < name.size() && name[0] != '-' && name[0] != '@' && name[host] != '-' && plain) return;
  refuse_host(where, "\"" + name + "\" is no name of a host");
}

// ssh takes an IPv6 address without brackets, also after "me@".
std::string name_for_ssh(const std::string& name) {
  const std::string host = host_without_user(name);
  return name.substr(0, name.size() - host.size()) + net::without_brackets(host);
}

// "node07:4", "[fd00::7]:4"; a name with several colons and no brackets is an IPv6 address.
HostSlots host_from(const std::string& text, const std::string& where) {
  HostSlots host{text, 1};
  const std::size_t bracket = text.find(']'), colon = text.rfind(':');
  const bool numbered = bracket != text.npos ? colon != text.npos && colon > bracket
                                             : colon != text.npos && text.find(':') == colon;
  if (numbered) {
    host.name = text.substr(0, colon);
    host.slots = slots_from(text.substr(colon + 1), where);
  }
  host.name = name_for_ssh(host.name);
  check_name(host.name, where);
  return host;
}

void add_host(std::vector<HostSlots>& hosts, HostSlots host, const std::string& where) {
  const bool here = is_this_host(host.name);  // under any of its names
  const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const HostSlots& one) {
    return one.name == host.name || (here && is_this_host(one.name));
  });
  if (known == hosts.end()) return hosts.push_back(std::move(host));
  if (known->slots + host.slots > kMostSlots) refuse_host(where, "too many slots");
  known->slots += host.slots;
}

HostSlots host_of_line(std::istringstream& words, const std::string& first,
                       const std::string& where) {
  HostSlots host = host_from(first, where);
  bool given = host.name != name_for_ssh(first);  // "node07:4"
  for (std::string word; words >> word;) {
    if (!word.starts_with("slots=")) refuse_host(where, "\"" + word + "\" is not slots=NUMBER");
    if (std::exchange(given, true)) refuse_host(where, "slots are given twice");
    host.slots = slots_from(word.substr(std::strlen("slots=")), where);
  }
  return host;
}

// "ranks 0 to 3", "server 0".
std::string describe_group(const char* one, const std::vector<int>& numbers) {
  if (numbers.empty()) return {};
  const std::string first = std::to_string(numbers.front());
  if (numbers.size() == 1) return std::string(one) + " " + first;
  const bool run = numbers.back() - numbers.front() + 1 == static_cast<int>(numbers.size());
  if (run && numbers.size() > 2)
    return std::string(one) + "s " + first + " to " + std::to_string(numbers.back());
  return std::string(one) + "s " +
         joined(numbers, [](int number) { return std::to_string(number); });
}

}  // namespace

std::vector<HostSlots> parse_hosts(const std::string& list) {
  std::vector<HostSlots> hosts;
  std::istringstream words(list + ",");
  for (std::string word; std::getline(words, word, ',');) {
    const std::string where = "-H " + list + ": ";
    if (word.empty()) refuse_host(where, "a host is empty");
    add_host(hosts, host_from(word, where), where);
  }
  return hosts;
}

std::vector<HostSlots> read_hostfile(const std::string& path) {
  const std::string text =
      read_file(path, "the hostfile ",
                {.operation = "launch", .advice = "Write one host per line: node07 slots=4."});
  std::vector<HostSlots> hosts;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string where = path + ":" + std::to_string(++number) + ": ";
    std::istringstream words(line.substr(0, line.find('#')));
    std::string first;
    if (words >> first) add_host(hosts, host_of_line(words, first, where), where);
  }
  if (hosts.empty()) refuse_host(path + ": ", "no host is named");
  return hosts;
}

int slots_of(const std::vector<HostSlots>& hosts) {
  int slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  return slots;
}

std::vector<int> workers_by_host(int workers, const std::vector<HostSlots>& hosts) {
  const int slots = slots_of(hosts);
  if (workers > slots) {
    refuse("launch", counted(workers, "rank") + ", but the hosts have " + counted(slots, "slot"),
           "Start fewer, or give more slots.");
  }
  std::vector<int> counts;
  for (const HostSlots& host : hosts) {
    counts.push_back(std::min(workers, host.slots));
    workers -= counts.back();
  }
  return counts;
}

std::vector<int> place_processes(const rendezvous::Roles& roles,
                                 const std::vector<HostSlots>& hosts) {
  const std::vector<int> counts = workers_by_host(roles.workers, hosts);
  std::vector<int> places;
  for (std::size_t host = 0; host < counts.size(); ++host)
    places.insert(places.end(), static_cast<std::size_t>(counts[host]), static_cast<int>(host));
  for (int other = 0; other < roles.processes() - roles.workers; ++other)
    places.push_back(other % static_cast<int>(hosts.size()));
  return places;
}

std::string describe_places(const rendezvous::Roles& roles, const std::vector<HostSlots>& hosts,
                            const std::vector<int>& places) {
  std::string text;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    std::vector<int> workers, servers;
    bool evaluator = false;
    for (int process = 0; process < roles.processes(); ++process) {
      if (places[static_cast<std::size_t>(process)] != static_cast<int>(host)) continue;
      const Role role = roles.role_of(process);
      if (role == Role::Evaluator)
        evaluator = true;
      else
        (role == Role::Server ? servers : workers).push_back(roles.number_of(process));
    }
    std::vector<std::string> own = {describe_group("rank", workers),
                                    describe_group("server", servers),
                                    evaluator ? "the evaluator" : ""};
    std::erase(own, "");
    text +=
        (host > 0 ? "; " : "") + hosts[host].name + ": " + (own.empty() ? "nothing" : joined(own));
  }
  return text;
}

std::string host_without_user(const std::string& name) {
  return name.substr(name.find('@') == name.npos ? 0 : name.find('@') + 1);
}

bool is_this_host(const std::string& name) {
  const auto label = [](const std::string& whole) { return whole.substr(0, whole.find('.')); };
  const std::string own = observe::host_name();
  const bool both_whole = name.find('.') != name.npos && own.find('.') != own.npos;
  return net::is_loopback(name) || (both_whole ? name == own : label(name) == label(own));
}

}  // namespace trireme::inline v0::launch
