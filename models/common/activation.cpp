// Activations by name.
#include "models/common/activation.h"

#include <map>
#include <string>

#include "tensor/error.h"

namespace models {

using tensor::Tensor;

Tensor quick_gelu(const Tensor& x) { return x * tensor::sigmoid(1.702 * x); }

Activation activation_setting(const tensor::Json& settings, const char* key) {
  static const std::map<std::string, Activation> kActivations = {
      {"gelu", tensor::gelu},           {"gelu_new", tensor::gelu_tanh},
      {"gelu_tanh", tensor::gelu_tanh}, {"gelu_pytorch_tanh", tensor::gelu_tanh},
      {"quick_gelu", quick_gelu},       {"relu", tensor::relu},
      {"silu", tensor::silu},           {"swish", tensor::silu}};
  const auto found = kActivations.find(settings.text(key, "gelu"));
  if (found != kActivations.end()) return found->second;
  tensor::fail(settings[key].path(), "got \"", settings[key].text(),
               "\", need gelu, gelu_new, gelu_tanh, gelu_pytorch_tanh, quick_gelu, relu, silu or "
               "swish");
}

}  // namespace models
