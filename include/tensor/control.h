// Control flow that depends on values and is traced like any operator: cond and loop.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor/tree.h"

namespace tensor {
namespace detail {

/// Whether the elements are known now: not those of a traced tensor.
TENSOR_API bool is_known(const Tensor& condition);
/// The one element of bool. UserError naming `where` unless it is that.
TENSOR_API bool holds(const Tensor& condition, const char* where);
/// The traced choice between these. UserError unless they have equal types.
TENSOR_API std::vector<Tensor> choose(const Tensor& condition, const std::vector<Tensor>& then,
                                      const std::vector<Tensor>& otherwise);

template <class T>
concept Tensors = std::same_as<T, std::vector<Tensor>> || TensorTree<T>;

template <Tensors T>
T chosen(const Tensor& condition, const T& then, const T& otherwise) {
  if constexpr (std::same_as<T, std::vector<Tensor>>)
    return choose(condition, then, otherwise);
  else
    return tree_of<T>(choose(condition, tensors_of(then), tensors_of(otherwise)));
}

}  // namespace detail

/// then() where `condition`, one element of bool, is true, otherwise() where it is false. Both take
/// nothing and return a tensor, a struct of tensors (tree.h) or a vector of them, of the same
/// types. Where the condition is known now, only one of them is called. Where it is traced, both
/// are, so neither may write into what outlives it; a compiled function runs only what the chosen
/// one needs, on a GPU without waiting for the host (where the driver has conditional nodes, CUDA
/// 12.3; elsewhere it computes both). UserError on another condition and on unequal types.
template <class Then, class Otherwise>
requires std::same_as<std::invoke_result_t<Then>, std::invoke_result_t<Otherwise>> &&
    detail::Tensors<std::invoke_result_t<Then>>
        std::invoke_result_t<Then> cond(const Tensor& condition, Then&& then,
                                        Otherwise&& otherwise) {
  if (detail::is_known(condition))
    return detail::holds(condition, "cond") ? std::forward<Then>(then)()
                                            : std::forward<Otherwise>(otherwise)();
  const auto if_true = std::forward<Then>(then)();
  return detail::chosen(condition, if_true, std::forward<Otherwise>(otherwise)());
}

/// The state after `most` steps, or after the first that ends the loop. `body(state)` takes a
/// tensor, a struct of tensors (tree.h) or a vector of them, and returns a pair: whether to go on,
/// one element of bool, and the next state, of the same types. Traced, all steps are recorded, and
/// a compiled function runs those that are taken (see cond). UserError on another condition and on
/// unequal types.
template <detail::Tensors State, class Body>
requires std::same_as<std::invoke_result_t<Body&, const State&>, std::pair<Tensor, State>> State
loop(int most, State state, Body&& body) {
  for (; most > 0; --most) {
    auto [goes_on, next] = body(std::as_const(state));
    if (!detail::is_known(goes_on) && most > 1)
      return detail::chosen(goes_on, loop(most - 1, next, body), next);
    state = std::move(next);
    if (detail::is_known(goes_on) && !detail::holds(goes_on, "loop")) break;
  }
  return state;
}

}  // namespace tensor
