// Small checkpoints made on the spot.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/common/checkpoint.h"
#include "tensor/tensor.h"

namespace models::testing {

/// Every element the same.
inline void expect_same(const tensor::Tensor& got, const tensor::Tensor& expected) {
  ASSERT_EQ(got.shape(), expected.shape());
  EXPECT_EQ(got.to_vector<double>(), expected.to_vector<double>());
}

inline tensor::Json json(const std::string& text) {
  return tensor::Json::parse(text, "config.json");
}

/// A folder as open_checkpoint would return it.
inline Checkpoint checkpoint_of(const std::string& config, tensor::nn::StateDict tensors) {
  return {"DIR", json(config), {}, std::move(tensors)};
}

/// What a module with these parameters is called in a checkpoint, with fused parts put together.
inline tensor::nn::StateDict renamed(
    const std::vector<tensor::nn::Parameter>& parameters,
    const std::function<tensor::nn::Source(const std::string&)>& rename) {
  std::map<std::string, std::vector<tensor::Tensor>> parts;
  for (const tensor::nn::Parameter& p : parameters) {
    const tensor::nn::Source source = rename(p.name);
    std::vector<tensor::Tensor>& of_name = parts[source.name];
    of_name.resize(static_cast<std::size_t>(source.parts));
    of_name[static_cast<std::size_t>(source.part)] = *p.tensor;
  }
  tensor::nn::StateDict state;
  for (const auto& [name, tensors] : parts)
    state.emplace(name, tensors.size() == 1 ? tensors[0] : tensor::concatenate(tensors));
  return state;
}

}  // namespace models::testing
