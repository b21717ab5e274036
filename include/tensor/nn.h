// Layers: plain aggregates of named tensors, and loading them from a checkpoint.
//
// A module is any struct whose `members(visit)` calls visit("name", member) for each of its tensors
// and modules; a std::vector of modules is numbered "name.0", "name.1" ... An undefined tensor is a
// parameter that is absent.
#pragma once

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/ops.h"
#include "tensor/tensor_map.h"

namespace tensor::nn {

using StateDict = TensorMap;

/// A parameter before it is loaded: read-only zeros of this shape that take no memory. A model that
/// was never loaded runs without an error, on zeros.
TENSOR_API Tensor parameter(const Shape& shape, DType dtype = f32);

struct Parameter {
  std::string name;  ///< the path, "encoder.layer.0.attention.query.weight"
  Tensor* tensor;
};

namespace detail {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

struct Collector {
  std::string prefix;
  std::vector<Parameter>& found;

  template <class T>
  void operator()(std::string_view name, T& member) const {
    const std::string path = prefix.empty() ? std::string(name) : prefix + "." + std::string(name);
    if constexpr (std::is_same_v<T, Tensor>) {
      if (member.defined()) found.push_back({path, &member});
    } else if constexpr (IsVector<T>::value) {
      for (std::size_t i = 0; i < member.size(); ++i)
        Collector{path, found}(std::to_string(i), member[i]);
    } else {
      member.members(Collector{path, found});
    }
  }
};

}  // namespace detail

/// Every defined parameter of a module with its path, in the order of `members`.
template <class M>
std::vector<Parameter> parameters(M& module) {
  std::vector<Parameter> found;
  module.members(detail::Collector{"", found});
  return found;
}

/// The number of elements in all parameters.
template <class M>
std::int64_t parameter_count(M& module) {
  std::int64_t count = 0;
  for (const Parameter& p : parameters(module)) count += p.tensor->size();
  return count;
}

/// The tensors of a module by path.
template <class M>
StateDict state_dict(M& module) {
  StateDict state;
  for (const Parameter& p : parameters(module)) state.emplace(p.name, *p.tensor);
  return state;
}

/// Where a parameter is in a checkpoint: the `part`-th of `parts` equal row blocks of the
/// tensor `name` (a fused projection [3 D, D] holds query, key and value as its parts 0, 1, 2).
struct Source {
  std::string name;
  int part = 0;
  int parts = 1;
};

struct LoadOptions {
  std::string file = "the checkpoint";  ///< its name in error messages
  std::function<Source(const std::string& path)> rename =
      {};  ///< from a module's path to the checkpoint's name
  std::function<bool(const std::string& name)> ignore =
      {};  ///< whether a name in the checkpoint is known and not needed
};

/// Fills the parameters from `state`, converted to their type. One UserError lists all missing and
/// unexpected names, each with the closest name, all wrong shapes, and what is foreign of the names
/// that are needed; nothing is changed then.
TENSOR_API void load(const std::vector<Parameter>& parameters, const StateDict& state,
                     const LoadOptions& options = {});
template <class M>
void load(M& module, const StateDict& state, const LoadOptions& options = {}) {
  load(parameters(module), state, options);
}

/// Fills every parameter with random numbers of a typical scale: normal / sqrt(fan in) for matrices
/// and kernels, near 1 for vectors named "weight", positive for variances, small for the rest.
TENSOR_API void randomize(const std::vector<Parameter>& parameters, std::uint64_t seed);
template <class M>
void randomize(M& module, std::uint64_t seed) {
  randomize(parameters(module), seed);
}

/// x · weightᵀ + bias: [..., in] to [..., out]; weight [out, in], bias [out].
struct Linear {
  Tensor weight, bias;
  static Linear sized(std::int64_t in, std::int64_t out, bool with_bias = true) {
    return {parameter({out, in}), with_bias ? parameter({out}) : Tensor()};
  }
  Tensor operator()(const Tensor& x) const { return linear(x, weight, bias); }
  void members(auto&& visit) { visit("weight", weight), visit("bias", bias); }
};

/// Normalizes the last axis; weight and bias [features].
struct LayerNorm {
  Tensor weight, bias;
  double eps = 1e-5;
  static LayerNorm sized(std::int64_t features, double eps = 1e-5) {
    return {parameter({features}), parameter({features}), eps};
  }
  Tensor operator()(const Tensor& x) const { return layer_norm(x, weight, bias, eps); }
  void members(auto&& visit) { visit("weight", weight), visit("bias", bias); }
};

/// [N, in, H, W] to [N, out, H', W'] (see conv2d); weight [out, in / groups, kh, kw], bias [out].
struct Conv2d {
  Tensor weight, bias;
  Conv2dOptions options;
  static Conv2d sized(std::int64_t in, std::int64_t out, Pair kernel,
                      const Conv2dOptions& options = {}, bool with_bias = true) {
    return {parameter({out, in / options.groups, kernel.h, kernel.w}),
            with_bias ? parameter({out}) : Tensor(), options};
  }
  Tensor operator()(const Tensor& x) const { return conv2d(x, weight, bias, options); }
  void members(auto&& visit) { visit("weight", weight), visit("bias", bias); }
};

/// Batch normalization for inference, over axis 1 of [N, features, ...]; all four are [features].
struct BatchNorm2d {
  Tensor weight, bias, running_mean, running_var;
  double eps = 1e-5;
  static BatchNorm2d sized(std::int64_t features, double eps = 1e-5) {
    return {parameter({features}), parameter({features}), parameter({features}),
            parameter({features}), eps};
  }
  Tensor operator()(const Tensor& x) const {
    return batch_norm(x, running_mean, running_var, weight, bias, eps);
  }
  /// y = x * scale + shift, each [features].
  struct ScaleShift {
    Tensor scale, shift;
  };
  ScaleShift fold() const {
    const Tensor scale = weight / sqrt(running_var + eps);
    return {scale, bias - running_mean * scale};
  }
  void members(auto&& visit) {
    visit("weight", weight), visit("bias", bias), visit("running_mean", running_mean),
        visit("running_var", running_var);
  }
};

/// Rows of weight [count, features] at integer positions [...], which gives [..., features].
/// UserError on a position that is out of bounds.
struct Embedding {
  Tensor weight;
  static Embedding sized(std::int64_t count, std::int64_t features) {
    return {parameter({count, features})};
  }
  Tensor operator()(const Tensor& positions) const { return take(weight, positions, 0); }
  void members(auto&& visit) { visit("weight", weight); }
};

/// Scaled dot-product attention over `heads` equal slices of the features, with projections of
/// [..., tokens, features]. UserError unless `heads` divides the features.
struct MultiheadAttention {
  Linear query, key, value, output;
  std::int64_t heads = 1;
  /// `with_bias` applies to query, key and value; `output` always has a bias.
  static MultiheadAttention sized(std::int64_t features, std::int64_t heads,
                                  bool with_bias = true) {
    const auto projection = [&](bool bias) { return Linear::sized(features, features, bias); };
    return {projection(with_bias), projection(with_bias), projection(with_bias), projection(true),
            heads};
  }
  /// q [..., queries, features], k and v [..., keys, features] give [..., queries, features]. The
  /// mask broadcasts to [..., heads, queries, keys]. It is added to the scores; a boolean mask
  /// keeps the scores where it is true.
  TENSOR_API Tensor operator()(const Tensor& q, const Tensor& k, const Tensor& v,
                               const Tensor& mask = {}) const;
  void members(auto&& visit) {
    visit("query", query), visit("key", key), visit("value", value), visit("output", output);
  }
};

/// Modules of one type, applied one after the other.
template <class M>
struct Sequential {
  std::vector<M> modules;
  Tensor operator()(Tensor x) const {
    for (const M& module : modules) x = module(x);
    return x;
  }
  void members(auto&& visit) {
    for (std::size_t i = 0; i < modules.size(); ++i) visit(std::to_string(i), modules[i]);
  }
};

}  // namespace tensor::nn
