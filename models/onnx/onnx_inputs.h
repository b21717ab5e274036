// Inputs of an ONNX model from the command line.
#pragma once

#include <string>
#include <vector>

#include "models/common/preprocess.h"
#include "tensor/nn.h"
#include "tensor/onnx.h"

namespace models::onnx {

/// What images are to such an input: how levels become numbers.
struct ImageRule {
  std::int64_t max_pixels = std::int64_t{1} << 26;
  Normalization normalization{.rescale = Normalization::Rescale::divide_255, .normalize = false};
};

/// An image u8 [H, W, 3] as an input [1, 3, h, w] or [1, h, w, 3], of u8 or a floating type;
/// resized where the model fixes height and width. UserError on other inputs.
tensor::Tensor image_input(const tensor::Tensor& image, const tensor::OnnxValue& value,
                           const ImageRule& rule);

struct NamedFile {
  std::string name, file;  // the name may be empty
};
/// "NAME=FILE" where the model has an input NAME, else a file alone.
NamedFile named_file(const std::string& argument, const tensor::OnnxModel& model);

/// The tensors of "NAME=FILE" (npy or an image), "FILE.npz" (arrays by name) and "FILE" (npy or an
/// image, for the only input that is left). UserError on names that are none, or come twice.
tensor::nn::StateDict read_inputs(const tensor::OnnxModel& model,
                                  const std::vector<std::string>& arguments, const ImageRule& rule);

/// The files that --calibrate means: `path` itself, or of a folder its npz files, or else its
/// images.
std::vector<std::string> calibration_files(const std::string& path);

/// The inputs of one of these files: arrays by name, or an image for the only input that takes
/// one. Inputs that the file lacks are `others`.
tensor::nn::StateDict example_inputs(const tensor::OnnxModel& model, const std::string& file,
                                     const ImageRule& rule, const tensor::nn::StateDict& others);

}  // namespace models::onnx
