#include "trireme/train/report/trigram.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <new>
#include <vector>

#include "trireme/base/check.h"

namespace trireme::inline v0::train {
namespace {

// Numbers the bytes that occur in the training part. All others share one more number, which is
// never counted. So the tables need only size^3 counts.
struct Alphabet {
  std::array<std::uint16_t, 256> symbol{};
  std::size_t size = 0;
  explicit Alphabet(std::string_view train) {
    std::array<bool, 256> seen{};
    for (const char c : train) seen[static_cast<unsigned char>(c)] = true;
    for (std::size_t b = 0; b < 256; ++b)
      if (seen[b]) symbol[b] = static_cast<std::uint16_t>(size++);
    for (std::size_t b = 0; b < 256; ++b)
      if (!seen[b]) symbol[b] = static_cast<std::uint16_t>(size);
  }
  std::size_t operator()(char c) const { return symbol[static_cast<unsigned char>(c)]; }
};

// One order of the model: counts [contexts][symbols], and the totals for each context's discount. A
// text may have more bytes than 32 bits count.
template <class Count>
struct Order {
  std::size_t symbols;
  std::vector<Count> count;
  std::vector<std::uint64_t> total;  // of each context
  std::vector<std::uint32_t> kinds;
  double discount = 0;

  Order(std::size_t contexts, std::size_t symbols)
      : symbols(symbols), count(contexts * symbols), total(contexts), kinds(contexts) {}

  void close() {
    std::uint64_t once = 0, twice = 0;
    for (std::size_t context = 0; context < total.size(); ++context) {
      for (std::size_t s = 0; s < symbols; ++s) {
        const Count n = count[context * symbols + s];
        total[context] += n;
        kinds[context] += n > 0;
        once += n == 1;
        twice += n == 2;
      }
    }
    discount = once > 0 ? static_cast<double>(once) / static_cast<double>(once + 2 * twice) : 0.5;
    // A discount of 1 would forget what was seen once.
    discount = std::min(0.95, std::max(0.05, discount));
  }
  double probability(std::size_t context, std::size_t symbol, double lower) const {
    if (context >= total.size() || total[context] == 0) return lower;
    const double n = symbol < symbols ? static_cast<double>(count[context * symbols + symbol]) : 0;
    return (std::max(n - discount, 0.0) + discount * kinds[context] * lower) /
           static_cast<double>(total[context]);
  }
};

}  // namespace

double trigram_loss(std::string_view train, std::string_view validation,
                    const std::atomic<bool>* stop) {
  TRIREME_CHECK(has_trigrams(train, validation));
  const Alphabet alphabet(train);
  const std::size_t n = alphabet.size;
  Order<std::uint64_t> one(1, n), two(n, n);
  Order<std::uint32_t> three(n * n, n);  // 64 MB for 256 different bytes
  for (std::size_t i = 2; i < train.size(); ++i) {
    if (stop && i % 65536 == 0 && *stop) return std::numeric_limits<double>::quiet_NaN();
    const std::size_t a = alphabet(train[i - 2]), b = alphabet(train[i - 1]),
                      c = alphabet(train[i]);
    ++one.count[c];
    ++two.count[b * n + c];
    ++three.count[(a * n + b) * n + c];
  }
  one.close();
  two.close();
  three.close();
  double nats = 0;
  for (std::size_t i = 2; i < validation.size(); ++i) {
    const std::size_t a = alphabet(validation[i - 2]), b = alphabet(validation[i - 1]);
    const std::size_t c = alphabet(validation[i]);
    // A context with an unseen byte has no counts: back off to the lower order.
    double p = one.probability(0, c, 1.0 / 256);
    p = two.probability(b < n ? b : n, c, p);
    p = three.probability(a < n && b < n ? a * n + b : n * n, c, p);
    nats -= std::log(p);
  }
  return nats / static_cast<double>(validation.size() - 2);
}

TrigramCount::TrigramCount(std::string_view train, std::string_view validation)
    : train_(train), validation_(validation), thread_([this] {
        // Linux keeps a priority per thread. Training comes first.
        setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
        loss_ = loss(&stop_);
        done_.store(true, std::memory_order_release);
      }) {}

TrigramCount::~TrigramCount() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

double TrigramCount::count_now() {
  stop_ = true;
  thread_.join();
  return loss(nullptr);
}

double TrigramCount::loss(const std::atomic<bool>* stop) const {
  try {
    return trigram_loss(train_, validation_, stop);
  } catch (const std::bad_alloc&) {
    return std::numeric_limits<double>::quiet_NaN();
  }
}

std::optional<double> TrigramCount::result() const {
  if (!done_.load(std::memory_order_acquire)) return std::nullopt;
  return loss_;
}

}  // namespace trireme::inline v0::train
