// Convolutions on the cores for plain arithmetic: float32 exactly, and whatever else there is.
#include <algorithm>

#include "src/kernels/cuda/conv.h"

namespace tensor::cuda {
namespace {

std::int64_t ceil_div(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

// The problem as it stands: any steps, nothing packed.
TensorProblem plain_problem(const LaidOutGraph& laid, const Group& group, const Convolution& conv) {
  TensorProblem p;
  p.channels = conv.channels;
  p.size = conv.size, p.taps = conv.taps, p.stride = conv.stride, p.padding = conv.padding,
  p.dilation = conv.dilation;
  p.steps = image_steps(laid, conv.image);
  p.image = operand_pointer(laid, group, conv.image);
  return p;
}

std::string types_text(const LaidOutGraph& laid, const Convolution& conv) {
  const auto type = [&](ValueId id) { return std::string(device_type(laid.graph.type(id).dtype)); };
  return "  using Image = " + type(conv.image) + ";\n  using Weight = " + type(conv.weight) +
         ";\n  using Sum = " + (conv.dtype == f64 ? "double" : "float") + ";\n";
}

std::string name_of(const char* how, const Convolution& conv) {
  return (conv.is_transposed ? "conv_transpose_" : "conv_") + std::string(name(conv.dtype)) + "_" +
         std::to_string(conv.taps.h) + "x" + std::to_string(conv.taps.w) + "_" + how;
}

// ---- Tiles.

constexpr int kTilePixels = 128, kDepthStep = 8;  // device/conv_plain.h

struct Tiling {
  int outputs = 64, parts = 1;
  double microseconds = 0;
};

Tiling choose_tiling(const Graph& graph, const Group& group, const Convolution& conv,
                     const Machine& machine) {
  Tiling best;
  for (const int outputs : {64, 128})
    for (const int parts : {1, 2, 4, 8}) {
      if (parts > 1 && conv.depth() / kDepthStep / parts < 16) continue;
      // What loads from shared memory leave of the rate: three or four for 32 or 64 products.
      const double tflops = (outputs == 64 ? 0.6 : 0.8) * machine.f32_tflops;
      const double time = tiles_us(graph, group, conv, machine,
                                   {kTilePixels, outputs, parts, conv.depth(), tflops, 2, 64});
      if (best.microseconds == 0 || time < best.microseconds) best = {outputs, parts, time};
    }
  return best;
}

std::optional<double> estimate_tiled(const Graph& graph, const Group& group,
                                     const Convolution& conv, const Machine& machine) {
  if (conv.dtype == f64 || !conv.is_constant || conv.groups != 1 || conv.is_transposed)
    return std::nullopt;
  return choose_tiling(graph, group, conv, machine).microseconds;
}

Lowered lower_tiled(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
                    const Machine& machine) {
  const TensorProblem problem = plain_problem(laid, group, conv);
  const Tiling tiling = choose_tiling(laid.graph, group, conv, machine);
  const std::int64_t row = ceil_div(conv.outputs, tiling.outputs) * tiling.outputs;
  Lowered lowered;
  lowered.packed.push_back(
      {operand_pointer(laid, group, conv.weight).index,
       [row, outputs = conv.outputs, depth = conv.depth()](const Tensor& w) {
         const Tensor x = reshape(transpose(w, {2, 3, 1, 0}), {depth, outputs});
         return pad(x, {{0, 0}, {0, row - outputs}}).copy();
       }});
  ConvLaunch launch;
  launch.parts = tiling.parts;
  launch.header = "conv_plain.h";
  launch.text = "struct Problem {\n" + types_text(laid, conv) + problem_text(conv, problem) +
                constant_text("kWeightRow", row) + constant_text("kTileOutputs", tiling.outputs) +
                constant_text("kParts", launch.parts) + "};\n";
  launch.run = "ConvPlain<Problem, E>::run(image, weights, epilogue, part);";
  launch.parameters = {"const Problem::Image* image", "const Problem::Weight* weights"};
  launch.arguments = {problem.image, Pointer{Pointer::Base::packed, 0, 0}};
  launch.blocks = ceil_div(conv.pixels(), kTilePixels) * (row / tiling.outputs);
  launch.resident = 2;
  add_calls(lowered, launch, conv, conv_epilogue(laid, group, conv),
            name_of(tiling.outputs == 64 ? "tiled_128x64x8" : "tiled_128x128x8", conv) +
                (launch.parts > 1 ? "_k" + std::to_string(launch.parts) : ""),
            machine);
  lowered.description = lowered.calls.front().entry;
  return lowered;
}

// ---- A loop.

std::optional<double> estimate_direct(const Graph& graph, const Group& group,
                                      const Convolution& conv, const Machine& machine) {
  // Every multiplication reads two numbers, mostly from the first-level cache.
  const Work work = work_of(graph, group);
  const double rate = (conv.dtype == f64 ? 0.01 : 0.04) * machine.f32_tflops;
  return machine.launch_us + 2 +
         std::max(work.flops / rate / 1e6, work.bytes / machine.memory_gbps / 1e3);
}

Lowered lower_direct(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
                     const Machine& machine) {
  TensorProblem problem = plain_problem(laid, group, conv);
  const ImageSteps w = image_steps(laid, conv.weight);
  const bool turned = conv.is_transposed;
  ConvLaunch launch;
  launch.header = "conv_plain.h";
  launch.text = "struct Problem {\n" + types_text(laid, conv) + problem_text(conv, problem) +
                constant_text("kGroupChannels", conv.channels / conv.groups) +
                constant_text("kGroupOutputs", conv.outputs / conv.groups) +
                constant_text("kOutputStep", turned ? w.channel : w.image) +
                constant_text("kInputStep", turned ? w.image : w.channel) +
                constant_text("kTapRowStep", w.row) + constant_text("kTapColumnStep", w.column) +
                "  static constexpr bool kIsTransposed = " + (turned ? "true" : "false") +
                ";\n};\n";
  launch.run = "convolve_directly<Problem>(image, weights, epilogue);";
  launch.parameters = {"const Problem::Image* image", "const Problem::Weight* weights"};
  launch.arguments = {problem.image, operand_pointer(laid, group, conv.weight)};
  launch.blocks = ceil_div(conv.pixels() * conv.outputs, launch.threads);
  Lowered lowered;
  add_calls(lowered, launch, conv, conv_epilogue(laid, group, conv), name_of("direct", conv),
            machine);
  lowered.description = lowered.calls.back().entry;
  return lowered;
}

}  // namespace

const ConvWay kConvTiled = {estimate_tiled, lower_tiled};
const ConvWay kConvDirect = {estimate_direct, lower_direct};

}  // namespace tensor::cuda
