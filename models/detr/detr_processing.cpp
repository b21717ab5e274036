// transformers' DetrImageProcessor: padding and post_process_object_detection.
#include "models/detr/detr_processing.h"

#include <algorithm>

#include "tensor/tensor.h"

namespace models::detr {

using tensor::Tensor;

Preprocessing default_preprocessing() {
  Preprocessing rule;
  rule.size = {SizeRule::Kind::shortest_edge, {}, 800, 1333};
  rule.normalization.mean = kImageNet.mean;
  rule.normalization.std = kImageNet.std;
  rule.pad = true;
  return rule;
}

std::vector<ProcessorClass> processors() {
  std::vector<ProcessorClass> classes;
  for (const char* name : {"Detr", "ConditionalDetr", "DeformableDetr"})
    classes.push_back({.name = name, .defaults = default_preprocessing(), .square = false});
  return classes;
}

Size padded_size(Size image, const Preprocessing& rule) {
  if (rule.pad_size) return *rule.pad_size;
  const std::int64_t n = std::max<std::int64_t>(rule.pad_multiple, 1);
  return {(image.height + n - 1) / n * n, (image.width + n - 1) / n * n};
}

namespace {

/// Images in one tensor, padded at the bottom and the right with zeros to the largest of them, or
/// to rule.pad_size or a multiple of rule.pad_multiple; and 1 where each is, undefined without any
/// padding if there is no such multiple. `rows`: which axis of an image its rows are, the columns
/// are the next.
std::pair<Tensor, Tensor> pad_images(std::vector<Tensor> images, int rows,
                                     const Preprocessing& rule) {
  constexpr std::int64_t kMaxPixels = std::int64_t{1} << 26;
  if (rule.pad_size && rule.pad_size->height > kMaxPixels / rule.pad_size->width)
    tensor::fail("pad_size", "got ", rule.pad_size->height, " x ", rule.pad_size->width,
                 ", need at most ", kMaxPixels, " pixels");
  Size largest = rule.pad_size.value_or(Size{});
  for (const Tensor& image : images) {
    const std::int64_t height = image.shape(rows), width = image.shape(rows + 1);
    if (rule.pad_size && (height > largest.height || width > largest.width))
      tensor::fail(kImage, "is ", width, " x ", height, " pixels after resizing, more than the ",
                   largest.width, " x ", largest.height,
                   " of pad_size in preprocessor_config.json");
    largest = {std::max(largest.height, height), std::max(largest.width, width)};
  }
  largest = padded_size(largest, rule);
  std::vector<Tensor> masks;
  bool padded = rule.pad_multiple > 0;
  for (Tensor& image : images) {
    const std::int64_t height = image.shape(rows), width = image.shape(rows + 1);
    const std::int64_t below = largest.height - height, right = largest.width - width;
    padded = padded || below > 0 || right > 0;
    const Tensor mask = tensor::ones({height, width}, tensor::i64);
    masks.push_back(tensor::pad(mask, {{0, below}, {0, right}}));
    std::vector<std::pair<std::int64_t, std::int64_t>> around(3);
    around[static_cast<std::size_t>(rows)].second = below;
    around[static_cast<std::size_t>(rows) + 1].second = right;
    image = tensor::pad(image, around);
  }
  return {tensor::stack(images), padded ? tensor::stack(masks) : Tensor()};
}

}  // namespace

Batch make_batch(const std::vector<Tensor>& images, const Preprocessing& rule) {
  std::vector<Tensor> pixels;
  for (const Tensor& image : images) pixels.push_back(preprocess(image, rule));
  const auto [batch, mask] = pad_images(std::move(pixels), 1, rule);
  return {batch, mask};
}

Levels make_levels(const Tensor& image, const Preprocessing& rule) {
  const auto [batch, mask] = pad_images({fit_levels(image, rule)}, 0, rule);
  return {batch, mask};
}

Tensor normalize_levels(const Levels& batch, const Preprocessing& rule) {
  const Tensor pixels = models::normalize_levels(batch.levels, rule.normalization);
  if (!batch.pixel_mask.defined()) return pixels;
  return tensor::where(batch.pixel_mask.expand_dims(1) != 0, pixels, 0);
}

BestClasses best_classes(const Tensor& logits) {
  const Tensor probabilities = tensor::softmax(logits)["..., :-1"];
  return {tensor::max(probabilities, -1), tensor::argmax(probabilities, -1)};
}

BestObjects best_pairs(const Tensor& logits, const Tensor& boxes) {
  const std::int64_t queries = logits.shape(1), classes = logits.shape(2);
  const Tensor pairs = tensor::sigmoid(logits).reshape({logits.shape(0), queries * classes});
  const auto [scores, places] = tensor::topk(pairs, queries);
  const Tensor query = tensor::floor_divide(places, classes).expand_dims(-1);
  return {{scores, tensor::remainder(places, classes)}, tensor::gather_nd(boxes, query, 1)};
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
