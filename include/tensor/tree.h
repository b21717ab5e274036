// Trees of tensors: the structs that functions of a model take and return (what JAX calls pytrees),
// taken apart into tensors and put together again.
#pragma once

#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor/handle.h"

namespace tensor {
namespace detail {

/// Whatever a member is: only to count them.
struct AnyMember {
  template <class T>
  operator T() const;
};

constexpr std::size_t kMostMembers = 8;

/// How many members an aggregate has: as many as braces take.
template <class T, class... Members>
consteval std::size_t member_count() {
  if constexpr (sizeof...(Members) <= kMostMembers && requires { T{Members{}..., AnyMember{}}; })
    return member_count<T, Members..., AnyMember>();
  else
    return sizeof...(Members);
}

template <class T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};

template <class T>
concept Struct = std::is_class_v<T> && std::is_aggregate_v<T> && !TupleLike<T> &&
                 member_count<T>() >= 1 && member_count<T>() <= kMostMembers;

/// References to all members.
template <class T>
constexpr auto members_of(T& tree) {
  if constexpr (TupleLike<std::remove_const_t<T>>) {
    return std::apply([](auto&... members) { return std::tie(members...); }, tree);
  } else {
    constexpr std::size_t kCount = member_count<std::remove_const_t<T>>();
    if constexpr (kCount == 1) {
      auto& [a] = tree;
      return std::tie(a);
    } else if constexpr (kCount == 2) {
      auto& [a, b] = tree;
      return std::tie(a, b);
    } else if constexpr (kCount == 3) {
      auto& [a, b, c] = tree;
      return std::tie(a, b, c);
    } else if constexpr (kCount == 4) {
      auto& [a, b, c, d] = tree;
      return std::tie(a, b, c, d);
    } else if constexpr (kCount == 5) {
      auto& [a, b, c, d, e] = tree;
      return std::tie(a, b, c, d, e);
    } else if constexpr (kCount == 6) {
      auto& [a, b, c, d, e, f] = tree;
      return std::tie(a, b, c, d, e, f);
    } else if constexpr (kCount == 7) {
      auto& [a, b, c, d, e, f, g] = tree;
      return std::tie(a, b, c, d, e, f, g);
    } else {
      auto& [a, b, c, d, e, f, g, h] = tree;
      return std::tie(a, b, c, d, e, f, g, h);
    }
  }
}

template <class T>
consteval bool is_tree() {
  if constexpr (std::same_as<T, Tensor>)
    return true;
  else if constexpr (TupleLike<T> || Struct<T>)
    return []<class... Members>(std::type_identity<std::tuple<Members&...>>) {
      return (is_tree<Members>() && ...);
    }(std::type_identity<decltype(members_of(std::declval<T&>()))>());
  else
    return false;
}

}  // namespace detail

/// A tensor, or a struct of such: an aggregate (no constructors, no bases) of one to eight members,
/// a std::array, pair or tuple, each of whose members is a tensor or a struct of such.
template <class T>
concept TensorTree = detail::is_tree<T>();

/// Calls `visit` with every tensor, in the order of the members.
template <class T, class Visit>
requires TensorTree<std::remove_const_t<T>>
void for_each_tensor(T& tree, Visit&& visit) {
  if constexpr (std::same_as<std::remove_const_t<T>, Tensor>)
    visit(tree);
  else
    std::apply([&](auto&... members) { (for_each_tensor(members, visit), ...); },
               detail::members_of(tree));
}

/// All tensors of some trees.
template <TensorTree... Trees>
std::vector<Tensor> tensors_of(const Trees&... trees) {
  std::vector<Tensor> tensors;
  (for_each_tensor(trees, [&](const Tensor& tensor) { tensors.push_back(tensor); }), ...);
  return tensors;
}

/// The tree of these tensors; UserError unless it has as many.
template <TensorTree Tree>
Tree tree_of(const std::vector<Tensor>& tensors) {
  Tree tree{};
  std::size_t count = 0;
  for_each_tensor(tree, [&](Tensor& tensor) {
    if (count < tensors.size()) tensor = tensors[count];
    ++count;
  });
  if (count != tensors.size())
    fail("tree_of", "got ", tensors.size(), " tensors, the struct has ", count);
  return tree;
}

}  // namespace tensor
