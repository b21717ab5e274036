#include "models/onnx/onnx_inputs.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "models/common/list_images.h"
#include "models/common/text.h"
#include "tensor/io.h"
#include "tensor/ops.h"

namespace models::onnx {

using tensor::Tensor;
using tensor::nn::StateDict;

namespace {

const tensor::OnnxValue* find_input(const tensor::OnnxModel& model, const std::string& name) {
  const auto found = std::ranges::find(model.inputs(), name, &tensor::OnnxValue::name);
  return found == model.inputs().end() ? nullptr : &*found;
}

std::string names_of(const tensor::OnnxModel& model) {
  std::vector<std::string> names;
  for (const tensor::OnnxValue& value : model.inputs()) names.push_back(value.name);
  return joined(names, ", ");
}

std::int64_t extent_of(const tensor::OnnxValue& value, std::size_t axis) {
  return (*value.shape)[axis].extent;
}

bool takes_one_item_of_four_axes(const tensor::OnnxValue& value) {
  return value.shape && value.shape->size() == 4 && extent_of(value, 0) <= 1 &&
         (value.dtype == tensor::u8 || is_floating(value.dtype));
}

/// An image (1, 3, height, width).
bool takes_planes(const tensor::OnnxValue& value) {
  return takes_one_item_of_four_axes(value) &&
         (extent_of(value, 1) == 3 || (extent_of(value, 1) < 0 && extent_of(value, 3) != 3));
}

bool takes_image(const tensor::OnnxValue& value) {
  return takes_planes(value) || (takes_one_item_of_four_axes(value) && extent_of(value, 3) == 3);
}

}  // namespace

Tensor image_input(const Tensor& image, const tensor::OnnxValue& value, const ImageRule& rule) {
  const auto extent = [&](std::size_t axis) { return extent_of(value, axis); };
  const bool is_planar = takes_planes(value);
  if (!takes_image(value))
    tensor::fail("inputs", "an image was given for the input ", value,
                 ", need one of (1, 3, height, width) or (1, height, width, 3) of u8 or a floating "
                 "type: make an npy file");
  const std::int64_t height = extent(is_planar ? 2 : 1), width = extent(is_planar ? 3 : 2);
  const std::int64_t h = height < 0 ? image.shape(0) : height;
  const std::int64_t w = width < 0 ? image.shape(1) : width;
  check_resized({image.shape(0), image.shape(1)}, {h, w});
  const bool fits = h == image.shape(0) && w == image.shape(1);
  const Tensor levels = fits ? image : resize_pillow(image, h, w);
  const bool is_levels = value.dtype == tensor::u8;
  const Tensor planes =
      is_levels ? levels.transpose({2, 0, 1}) : normalize(levels, rule.normalization);
  const Tensor x = is_planar ? planes : planes.transpose({1, 2, 0});
  return x.copy().to(value.dtype).expand_dims(0);
}

NamedFile named_file(const std::string& argument, const tensor::OnnxModel& model) {
  // A name may have "=" in it, and so may a file's.
  for (std::size_t at = argument.find('='); at != std::string::npos;
       at = argument.find('=', at + 1))
    if (find_input(model, argument.substr(0, at)))
      return {argument.substr(0, at), argument.substr(at + 1)};
  return {"", argument};
}

StateDict read_inputs(const tensor::OnnxModel& model, const std::vector<std::string>& arguments,
                      const ImageRule& rule) {
  StateDict inputs;
  const auto add = [&](const std::string& name, const Tensor& x) {
    if (!find_input(model, name))
      tensor::fail("inputs", "there is no input \"", name, "\", need ", names_of(model));
    if (!inputs.emplace(name, x).second)
      tensor::fail("inputs", "the input \"", name, "\" was given twice");
  };
  const auto read = [&](const std::string& name, const std::string& file) {
    if (lower(file).ends_with(".npy")) return add(name, tensor::load_npy(file));
    add(name,
        image_input(tensor::load_image(file, rule.max_pixels), *find_input(model, name), rule));
  };
  std::vector<std::string> unnamed;
  for (const std::string& argument : arguments) {
    const auto [name, file] = named_file(argument, model);
    if (lower(file).ends_with(".npz")) {
      if (!name.empty())
        tensor::fail("inputs", "an npz file names its arrays itself: write ", file, " alone");
      for (const auto& [array, x] : tensor::load_npz(file)) add(array, x);
    } else if (name.empty()) {
      unnamed.push_back(file);
    } else {
      read(name, file);
    }
  }
  for (const std::string& file : unnamed) {
    std::vector<std::string> left;
    for (const tensor::OnnxValue& value : model.inputs())
      if (!inputs.contains(value.name)) left.push_back(value.name);
    if (left.size() != 1)
      tensor::fail("inputs", "got ", file, " without a name, and the inputs ", joined(left, ", "),
                   " are left: write NAME=", file);
    read(left[0], file);
  }
  return inputs;
}

std::vector<std::string> calibration_files(const std::string& path) {
  std::vector<std::string> arrays;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    if (lower(entry.path().string()).ends_with(".npz")) arrays.push_back(entry.path().string());
  std::sort(arrays.begin(), arrays.end());
  if (!arrays.empty()) return arrays;
  if (lower(path).ends_with(".npz")) return {path};
  return list_images({path}).files;
}

StateDict example_inputs(const tensor::OnnxModel& model, const std::string& file,
                         const ImageRule& rule, const StateDict& others) {
  std::vector<std::string> takers;
  for (const tensor::OnnxValue& value : model.inputs())
    if (takes_image(value)) takers.push_back(value.name);
  const bool has_names = lower(file).ends_with(".npz");
  if (!has_names && takers.size() != 1)
    tensor::fail("--calibrate", "got the image ", file, ", but ", takers.size(),
                 " of the model's inputs take one: need exactly one, or an npz file of arrays");
  StateDict inputs = read_inputs(model, {has_names ? file : takers[0] + "=" + file}, rule);
  inputs.insert(others.begin(), others.end());
  return inputs;
}

}  // namespace models::onnx
