#include "trireme/tensor/deferred.h"

#include <utility>

namespace trireme {
inline namespace v0 {
namespace tensor {
namespace {
thread_local std::vector<DeferredGradient>* current = nullptr;
}  // namespace

DeferScope::DeferScope(std::vector<DeferredGradient>& into)
    : outer_(std::exchange(current, &into)) {}
DeferScope::~DeferScope() { current = outer_; }

std::vector<DeferredGradient>* deferred_gradients() noexcept { return current; }

}  // namespace tensor
}  // namespace v0
}  // namespace trireme
