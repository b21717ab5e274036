// What --info prints: parts of a model with their parameters and multiply-adds, and its memory.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "models/common/preprocess.h"
#include "tensor/nn.h"
#include "tensor/shape.h"

namespace models {

struct InfoRow {
  std::string part;         // "encoder"
  std::int64_t layers = 1;  // how many alike; parameters and macs are those of all of them
  std::int64_t parameters = 0;
  std::int64_t macs = 0;  // multiply-adds of one image; convolutions and matrix products only
};

struct Info {
  std::string model;  // "vit-base-patch16-224"
  std::string input;  // "1 x 3 x 224 x 224"
  std::vector<InfoRow> rows;
  std::int64_t peak_activations = 0;  // elements alive at once, an estimate

  std::int64_t parameters() const;
  std::int64_t macs() const;
};

/// "1 x 3 x 224 x 224".
std::string shape_text(std::int64_t channels, Size image);
/// Multiply-adds of x [tokens, in] by [in, out].
std::int64_t linear_macs(std::int64_t tokens, std::int64_t in, std::int64_t out);
/// Of a convolution with kernel [out, in, kh, kw] that gives out_h x out_w positions.
std::int64_t conv2d_macs(const tensor::Shape& kernel, std::int64_t out_h, std::int64_t out_w);
/// Of q · kᵀ and scores · v over `width` features in all heads.
std::int64_t attention_macs(std::int64_t queries, std::int64_t keys, std::int64_t width);

/// Multiply-adds of a layer of attention and an MLP whose matrices have so many weights in all.
std::int64_t transformer_macs(std::int64_t tokens, std::int64_t width, std::int64_t mlp_weights);
/// Elements alive at once in such a layer: x and its norm, and either queries, keys and values with
/// two copies of the scores, or the MLP's inner features before and after the activation.
std::int64_t transformer_peak(std::int64_t tokens, std::int64_t width, std::int64_t heads,
                              std::int64_t inner);

/// Adds a convolution to `row`; returns the size of its result.
Size add_conv(InfoRow& row, const tensor::nn::Conv2d& conv, Size in);
/// Adds the rows of the last norm and, where there is one, of the classifier.
void add_head(Info& info, tensor::nn::LayerNorm& norm, tensor::nn::Linear& classifier);

/// A table with totals and memory in MiB (f32).
void print_info(std::ostream& out, const Info& info);

}  // namespace models
