#include "trireme/strategy/given_share.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/shape_text.h"
#include "trireme/base/weights_hash.h"
#include "trireme/comm/calls/operation.h"
#include "trireme/comm/texts.h"

namespace trireme::inline v0::parallel {
namespace {

// "0-3", "1, 4, 7", "none".
std::string text_of(const std::vector<std::uint32_t>& numbers) {
  constexpr std::size_t kMost = 6;
  if (numbers.empty()) return "none";
  const std::size_t span = numbers.back() - numbers.front() + 1;
  if (numbers.size() > 1 && span == numbers.size())
    return std::to_string(numbers.front()) + "-" + std::to_string(numbers.back());
  return joined(std::span(numbers).first(std::min(numbers.size(), kMost)),
                [](std::uint32_t number) { return std::to_string(number); }) +
         (numbers.size() > kMost ? ", ..." : "");
}

std::vector<std::uint32_t> numbers_of(const Batch& batch) {
  std::vector<std::uint32_t> numbers;
  for (const MicroBatch& micro : batch.micro) numbers.push_back(micro.index);
  return numbers;
}

std::string text_of(std::span<const Batch> batches, std::size_t which) {
  if (batches.empty()) return "no batch";
  const Batch& batch = batches[which];
  std::string text =
      (batch.micro.empty() ? "no micro-batch" : "micro-batches " + text_of(numbers_of(batch))) +
      " of " + std::to_string(batch.total) + " in batch " + std::to_string(which) + " of " +
      std::to_string(batches.size()) + " (" + std::to_string(batch.global_count) + " items in all";
  if (!batch.micro.empty())
    text += ", samples from " + std::to_string(batch.micro.front().first_sample) + " on";
  return text + ")";
}

std::string text_of(const MicroBatch& micro) {
  const std::string fields = joined(micro.fields, [](const auto& field) {
    return field.first + " " + shape_text(field.second.sizes());
  });
  return "a micro-batch with " + (fields.empty() ? "no field" : fields);
}

struct ShareRecord {
  std::uint64_t whole = 0, own = 0;
  bool wrong = false;
  std::string text;
};

// A record is sent as "WHOLE OWN WRONG:text".
std::vector<ShareRecord> gather(comm::Communicator& world, const GivenShare& mine,
                                const std::string& label) {
  std::ostringstream sent;
  sent << mine.whole << ' ' << mine.own << ' ' << !mine.wrong.empty() << ':' << mine.text;
  if (!mine.wrong.empty()) sent << ", but " << mine.wrong;
  std::vector<ShareRecord> records;
  for (const std::string& received : comm::exchange_texts(sent.str(), world, label)) {
    ShareRecord& record = records.emplace_back();
    std::istringstream(received) >> record.whole >> record.own >> record.wrong;
    record.text = received.substr(received.find(':') + 1);
  }
  return records;
}

// Two ranks that disagree, or a rank with a wrong share and one to compare it with; -1: none.
std::pair<int, int> disagreeing(const std::vector<ShareRecord>& records,
                                const kernel::Assignment& places) {
  const int size = static_cast<int>(records.size());
  const auto at = [&](int rank) -> const ShareRecord& {
    return records[static_cast<std::size_t>(rank)];
  };
  for (int rank = 0; rank < size; ++rank) {
    if (!at(rank).wrong) continue;
    for (int other = 0; other < size; ++other)
      if (other != rank && at(other).text != at(rank).text) return {rank, other};
    return {rank, rank};
  }
  std::map<int, int> first_in;  // the first rank of each place
  for (int rank = 0; rank < size; ++rank) {
    const int first = first_in.try_emplace(places.place_of(rank), rank).first->second;
    if (at(rank).whole != at(0).whole) return {0, rank};
    if (at(rank).own != at(first).own) return {first, rank};
  }
  return {-1, -1};
}

}  // namespace

GivenShare given_batches(std::span<const Batch> batches, const kernel::Assignment& places,
                         int rank) {
  GivenShare given{.text = text_of(batches, 0),
                   .advice =
                       "Make them by trireme::fixed_batches(job, data, ...) after the "
                       "Strategy: it gives each rank its share."};
  std::vector<std::size_t> whole, own;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const Batch& batch = batches[i];
    const auto share = kernel::leaves_of(places, batch.total, rank);
    if (given.wrong.empty() && numbers_of(batch) != share) {
      given.text = text_of(batches, i);
      given.wrong = "its share is " + text_of(share);
    }
    whole.push_back(batch.total);
    whole.push_back(static_cast<std::size_t>(batch.global_count));
    for (const MicroBatch& micro : batch.micro) {
      own.push_back(static_cast<std::size_t>(micro.first_sample));
      own.push_back(static_cast<std::size_t>(micro.count));
    }
  }
  given.whole = comm::hash_of(whole);
  given.own = comm::hash_of(own);
  return given;
}

GivenShare given_micro_batch(const MicroBatch& micro) {
  GivenShare given{.text = text_of(micro),
                   .advice =
                       "Give every rank a micro-batch of the same shape, and the ranks of one "
                       "pipeline, or that share layers, the same values."};
  std::vector<std::size_t> whole, own;
  for (const auto& [name, field] : micro.fields) {
    const at::Tensor content = field.detach().cpu().contiguous();
    const std::span bytes(static_cast<const std::byte*>(content.const_data_ptr()),
                          content.nbytes());
    const std::vector<std::int64_t> shape = content.sizes().vec();
    whole.push_back(static_cast<std::size_t>(content.scalar_type()));
    whole.push_back(tensor_hash({name, DType::U8, shape, {}}));
    own.push_back(tensor_hash({name, DType::U8, shape, bytes}));
  }
  given.whole = comm::hash_of(whole);
  given.own = comm::hash_of(own);
  return given;
}

void require_agreement(comm::Communicator& world, const kernel::Assignment& places,
                       const GivenShare& mine, const std::string& operation,
                       const std::string& host) {
  const std::vector<ShareRecord> records = gather(world, mine, operation + " shares");
  const auto [first, second] = disagreeing(records, places);
  if (first < 0) return;
  const auto given = [&](int rank) {
    return "rank " + std::to_string(rank) + " was given " +
           records[static_cast<std::size_t>(rank)].text;
  };
  throw UnevenInput(given(first) + (second == first ? "" : "; " + given(second)),
                    {.rank = world.rank(),
                     .host = host,
                     .operation = operation,
                     .peer = first == world.rank() ? second : first,
                     .advice = mine.advice});
}

}  // namespace trireme::inline v0::parallel
