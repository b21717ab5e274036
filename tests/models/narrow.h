// Reference checkpoints compiled in 16 or eight bits: every kernel against the reference operators,
// and the outputs against those that the reference implementation computed in float64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "src/trace/trace.h"
#include "tensor/compile.h"
#include "tests/models/golden.h"
#include "tests/models/programs.h"

namespace golden {

using tensor::Tensor;

inline void expect_verified(const tensor::Executable& executable,
                            const std::vector<Tensor>& inputs) {
  for (const tensor::GroupCheck& check : tensor::verify(executable, inputs))
    EXPECT_TRUE(check.ok()) << check.operators << " @ " << check.where << " [" << check.kernel
                            << "]: error " << check.error << " > " << check.bound;
}

/// Whether all rows wanted are among those got, in any order, within bound times the largest
/// magnitude.
inline bool has_rows(const Tensor& got, const Tensor& want, double bound) {
  const std::int64_t width = want.shape().back();
  const Tensor all = got.astype(tensor::f32).reshape({1, -1, width}),
               each = want.astype(tensor::f32).reshape({-1, 1, width});
  const double most = bound * tensor::max(tensor::abs(want)).item();
  const Tensor nearest = tensor::min(tensor::max(tensor::abs(all - each), -1), -1);
  return tensor::all(nearest <= most).item<bool>();
}

/// Both, of a folder.
inline void expect_right(const std::string& path, const tensor::CompileOptions& options) {
  const std::string name = std::filesystem::path(path).filename();
  SCOPED_TRACE(name);
  const auto program = program_of(name);
  program->open(path);
  const auto expected = tensor::load_safetensors(path + "/io.safetensors").tensors;
  // Without masks there is one image of DETR's.
  const bool is_masked = expected.contains("pixel_mask");
  const std::string prefix = is_masked ? "unmasked." : "";
  const Tensor all = expected.at("pixel_values");
  const std::vector<Tensor> inputs = {is_masked ? all(tensor::slice(0, 1)).copy() : all};

  std::vector<std::string> names;
  const auto function = [&](const std::vector<Tensor>& in) {
    std::vector<Tensor> outputs;
    names.clear();
    for (const auto& [key, value] : program->run({{"pixel_values", in[0]}}, {})) {
      names.push_back(key);
      outputs.push_back(value);
    }
    return outputs;
  };
  const tensor::Executable fast = tensor::compile(function, inputs, options);
  expect_verified(fast, inputs);
  // RT-DETR orders queries by their scores, so that bf16 may exchange some; in eight bits, and
  // in bf16 where a GPU sums in another order, it chooses others that are nearly as good.
  const bool chooses = name.starts_with("rt_detr");
  const bool is_bf16_on_gpu = options.dtype == tensor::bf16 && options.device.is_cuda();
  if (chooses && (options.dtype == tensor::i8 || is_bf16_on_gpu)) return;

  // A product of rounded operands is off by about eps of its size, since it is summed in float32.
  // These errors have either sign: those of n products in a row are sqrt(n) times as large, and
  // hardly one of some thousand values is off by more than four times that.
  double products = 0;
  const tensor::Graph graph = tensor::trace(function, {inputs[0].type()});
  for (const tensor::Node& node : graph.nodes())
    products += node.op == tensor::Op::matmul || node.op == tensor::Op::conv2d;
  // Eight bits: the largest number of a row, some four times as large as most, is 127 steps, and
  // the error of a step uniform. Rows and weights have it.
  const double epsilon = options.dtype == tensor::bf16  ? 0x1p-8
                         : options.dtype == tensor::f16 ? 0x1p-11
                                                        : 4.0 / 127 / std::sqrt(12) * std::sqrt(2);
  const std::vector<Tensor> got = fast(inputs);
  int compared = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto want = expected.find(prefix + names[i]);
    if (want == expected.end()) continue;
    const double bound = 4 * epsilon * std::sqrt(products);
    if (chooses && options.dtype == tensor::bf16)
      EXPECT_TRUE(has_rows(got[i], want->second, bound)) << names[i];
    else
      expect_close(got[i], want->second, names[i], bound);
    ++compared;
  }
  EXPECT_GE(compared, 1);
}

}  // namespace golden
