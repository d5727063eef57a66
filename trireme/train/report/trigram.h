// The byte trigram with back-off, the baseline for models of text.
//
// Interpolated absolute discounting (Ney, Essen & Kneser 1994; Chen & Goodman 1998, section 2.6):
//   P(c | ab) = max(n(abc) - D, 0) / n(ab) + D N(ab.) / n(ab) P(c | b),   and so on down to 1/256,
// with N(ab.) the number of different bytes seen after ab and D = n1 / (n1 + 2 n2) of each order.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <thread>

namespace trireme::inline v0::train {

/// Whether both texts are long enough for it.
inline bool has_trigrams(std::string_view train, std::string_view validation) {
  return train.size() >= 3 && validation.size() >= 3;
}

/// Nats a byte of `validation` under a trigram counted on `train`. Uses at most 64 MB during the
/// call; 10 MB of text take some tenths of a second. The texts must have trigrams. Returns NaN
/// early when `stop` becomes true.
double trigram_loss(std::string_view train, std::string_view validation,
                    const std::atomic<bool>* stop = nullptr);

/// Runs trigram_loss() on its own low-priority thread during training. The texts must outlive it;
/// the destructor stops the thread.
class TrigramCount {
 public:
  TrigramCount(std::string_view train, std::string_view validation);
  ~TrigramCount();
  /// nullopt while the thread counts; NaN if there was no memory for the counts, as below.
  std::optional<double> result() const;
  /// Ends the thread, and counts in the caller's thread instead.
  double count_now();

 private:
  double loss(const std::atomic<bool>* stop) const;

  const std::string_view train_, validation_;
  std::atomic<bool> stop_{false}, done_{false};
  double loss_ = 0;
  std::thread thread_;
};

}  // namespace trireme::inline v0::train
