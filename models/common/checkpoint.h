// A checkpoint folder: config.json, perhaps preprocessor_config.json, and the tensors of one or
// more safetensors files. Everything in it is checked, because a folder may come from anywhere.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tensor/json.h"
#include "tensor/nn.h"

namespace models {

/// What a program takes: images, or tensors made of them already, for which no rule is needed of
/// how to make them.
enum class Takes { images, tensors };

struct Checkpoint {
  std::string folder;
  tensor::Json config;                       // config.json
  std::optional<tensor::Json> preprocessor;  // preprocessor_config.json, if images are taken
  tensor::nn::StateDict tensors;             // as stored (any type, read-only), wrappers stripped
  Takes takes = Takes::images;

  /// Whether there is something of that name, if no tensor: then `at` says what it is.
  bool has(const std::string& name) const {
    return tensors.contains(name) || tensors.foreign.contains(name);
  }
  /// A tensor of the given rank; UserError otherwise.
  const tensor::Tensor& at(const std::string& name, int rank) const;
  /// How many of "<prefix>0.", "<prefix>1.", ... have tensors, up to the first gap. UserError if
  /// they are more than any model has.
  std::int64_t count(const std::string& prefix) const;
  /// UserError unless `settings` (config.json or a part of it) lacks `key` or has this value there,
  /// which the shapes of `proof` ("position embeddings") give.
  void agree(const tensor::Json& settings, std::string_view key, std::int64_t value,
             std::string_view proof) const;
  /// Without the beginning that all names have; the same if one has it not.
  Checkpoint stripped(std::string_view beginning) const;
  /// What a norm adds to a variance: a number of config.json above 0 and at most 1.
  double epsilon(std::string_view key, double fallback) const;
};

inline constexpr std::string_view kConfigHint =
    ": a checkpoint folder has config.json and model.safetensors";

/// Opens model.safetensors, or the shards that model.safetensors.index.json lists. Names that all
/// begin with what a training program wraps models in ("module.", "model.") lose that beginning.
/// Without a config.json the message ends with the hint.
Checkpoint open_checkpoint(const std::string& folder, std::string_view config_hint = kConfigHint,
                           Takes takes = Takes::images);

}  // namespace models
