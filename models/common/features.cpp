// Collecting features, and writing them.
#include "models/common/features.h"

#include "models/common/preprocess.h"
#include "models/common/read_files.h"
#include "tensor/io.h"
#include "tensor/tensor.h"

namespace models {

using tensor::Tensor;
using tensor::nn::StateDict;

Features::Features(const std::string& path, const std::vector<std::string>& images) : path_(path) {
  if (path_.empty()) return;
  ReadFiles("input image", images).refuse_to_overwrite("--output", path_, "file");
}

void Features::add(const StateDict& features) {
  for (const auto& [name, value] : features) {
    std::vector<Tensor>& rows = rows_[name];
    if (!rows.empty() && rows[0].shape() != value.shape())
      tensor::fail(kImage, "gives ", name, " of ", value.shape(), ", but images before it ",
                   rows[0].shape(), ": give those of one size alone");
    rows.push_back(value.to("cpu").copy());
  }
}

void Features::save() const {
  StateDict all;
  for (const auto& [name, rows] : rows_) all.emplace(name, tensor::concatenate(rows, 0));
  tensor::save_safetensors(path_, all);
}

}  // namespace models
