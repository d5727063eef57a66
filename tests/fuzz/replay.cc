// Runs one fuzzer without libFuzzer, over its corpus and seeded corruptions of it. Every build can
// do this in a second or two, also with g++'s sanitizers; `make soak` does the search itself.
// usage: replay.NAME CORPUS-FOLDER [SEED [ROUNDS]]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::vector<std::vector<std::uint8_t>> corpus;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    std::ifstream file(entry.path(), std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "no corpus in %s\n", argv[1]);
    return 1;
  }
  const unsigned long seed = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1;
  std::printf("%zu inputs, seed %lu\n", corpus.size(), seed);
  for (const auto& input : corpus) LLVMFuzzerTestOneInput(input.data(), input.size());
  std::mt19937_64 random(seed);
  const long rounds = argc > 3 ? std::atol(argv[3]) : 3000;
  for (long round = 0; round < rounds; ++round) {
    auto input = corpus[random() % corpus.size()];
    for (std::uint64_t change = random() % 8; change > 0; --change) {
      const std::size_t at = input.empty() ? 0 : random() % input.size();
      switch (random() % 4) {
        case 0:
          input.insert(input.begin() + static_cast<std::ptrdiff_t>(at),
                       static_cast<std::uint8_t>(random()));
          break;
        case 1:
          input.resize(at);
          break;
        case 2: {
          const auto& other = corpus[random() % corpus.size()];
          input.insert(input.end(), other.begin(), other.end());
          break;
        }
        default:
          if (!input.empty()) input[at] = static_cast<std::uint8_t>(random());
      }
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  return 0;
}
