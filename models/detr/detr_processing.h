// What stands around DETR: several images as one padded batch with its mask, and the objects in
// what DETR returns.
#pragma once

#include <array>
#include <vector>

#include "models/common/processors.h"

namespace models::detr {

/// Hugging Face's defaults for facebook/detr-*: the short side to 800, the long one at most 1333.
Preprocessing default_preprocessing();
/// The classes of transformers that prepare images so: DetrImageProcessor and its copies.
std::vector<ProcessorClass> processors();

struct Batch {
  tensor::Tensor pixel_values;  // f32 [B, 3, H, W]
  tensor::Tensor
      pixel_mask;  // i64 [B, H, W], 1 on the image and 0 on padding; undefined without any
};

/// What an image of this size is padded to by itself.
Size padded_size(Size image, const Preprocessing& rule);

/// Preprocesses u8 images [H, W, 3] and pads them at the bottom and the right with zeros to the
/// largest of them, to multiples of rule.pad_multiple (with a mask in any case) or to
/// rule.pad_size.
Batch make_batch(const std::vector<tensor::Tensor>& images, const Preprocessing& rule);

/// The same of one image for a GPU, which normalizes: the padding is of any level, and the mask
/// says where it is.
struct Levels {
  tensor::Tensor levels;      // u8 [1, H, W, 3]
  tensor::Tensor pixel_mask;  // as above, [1, H, W]
};
Levels make_levels(const tensor::Tensor& image, const Preprocessing& rule);
/// f32 [1, 3, H, W] of them: 0 where the mask, if there is one, is 0.
tensor::Tensor normalize_levels(const Levels& batch, const Preprocessing& rule);

struct Object {
  std::int64_t label = 0;
  double score = 0;
  std::array<double, 4> box{};  // left, top, right, bottom in pixels of the original image
};

/// The queries of one image whose best class scores above `threshold`, best first. logits
/// [queries, classes + 1] with "no object" last, boxes [queries, 4] as DETR returns them.
std::vector<Object> find_objects(const tensor::Tensor& logits, const tensor::Tensor& boxes,
                                 Size image, double threshold);

/// What it needs of logits [..., queries, classes + 1], in operators that can be traced: every
/// query's best class but "no object", and its probability.
struct BestClasses {
  tensor::Tensor scores, labels;  // f32 and i64 [..., queries]
};
BestClasses best_classes(const tensor::Tensor& logits);

/// What is left of a model's queries, and where it is.
struct BestObjects {
  BestClasses classes;
  tensor::Tensor boxes;  // [..., queries, 4]
};
/// The same of logits [B, queries, classes] where every class has a probability of its own: the
/// best pairs of a query and a class, as many as there are queries, with the boxes of the queries.
BestObjects best_pairs(const tensor::Tensor& logits, const tensor::Tensor& boxes);

std::vector<Object> find_objects(const BestClasses& best, const tensor::Tensor& boxes, Size image,
                                 double threshold);

}  // namespace models::detr
