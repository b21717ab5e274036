// Features: what a model without classes makes of images, for --output.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tensor/nn.h"

namespace models {

/// Tensors by name, with a row an image.
class Features {
 public:
  /// UserError if the file is one of the images.
  Features(const std::string& path, const std::vector<std::string>& images);

  /// Takes those of the next image, each [1, ...]. UserError where they are not like those of the
  /// images before.
  void add(const tensor::nn::StateDict& features);
  void save() const;

 private:
  std::string path_;
  std::map<std::string, std::vector<tensor::Tensor>> rows_;
};

}  // namespace models
