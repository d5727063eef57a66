#include "trireme/sync/levels/cut_sync.h"

#include <c10/util/accumulate.h>

#include <utility>

#include "trireme/layers/tensor/part.h"
#include "trireme/sync/levels/owned_gradients.h"

namespace trireme::inline v0::parallel {

CutSync::CutSync(std::unique_ptr<StepSync> own, comm::Communicator& group, int tensor_ranks,
                 const ModelParts& parts)
    : own_(std::move(own)), group_(group), tensor_ranks_(tensor_ranks), parts_(parts) {}

std::vector<double> CutSync::chunk_squares() {
  std::vector<SquaresOf> order;
  for (const ModelTensor& one : parts_.parameters()) {
    for (int rank = 0; rank < group_.size(); ++rank) {
      const models::Part part = part_on(one.part, rank, tensor_ranks_);
      const std::int64_t count =
          c10::multiply_integers(shape_of_part(shape_of_whole(one.shape, part), part));
      order.push_back({rank, num_chunks(count), is_first_with(one.part, rank, tensor_ranks_)});
    }
  }
  return gather_squares(group_, own_->chunk_squares(), order);
}

std::int64_t CutSync::first_overflow() {
  return first_of_all(group_, own_->first_overflow(), "first overflow");
}

}  // namespace trireme::inline v0::parallel
