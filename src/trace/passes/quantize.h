// Products in eight bits.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/trace/graph.h"
#include "src/trace/passes/byte_weights.h"

namespace tensor {

/// f32 matmuls by constant weights become quantized_matmul (src/ops/eight_bits.h), with a scale for
/// every column of the weights, and convolutions without groups quantized_conv2d, where a column is
/// a filter, and a row what it lies on. These stay float32:
///
///   - the first product of what the caller gives, such as a patch embedding: no other has made its
///     rows;
///   - heads: products of which the caller gets the result, or what is computed of it alone;
///   - those at places of the model that match a pattern of `wide`, where * stands for any text;
///   - those with fewer than 16 columns or rows of fewer than 16 numbers, or of more than
///     kMostByteDepth, and weights that are not finite.
///
/// Rows that the function itself has rounded to i8 or u8, with one scale and a zero for all of them
/// (ONNX's QuantizeLinear and DequantizeLinear), are multiplied as they are, of the first product
/// and of heads, too.
///
/// Where such products alone, or other products by constants, read a layer_norm, its channels are
/// balanced first: the weight and bias of channel j are divided by s_j = sqrt(a_j / m_j), and the
/// weights that meet it multiplied. a_j = 3 |weight_j| + |bias_j| is how large it gets (a
/// normalized number seldom exceeds 3), and m_j the largest magnitude among those weights. What is
/// large only because it is multiplied by little is no outlier then: a factor of the norm that the
/// weights take back changes nothing but roundings of float32.
///
/// With `norms_only`, for machines on which kernels that make rows round them: products of rows
/// that a layer_norm makes, or what follows it element by element. Others would need a kernel more,
/// which costs what eight bits gain, or more, below some 1,500 columns. Convolutions stay as they
/// are, but for those with a scale of images whose channels are a multiple of `channels`, for which
/// there is a kernel if that is not 0.
///
/// Products that `scales` names get activations that are rounded by this one scale, by add_rounding
/// (round_rows.h) where they are made; with `norms_only` products of any rows may have one.
///
/// UserError for a pattern or a name that no product matches, and for scales that are no numbers
/// above zero.
/// Test: tests/trace/quantize_test.cpp.
Graph quantize_products(const Graph& graph, const std::vector<std::string>& wide,
                        bool norms_only = false, const Quantize& quantized = &quantize,
                        const std::map<std::string, float>& scales = {}, std::int64_t channels = 0);

/// Whether the text is the pattern with any texts in place of *.
bool matches(std::string_view text, std::string_view pattern);

}  // namespace tensor
