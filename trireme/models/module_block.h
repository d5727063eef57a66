// Adapters: torch modules, holders (torch::nn::Sequential, too) and lambdas as Blocks, and the body of
// Blocks::add. Include it where blocks are added; it includes torch/nn/module.h.
//
// A module's initial values come from LibTorch's default generator, which the runtime seeds by
// (seed, block name) before it calls the factory. Dropout draws from that generator, too, seeded by
// (seed, step, micro-batch, block). Parameters that require no gradient are frozen: saved like
// buffers, not trained. Tensors of 2 dims and more get weight decay, others do not.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/models/block.h"

namespace trireme::inline v0::models {

/// Takes the tensors of all values that the block reads, in order; returns those that it writes.
using ForwardFunction = std::function<std::vector<at::Tensor>(std::vector<at::Tensor> inputs)>;

/// A module and how to call it. Without a module: a block without parameters.
std::shared_ptr<Block> make_block(std::shared_ptr<torch::nn::Module> module,
                                  ForwardFunction forward);

/// The torch module inside a block made by make_block() or an adapter below; nullptr for other
/// blocks and for blocks without a module.
std::shared_ptr<torch::nn::Module> module_of(const std::shared_ptr<Block>& block);

/// Throws ConfigError that says how many tensors a block's code takes and how many it got.
[[noreturn]] void throw_wrong_inputs(std::size_t takes, std::size_t got);

namespace detail {

template <class T>
std::vector<at::Tensor> as_value(T&& result) {
  if constexpr (std::is_same_v<std::decay_t<T>, at::Tensor>) {
    return {std::forward<T>(result)};
  } else if constexpr (std::is_same_v<std::decay_t<T>, std::vector<at::Tensor>>) {
    return std::forward<T>(result);
  } else {
    return std::apply([](auto&&... part) { return std::vector<at::Tensor>{part...}; },
                      std::forward<T>(result));
  }
}

// Calls `call` with one to four tensors: the lowest number for which the call compiles.
template <class Call>
ForwardFunction adapt(Call call) {
  using T = at::Tensor;
  return [call](std::vector<T> in) mutable -> std::vector<T> {
    if constexpr (std::is_invocable_v<Call&, T>) {
      if (in.size() != 1) throw_wrong_inputs(1, in.size());
      return as_value(call(in[0]));
    } else if constexpr (std::is_invocable_v<Call&, T, T>) {
      if (in.size() != 2) throw_wrong_inputs(2, in.size());
      return as_value(call(in[0], in[1]));
    } else if constexpr (std::is_invocable_v<Call&, T, T, T>) {
      if (in.size() != 3) throw_wrong_inputs(3, in.size());
      return as_value(call(in[0], in[1], in[2]));
    } else {
      static_assert(std::is_invocable_v<Call&, T, T, T, T>,
                    "a block's forward takes one to four tensors");
      if (in.size() != 4) throw_wrong_inputs(4, in.size());
      return as_value(call(in[0], in[1], in[2], in[3]));
    }
  };
}

template <class M>
struct CallForward {
  std::shared_ptr<M> module;
  template <class... T>
  auto operator()(T&&... in) const -> decltype(std::declval<M&>().forward(in...)) {
    return module->forward(in...);
  }
};

template <class M>
std::shared_ptr<Block> module_block(std::shared_ptr<M> module) {
  return make_block(module, adapt(CallForward<M>{module}));
}

}  // namespace detail

inline std::shared_ptr<Block> as_block(std::shared_ptr<Block> block) { return block; }
template <class B>
requires std::derived_from<B, Block> &&
    (!std::same_as<B, Block>)std::shared_ptr<Block> as_block(std::shared_ptr<B> block) {
  return block;
}
template <class M>
requires std::derived_from<M, torch::nn::Module> std::shared_ptr<Block> as_block(
    std::shared_ptr<M> module) {
  return detail::module_block(std::move(module));
}
/// A module by value (`return Layer(768, 12);`): moved into a shared one.
template <class M>
requires std::derived_from<std::decay_t<M>, torch::nn::Module> std::shared_ptr<Block> as_block(
    M&& module) {
  return detail::module_block(std::make_shared<std::decay_t<M>>(std::forward<M>(module)));
}
/// A holder made by TORCH_MODULE.
template <class H>
requires std::derived_from<
    typename std::remove_cvref_t<decltype(std::declval<const H&>().ptr())>::element_type,
    torch::nn::Module>
    std::shared_ptr<Block> as_block(const H& holder) {
  return detail::module_block(holder.ptr());
}
/// A lambda from one to three tensors to one or more: a block without parameters.
template <class Call>
requires(std::is_invocable_v<Call&, at::Tensor> ||
         std::is_invocable_v<Call&, at::Tensor, at::Tensor> ||
         std::is_invocable_v<Call&, at::Tensor, at::Tensor, at::Tensor>) &&
    (!requires(const Call& holder) { holder.ptr(); }) &&
    (!std::derived_from<Call, torch::nn::Module>)std::shared_ptr<Block> as_block(Call call) {
  return make_block(nullptr, detail::adapt(std::move(call)));
}

template <class Factory>
Blocks& Blocks::add(std::string name, Factory factory) {
  return add(std::move(name), std::vector<std::string>(), std::move(factory));
}

template <class Factory>
Blocks& Blocks::add(std::string name, std::vector<std::string> reads, Factory factory) {
  return add_block({.name = std::move(name),
                    .make = [factory = std::move(factory)] { return as_block(factory()); },
                    .reads = std::move(reads),
                    .writes = {}});
}

}  // namespace trireme::inline v0::models
