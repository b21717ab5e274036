// calibrate: the scale of every product's activations, from what they are for examples.
#include <algorithm>
#include <cmath>
#include <utility>

#include "src/ops/eight_bits.h"
#include "src/ops/pack.h"
#include "src/runtime/eight_bit_error.h"
#include "tensor/compile.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// As of a row (src/ops/eight_bits.h), but of all of them.
float scale_of(const Tensor& activations, const std::string& name) {
  const auto largest = activations.size() > 0 ? max(abs(activations)).item<float>() : 0.0F;
  if (!std::isfinite(largest))
    fail("calibrate", "got activations of ", name, " that are not finite: need examples for which ",
         "they are, or exclude \"", name, "\"");
  return std::max(largest, kLeastMagnitude) / kMostByte;
}

}  // namespace

std::map<std::string, float> calibrate(const detail::TracedFunction& function,
                                       const std::vector<Tensor>& examples,
                                       CompileOptions options) {
  std::map<std::string, float> scales = std::exchange(options.scales, {});
  options.device = {}, options.devices = {}, options.whole_inputs = {};
  options.divide = Divide::batch;
  options.dtype = i8, options.tf32 = options.narrow_residuals = false, options.memory_limit = 0;
  options.fuse = false;  // products are not joined, and have names of their own
  const Executable executable = compile(function, examples, options);
  const Graph& graph = executable.program().laid.graph;
  watch_products(executable.program(), examples,
                 [&](std::size_t, ValueId product, const ConstView& rows) {
                   const std::string& name = name_of_product(graph, product, "calibrate");
                   float& scale = scales[name];
                   scale = std::max(scale, scale_of(packed(rows, f32), name));
                 });
  return scales;
}

}  // namespace tensor
