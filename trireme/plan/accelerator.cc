#include "trireme/plan/accelerator.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "trireme/base/joined.h"

namespace trireme::inline v0::plan {
namespace {

constexpr std::int64_t kGb = 1'000'000'000;
constexpr double kTera = 1e12, kGiga = 1e9;

// From the makers' data sheets, without sparsity. PCIe forms of the same name are slower.
constexpr std::array<Accelerator, 9> kAccelerators{{
    {"b200", "NVIDIA B200", 180 * kGb, 8 * kTera, 900 * kGiga, 64 * kGiga, 37 * kTera, 75 * kTera,
     1125 * kTera, 2250 * kTera},
    {"h200", "NVIDIA H200 SXM", 141 * kGb, 4.8 * kTera, 450 * kGiga, 64 * kGiga, 67 * kTera,
     67 * kTera, 494.5 * kTera, 989.5 * kTera},
    {"h100", "NVIDIA H100 SXM", 80 * kGb, 3.35 * kTera, 450 * kGiga, 64 * kGiga, 67 * kTera,
     67 * kTera, 494.5 * kTera, 989.5 * kTera},
    {"a100", "NVIDIA A100 SXM", 80 * kGb, 2.039 * kTera, 300 * kGiga, 32 * kGiga, 19.5 * kTera,
     19.5 * kTera, 156 * kTera, 312 * kTera},
    {"v100", "NVIDIA V100 SXM2", 32 * kGb, 0.9 * kTera, 150 * kGiga, 16 * kGiga, 7.8 * kTera,
     15.7 * kTera, 0, 125 * kTera},
    {"l40s", "NVIDIA L40S", 48 * kGb, 0.864 * kTera, 32 * kGiga, 32 * kGiga, 1.4 * kTera,
     91.6 * kTera, 183 * kTera, 362 * kTera},
    {"l4", "NVIDIA L4", 24 * kGb, 0.3 * kTera, 32 * kGiga, 32 * kGiga, 0.47 * kTera, 30.3 * kTera,
     60 * kTera, 121 * kTera},
    {"t4", "NVIDIA T4", 16 * kGb, 0.32 * kTera, 16 * kGiga, 16 * kGiga, 0.25 * kTera, 8.1 * kTera,
     0, 65 * kTera},
    {"mi300x", "AMD Instinct MI300X", 192 * kGb, 5.3 * kTera, 448 * kGiga, 64 * kGiga,
     163.4 * kTera, 163.4 * kTera, 653.7 * kTera, 1307.4 * kTera},
}};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end])))
      return true;
  }
  return false;
}

}  // namespace

const Accelerator* find_accelerator(std::string_view text) {
  std::string lower;
  for (const char c : text) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const Accelerator& one : kAccelerators)
    if (has_word(lower, one.name)) return &one;
  return nullptr;
}

std::int64_t memory_in_names(std::string_view text) {
  std::int64_t least = 0;
  for (std::size_t at = text.find("GB"); at != text.npos; at = text.find("GB", at + 1)) {
    if (at + 2 < text.size() && is_word(text[at + 2])) continue;
    const std::size_t end = at > 0 && text[at - 1] == ' ' ? at - 1 : at;
    std::size_t begin = end;
    while (begin > 0 && std::isdigit(static_cast<unsigned char>(text[begin - 1])) != 0) --begin;
    if (begin > 0 && is_word(text[begin - 1])) continue;
    std::int64_t number = 0;
    const auto read = std::from_chars(text.data() + begin, text.data() + end, number);
    if (read.ec == std::errc() && number > 0 && number < 100'000)
      least = least == 0 ? number * kGb : std::min(least, number * kGb);
  }
  return least;
}

std::string accelerator_names() { return joined(kAccelerators, &Accelerator::name); }

double peak_rate(const Accelerator& accelerator, std::string_view precision,
                 std::string_view products) {
  if (precision == "fp64") return accelerator.fp64;
  if (precision != "fp32") return accelerator.half;
  return products == "tf32" ? accelerator.tf32 : accelerator.fp32;
}

}  // namespace trireme::inline v0::plan
