#include "trireme/sync/gathers/unit_memory.h"

#include <ATen/Functions.h>

#include "trireme/base/check.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {
namespace {

at::Tensor bytes_tensor(std::size_t bytes, Device device) {
  const at::Tensor tensor =
      at::zeros({static_cast<std::int64_t>(bytes)},
                at::TensorOptions(tensor::at_device(device)).dtype(at::kByte));
  TRIREME_CHECK(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64 == 0u);
  return tensor;
}

// `count` elements of `width` bytes from byte `begin` on.
at::Tensor range(const at::Tensor& bytes, std::size_t begin, std::int64_t count,
                 std::size_t width) {
  return bytes.narrow(0, static_cast<std::int64_t>(begin),
                      count * static_cast<std::int64_t>(width));
}

}  // namespace

std::uint32_t UnitMemory::add_unit(std::vector<Unit::Member> members) {
  const std::uint32_t number = ownership_.add(std::move(members));
  units_.push_back(bytes_tensor(ownership_.units().back().bytes, device_));
  return number;
}

void UnitMemory::keep_own(std::uint32_t unit) {
  const std::vector<std::size_t>& cuts = ownership_.units()[unit].cuts;
  const auto at = static_cast<std::size_t>(owner_);
  const std::size_t bytes = cuts[at + 1] - cuts[at];
  own_.push_back(own_on_host_ ? pinned_.take(static_cast<std::int64_t>(bytes), at::kByte)
                              : bytes_tensor(bytes, device_));
  own_.back().copy_(range(units_[unit], cuts[at], static_cast<std::int64_t>(bytes), 1));
  hide(unit);
}

at::Tensor UnitMemory::whole_member(std::uint32_t unit, std::size_t number) const {
  const Unit::Member& member = ownership_.units()[unit].members[number];
  return range(units_[unit], member.offset, member.count, member.width);
}

at::Tensor UnitMemory::own_piece(std::uint32_t unit, std::size_t number, const Piece& piece) const {
  const Unit& layout = ownership_.units()[unit];
  const Unit::Member& member = layout.members[number];
  const std::size_t offset = member.offset + static_cast<std::size_t>(piece.begin) * member.width;
  const std::size_t start = shards_weights_ ? layout.cuts[static_cast<std::size_t>(owner_)] : 0;
  // An empty piece has no place in this rank's interval.
  return range(shards_weights_ ? own_[unit] : units_[unit], piece.size() == 0 ? 0 : offset - start,
               piece.size(), member.width);
}

bool UnitMemory::lies_in(std::uint32_t unit, const at::Tensor& tensor) const {
  return tensor.storage().unsafeGetStorageImpl() == units_[unit].storage().unsafeGetStorageImpl();
}

Buffer UnitMemory::own(std::uint32_t unit) const {
  if (shards_weights_)
    return {.data = own_[unit].data_ptr(),
            .count = own_[unit].nbytes(),
            .dtype = DType::U8,
            .device = own_device()};
  const std::vector<std::size_t>& cuts = ownership_.units()[unit].cuts;
  const auto at = static_cast<std::size_t>(owner_);
  return whole(unit).slice(cuts[at], cuts[at + 1] - cuts[at]);
}

Buffer UnitMemory::whole(std::uint32_t unit) const {
  void* data = units_[unit].storage().unsafeGetStorageImpl()->mutable_data();
  return {.data = data,
          .count = data == nullptr ? 0 : ownership_.units()[unit].bytes,
          .dtype = DType::U8,
          .device = device_};
}

void UnitMemory::show(std::uint32_t unit, void* whole) {
  units_[unit].storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      at::DataPtr(whole, tensor::at_device(device_)));
}

}  // namespace trireme::inline v0::parallel
