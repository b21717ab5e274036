// A checkpoint folder: config.json, perhaps preprocessor_config.json, and the tensors of one or
// more safetensors files. Everything in it is checked, because a folder may come from anywhere.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tensor/json.h"
#include "tensor/nn.h"

namespace models {

struct Checkpoint {
  std::string folder;
  tensor::Json config;                       // config.json
  std::optional<tensor::Json> preprocessor;  // preprocessor_config.json
  tensor::nn::StateDict tensors;             // as stored (any type, read-only), wrappers stripped

  bool has(const std::string& name) const { return tensors.contains(name); }
  /// A tensor of the given rank; UserError otherwise, with the closest name if there is none.
  const tensor::Tensor& at(const std::string& name, int rank) const;
  /// How many of "<prefix>0.", "<prefix>1.", ... have tensors, up to the first gap.
  std::int64_t count(const std::string& prefix) const;
  /// UserError unless config.json either lacks `key` or gives it this value, which `tensor` proves.
  void agree(std::string_view key, std::int64_t value, std::string_view tensor) const;
};

/// Opens model.safetensors, or the shards that model.safetensors.index.json lists. Names that all
/// begin with "state_dict.", "model." or "module." lose that beginning.
Checkpoint open_checkpoint(const std::string& folder);

}  // namespace models
