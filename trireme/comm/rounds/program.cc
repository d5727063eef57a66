#include "trireme/comm/rounds/program.h"

#include "trireme/base/error.h"

namespace trireme::inline v0::comm {

Chunk Algorithm::chunk(int index) const noexcept {
  if (num_chunks_ < 1) return {};  // record() refuses it
  return {(index % num_chunks_ + num_chunks_) % num_chunks_};
}

Algorithm::Step Algorithm::round() {
  rounds_.emplace_back();
  return Step(*this, rounds_.size() - 1);
}

int pieces_for(std::size_t bytes, int size) noexcept {
  constexpr std::size_t kPieceBytes = 512u << 10;
  int pieces = 1;
  while (pieces < 8 && bytes / static_cast<std::size_t>(size) / pieces > kPieceBytes) pieces *= 2;
  return pieces;
}

Program record(std::string_view name, const Generator& generator, int size, int root,
               const std::vector<int>& hosts, int pieces) {
  Program program;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("algorithm " + std::string(name) + ": " + why,
                      {.operation = "algorithm", .advice = "Correct the algorithm."});
  };
  for (int rank = 0; rank < size; ++rank) {
    Algorithm algorithm(rank, size, root, hosts, pieces);
    generator(algorithm);
    const int chunks = algorithm.num_chunks();
    const std::string own = "rank " + std::to_string(rank);
    if (chunks < 1) refuse(own + " uses " + std::to_string(chunks) + " chunks; 1 is the least");
    if (rank > 0 && chunks != program.num_chunks) {
      refuse("rank 0 uses " + std::to_string(program.num_chunks) + " chunks, " + own + " uses " +
             std::to_string(chunks) + "; all ranks must use the same number");
    }
    program.num_chunks = chunks;
    program.rounds_of_rank.push_back(algorithm.take());
    for (const Round& round : program.rounds_of_rank.back()) {
      for (const auto* side : {&round.sends, &round.receives}) {
        for (const Transfer& transfer : *side) {
          if (transfer.peer < 0 || transfer.peer >= size || transfer.peer == rank) {
            refuse(own + " names peer " + std::to_string(transfer.peer) +
                   ", but peers are the other ranks of 0 to " + std::to_string(size - 1));
          }
          if (transfer.chunk < 0 || transfer.chunk >= chunks) {
            refuse(own + " names chunk " + std::to_string(transfer.chunk) +
                   ", but chunks are 0 to " + std::to_string(chunks - 1));
          }
        }
      }
    }
  }
  return program;
}

}  // namespace trireme::inline v0::comm
