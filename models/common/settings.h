// What a reader knows of the keys of a settings file (config.json, preprocessor_config.json), so
// that it passes nothing over: a key is used, or has no bearing on the result, or must have the one
// value that is computed; all others are refused by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tensor/json.h"

namespace models {

/// A key that may only have certain values, each as in JSON: R"("vit")", "true", "0".
struct FixedSetting {
  std::string_view key;
  std::vector<std::string_view> values;
};

/// UserError unless the key is absent, null or has one of the values.
void require_setting(const tensor::Json& settings, const FixedSetting& fixed);

struct KnownSettings {
  std::vector<std::string_view> used;      // read, or compared with the tensors
  std::vector<std::string_view> harmless;  // besides transformers' and timm's bookkeeping
  std::vector<FixedSetting> fixed;
};

/// UserError on a key of the object that is not known, and on a fixed one with another value. What
/// begins with "_" is a program's note to itself and has no bearing; null is as good as absent.
void check_settings(const tensor::Json& settings, const KnownSettings& known);

}  // namespace models
