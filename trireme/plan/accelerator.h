// Accelerator: the makers' figures of GPUs, for plans and for model FLOPs utilization.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::inline v0::plan {

/// One device. Rates are dense operations a second at the usual clock, of the matrix units for
/// types that these compute.
struct Accelerator {
  std::string_view name;    // "h200"
  std::string_view about;   // "NVIDIA H200 SXM"
  std::int64_t memory = 0;  // bytes, of the largest variant
  double bandwidth = 0;     // of its memory, bytes a second
  double link = 0;          // to the other devices of its host, bytes a second in one direction
  double host_link = 0;     // to its host's memory, likewise: PCIe with 16 lanes
  double fp64 = 0, fp32 = 0, tf32 = 0, half = 0;  // half: bf16 and fp16
};

/// The accelerator whose name is a word of `text`, in any case: "h200", "NVIDIA H200 NVL". Or null.
const Accelerator* find_accelerator(std::string_view text);
/// The smallest size in the names of devices, such as "cuda, NVIDIA A100-SXM4-40GB", in bytes; 0 if
/// there is none.
std::int64_t memory_in_names(std::string_view text);
/// All names: "b200, h200, ...".
std::string accelerator_names();

/// Operations a second under train.precision and train.products; 0 if the device lacks the type.
double peak_rate(const Accelerator& accelerator, std::string_view precision,
                 std::string_view products);

/// The share of the peak that forward and backward of a large model are assumed to reach.
/// Published: 43-52 % by Megatron-LM on A100 (arXiv:2104.04473, table 1), 40.7 % by llm.c, GPT-2
/// 124M on H100.
inline constexpr double kUsualShare = 0.4;

}  // namespace trireme::inline v0::plan
