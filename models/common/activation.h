// Activations of MLPs, by the names that config.json has for them.
#pragma once

#include "tensor/json.h"
#include "tensor/ops.h"

namespace models {

using Activation = tensor::Tensor (*)(const tensor::Tensor&);

/// x sigmoid(1.702 x), CLIP's.
tensor::Tensor quick_gelu(const tensor::Tensor& x);

/// The one that settings name, gelu where they say nothing; UserError on any other name.
Activation activation_setting(const tensor::Json& settings, const char* key);

}  // namespace models
