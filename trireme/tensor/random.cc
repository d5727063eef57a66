#include "trireme/tensor/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <array>
#include <cmath>
#include <mutex>
#include <numbers>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/kernel/cuda/dropout.h"
#include "trireme/kernel/philox.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/devices/gpu_kernels.h"
#include "trireme/tensor/flat_math.h"
#include "trireme/tensor/functions/typed.h"

namespace trireme::inline v0::tensor {
namespace {

using kernel::PhiloxBlock;

std::array<double, 4> normals(const PhiloxBlock& words) {
  std::array<double, 4> values;
  for (int pair = 0; pair < 2; ++pair) {
    const double radius = std::sqrt(-2.0 * std::log(double{kernel::open_unit(words[2 * pair])}));
    const double angle = 2.0 * std::numbers::pi * kernel::unit(words[2 * pair + 1]);
    values[2 * pair] = radius * std::cos(angle);
    values[2 * pair + 1] = radius * std::sin(angle);
  }
  return values;
}
std::array<double, 4> uniforms(const PhiloxBlock& words) {
  std::array<double, 4> values;
  for (int i = 0; i < 4; ++i) values[i] = kernel::unit(words[i]);
  return values;
}

// Element i is value i % 4 of counter block i / 4, rounded to fp32 first.
template <class Draw>
void fill(at::Tensor out, std::uint64_t seed, std::uint64_t stream, double shift, double scale,
          Draw draw, std::int64_t first = 0) {
  TRIREME_CHECK(out.is_contiguous());
  at::Tensor values = out.scalar_type() == at::kFloat
                          ? out.detach()
                          : at::empty({out.numel()}, at::TensorOptions().dtype(at::kFloat));
  float* data = values.data_ptr<float>();
  const std::int64_t end = first + out.numel();
  for (std::int64_t begin = first / 4 * 4; begin < end; begin += 4) {
    const auto block = draw(kernel::philox(seed, stream, static_cast<std::uint64_t>(begin / 4)));
    for (std::int64_t i = std::max(begin, first); i < std::min(begin + 4, end); ++i) {
      data[i - first] =
          static_cast<float>(shift + scale * block[static_cast<std::size_t>(i - begin)]);
    }
  }
  if (!values.is_alias_of(out)) out.detach().copy_(values.view(out.sizes()));
}

thread_local StreamScope* innermost = nullptr;
thread_local RecordedStreams* recorded = nullptr;

constexpr std::int64_t kWord = 0xffffffff;
constexpr std::int64_t kMostMasks = 4096;  // of a recorded pass

std::array<std::int64_t, 2> words_of(std::uint64_t stream) {
  return {static_cast<std::int64_t>(stream & kWord), static_cast<std::int64_t>(stream >> 32)};
}

void seed_generator(std::uint64_t seed, at::Device device = at::kCPU) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

// Whether the device has a generator, and it can be used now.
bool has_generator(at::Device device) {
  return recorded == nullptr && at::accelerator::isAccelerator(device.type());
}

// The upper 24 bits of a stream's words from element `first` on, by LibTorch's operators on the
// device of `like`: int64 [like.numel()].
at::Tensor words_by_operators(const StreamKey& key, std::int64_t first, const at::Tensor& like) {
  const std::int64_t begin = first / 4, end = (first + like.numel() + 3) / 4;
  const at::Tensor index = at::arange(begin, end, like.options().dtype(at::kLong));
  std::array<at::Tensor, 4> counter{index & kWord, at::bitwise_right_shift(index, 32)};
  if (recorded != nullptr) {
    const at::Tensor words = recorded->add(key);
    for (std::size_t i = 0; i < 2; ++i)
      counter[2 + i] = words.select(0, static_cast<std::int64_t>(i)).expand_as(index);
  } else {
    const std::array<std::int64_t, 2> words = words_of(key.stream());
    for (std::size_t i = 0; i < 2; ++i) counter[2 + i] = at::full_like(index, words[i]);
  }
  const auto low = [](const at::Tensor& product) { return product & kWord; };
  const auto high = [](const at::Tensor& product) {
    return at::bitwise_right_shift(product, 32) & kWord;
  };
  kernel::PhiloxKey round_key(key.seed);
  for (int round = 0; round < kernel::kPhiloxRounds; ++round, round_key.next()) {
    // Products wrap around: only their 64 bits matter.
    const at::Tensor a = counter[0] * kernel::kPhiloxFirst, b = counter[2] * kernel::kPhiloxSecond;
    counter = {high(b).bitwise_xor_(counter[1]).bitwise_xor_(std::int64_t{round_key.k0}), low(b),
               high(a).bitwise_xor_(counter[3]).bitwise_xor_(std::int64_t{round_key.k1}), low(a)};
  }
  return at::bitwise_right_shift(at::stack(counter, 1).view({-1}), 8)
      .narrow(0, first - 4 * begin, like.numel());
}

}  // namespace

void fill_normal(at::Tensor out, std::uint64_t seed, std::string_view name, double mean,
                 double stddev) {
  fill(std::move(out), seed, kernel::stream_of(name), mean, stddev, normals);
}

void fill_uniform(at::Tensor out, std::uint64_t seed, std::string_view name, double low,
                  double high) {
  fill(std::move(out), seed, kernel::stream_of(name), low, high - low, uniforms);
}

std::uint64_t StreamKey::stream() const noexcept {
  const auto mixed = kernel::philox(static_cast<std::uint64_t>(step),
                                    static_cast<std::uint64_t>(sample), std::uint64_t{layer});
  return std::uint64_t{mixed[0]} << 32 | mixed[1];
}

void fill_dropout_mask(at::Tensor out, const StreamKey& key, double p, std::int64_t first) {
  TRIREME_CHECK(p >= 0);
  TRIREME_CHECK(p <= 1);
  // A word's float is below p if its 24 bits are below this integer.
  const double below = std::ceil(p * 0x1p24);
  const auto kept = static_cast<float>(p < 1 ? 1.0 / (1.0 - p) : 0.0);
  if (const GpuKernels* const gpu = GpuKernels::of(out)) {
    TRIREME_CHECK(out.is_contiguous());
    for_type(out.scalar_type(), [&]<class T>() {
      const kernel::cuda::MaskArguments<T> mask{
          .out = data_of<T>(out),
          .count = static_cast<std::uint64_t>(out.numel()),
          .first = static_cast<std::uint64_t>(first),
          .seed = key.seed,
          .stream = key.stream(),
          .stream_words =
              recorded != nullptr ? recorded->add(key).const_data_ptr<std::int64_t>() : nullptr,
          .below = static_cast<std::uint32_t>(below),
          .kept = kept};
      gpu->run("mask", DTypeOf<T>::value, mask, GpuKernels::blocks_for(num_blocks(mask)));
    });
    return;
  }
  if (implementation_of(out) == Implementation::LibTorch) {
    const at::Tensor dropped = words_by_operators(key, first, out) < below;
    out.copy_(dropped.logical_not().to(at::kFloat).mul_(kept).view(out.sizes()));
    return;
  }
  const auto draw = [p](const PhiloxBlock& words) {
    auto values = uniforms(words);
    for (double& value : values) value = value < p ? 0.0 : 1.0 / (1.0 - p);
    return values;
  };
  fill(std::move(out), key.seed, key.stream(), 0.0, 1.0, draw, first);
}

StreamScope::StreamScope(const StreamKey& key) : key_(key), outer_(innermost) { innermost = this; }
StreamScope::~StreamScope() { innermost = outer_; }

// The low half of `layer` is the layer's number, the high half counts the draws within it.
StreamKey next_stream() {
  TRIREME_CHECK(innermost != nullptr);
  StreamKey key = innermost->key_;
  TRIREME_CHECK(key.layer < 1u << 16);
  TRIREME_CHECK(innermost->draws_ < 1u << 15);
  key.layer |= ++innermost->draws_ << 16;
  return key;
}

at::Tensor dropout(const at::Tensor& x, double p) {
  const at::Tensor mask = at::empty(x.sizes(), x.options());
  fill_dropout_mask(mask, next_stream(), p);
  return at::mul(x, mask);
}

at::Tensor dropout(const at::Tensor& x, double p, const Window& window) {
  const StreamKey key = next_stream();
  const at::Tensor mask = at::empty(x.sizes(), x.options());
  for (std::int64_t i = 0; i < x.size(0); ++i)
    fill_dropout_mask(mask[i], key, p,
                      (i * window.whole + window.begin) * (mask[i].numel() / x.size(1)));
  return at::mul(x, mask);
}

RecordedStreams::RecordedStreams(at::Device device)
    : words_(at::empty({kMostMasks, 2}, at::TensorOptions(device).dtype(at::kLong))) {}

at::Tensor RecordedStreams::add(const StreamKey& key) {
  const auto row = static_cast<std::int64_t>(keys_.size());
  if (row == kMostMasks)
    throw ConfigError("a recorded pass draws more than " + std::to_string(kMostMasks) + " masks",
                      {.advice = "Set train.graphs = false, or use a smaller batch.micro."});
  keys_.push_back(key);
  return words_[row];
}

void RecordedStreams::set(std::int64_t step, std::int64_t sample) {
  if (keys_.empty()) return;
  const auto rows = static_cast<std::int64_t>(keys_.size());
  const at::Tensor words = at::empty({rows, 2}, at::kLong);
  auto* out = words.data_ptr<std::int64_t>();
  for (StreamKey key : keys_) {
    key.step = step;
    key.sample = sample;
    for (const std::int64_t word : words_of(key.stream())) *out++ = word;
  }
  words_.narrow(0, 0, rows).copy_(on_device(words, words_.device()));
}

RecordedStreams::Scope::Scope(RecordedStreams& streams) {
  TRIREME_CHECK(recorded == nullptr);
  recorded = &streams;
}
RecordedStreams::Scope::~Scope() { recorded = nullptr; }

std::uint64_t default_generator_position(at::Device device) {
  std::uint64_t of_device = 0;
  if (has_generator(device)) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    std::lock_guard lock(generator.mutex());
    const at::Tensor state = generator.get_state();
    of_device =
        kernel::stream_of({static_cast<const char*>(state.const_data_ptr()), state.nbytes()});
  }
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  const auto data = at::check_generator<at::CPUGeneratorImpl>(generator)->engine().data();
  return of_device ^ data.seed_ ^ (std::uint64_t{data.next_} << 40) ^
         (static_cast<std::uint64_t>(data.left_) << 20);
}

void seed_default_generator(std::uint64_t seed, std::string_view name) {
  const auto words = kernel::philox(seed, kernel::stream_of(name), 0);
  seed_generator(std::uint64_t{words[0]} << 32 | words[1]);
}

void seed_default_generator(const StreamKey& key, at::Device device) {
  const auto words = kernel::philox(key.seed, key.stream(), 0);
  const std::uint64_t seed = std::uint64_t{words[0]} << 32 | words[1];
  seed_generator(seed);
  if (has_generator(device)) seed_generator(seed, device);
}

}  // namespace trireme::inline v0::tensor
