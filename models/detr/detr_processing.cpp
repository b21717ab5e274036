// transformers' DetrImageProcessor: padding and post_process_object_detection.
#include "models/detr/detr_processing.h"

#include <algorithm>

#include "tensor/tensor.h"

namespace models::detr {

using tensor::Tensor;

Preprocessing default_preprocessing() {
  Preprocessing rule;
  rule.size = {SizeRule::Kind::shortest_edge, {}, 800, 1333};
  rule.normalization.mean = {0.485f, 0.456f, 0.406f};
  rule.normalization.std = {0.229f, 0.224f, 0.225f};
  rule.pad = true;
  return rule;
}

Batch make_batch(const std::vector<Tensor>& images, const Preprocessing& rule) {
  constexpr std::int64_t kMaxPixels = std::int64_t{1} << 26;
  if (rule.pad_size && rule.pad_size->height > kMaxPixels / rule.pad_size->width)
    tensor::fail("pad_size", "got ", rule.pad_size->height, " x ", rule.pad_size->width,
                 ", need at most ", kMaxPixels, " pixels");
  std::vector<Tensor> pixels;
  Size largest = rule.pad_size.value_or(Size{});
  for (const Tensor& image : images) {
    pixels.push_back(preprocess(image, rule));
    const std::int64_t height = pixels.back().shape(1), width = pixels.back().shape(2);
    if (rule.pad_size && (height > largest.height || width > largest.width))
      tensor::fail(kImage, "is ", width, " x ", height, " pixels after resizing, more than the ",
                   largest.width, " x ", largest.height,
                   " of pad_size in preprocessor_config.json");
    largest = {std::max(largest.height, height), std::max(largest.width, width)};
  }
  std::vector<Tensor> masks;
  bool padded = false;
  for (Tensor& image : pixels) {
    const std::int64_t below = largest.height - image.shape(1);
    const std::int64_t right = largest.width - image.shape(2);
    padded = padded || below > 0 || right > 0;
    const Tensor mask = tensor::ones({image.shape(1), image.shape(2)}, tensor::i64);
    masks.push_back(tensor::pad(mask, {{0, below}, {0, right}}));
    image = tensor::pad(image, {{0, 0}, {0, below}, {0, right}});
  }
  return {tensor::stack(pixels), padded ? tensor::stack(masks) : Tensor()};
}

BestClasses best_classes(const Tensor& logits) {
  const Tensor probabilities = tensor::softmax(logits)["..., :-1"];
  return {tensor::max(probabilities, -1), tensor::argmax(probabilities, -1)};
}

std::vector<Object> find_objects(const Tensor& logits, const Tensor& boxes, Size image,
                                 double threshold) {
  return find_objects(best_classes(logits), boxes, image, threshold);
}

std::vector<Object> find_objects(const BestClasses& best, const Tensor& boxes, Size image,
                                 double threshold) {
  const auto& [scores, labels] = best;
  const Tensor centre = boxes["::, :2"], half = boxes["::, 2:"] * 0.5;
  const auto width = static_cast<float>(image.width), height = static_cast<float>(image.height);
  const Tensor corners = tensor::concatenate({centre - half, centre + half}, 1) *
                         tensor::array({width, height, width, height});
  std::vector<Object> objects;
  for (std::int64_t q = 0; q < scores.size(); ++q) {
    // In f32 on both sides, as PyTorch compares: a score that rounds to the threshold is not above.
    if (!(scores.item<float>(q) > static_cast<float>(threshold))) continue;
    objects.push_back(
        {labels.item<std::int64_t>(q),
         scores.item(q),
         {corners.item(q, 0), corners.item(q, 1), corners.item(q, 2), corners.item(q, 3)}});
  }
  std::ranges::stable_sort(objects, std::greater(), &Object::score);
  return objects;
}

}  // namespace models::detr
