// Accelerator: what the makers of GPUs say about them, for plans and for model FLOPs utilization.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::inline v0::plan {

/// One device. Rates are of dense operations a second at the usual clock, by its matrix units where
/// these compute the type.
struct Accelerator {
  std::string_view name;    // "h200"
  std::string_view about;   // "NVIDIA H200 SXM"
  std::int64_t memory = 0;  // bytes, of the largest form
  double bandwidth = 0;     // of its memory, bytes a second
  double link = 0;          // to the other devices of its host, bytes a second in one direction
  double host_link = 0;     // to its host's memory, the same: PCIe with 16 lanes
  double fp64 = 0, fp32 = 0, tf32 = 0, half = 0;  // half: bf16 and fp16
};

/// The accelerator whose name is a word of `text`, in any case: "h200" or "NVIDIA H200 NVL". Null if
/// there is none.
const Accelerator* find_accelerator(std::string_view text);
/// Bytes: the least "40GB" or "80 GB" in the names of devices, "cuda, NVIDIA A100-SXM4-40GB"; 0 if
/// there is none.
std::int64_t memory_in_names(std::string_view text);
/// All names, in words: "v100, a100, ...".
std::string accelerator_names();

/// Operations a second under train.precision and train.products; 0: the device has no such type.
double peak_rate(const Accelerator& accelerator, std::string_view precision,
                 std::string_view products);

/// The share of the peak that forward and backward of a large model are assumed to reach. Published:
/// 43 to 52 % by Megatron-LM on A100 (arXiv:2104.04473, table 1), 40.7 % by llm.c for GPT-2 124M on
/// an H100.
inline constexpr double kUsualShare = 0.4;

}  // namespace trireme::inline v0::plan
