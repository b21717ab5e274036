// Convolutions of 16-bit operands, or of float32 ones rounded to tf32, with mma.sync on every GPU
// whose Tensor Cores have it.
#include <algorithm>
#include <limits>

#include "src/kernels/cuda/conv.h"
#include "src/kernels/cuda/gemm_mma.h"

namespace tensor::cuda {
namespace {

constexpr std::int64_t kRowBytes = 64;  // of depth in a tile, as in device/conv_mma.h

std::int64_t block_of(const Convolution& conv) { return kRowBytes / item_size(conv.dtype); }

struct Schedule {
  int pixels, outputs, warps_y, warps_x;
  double efficiency;  // the share of mma.sync's rate that a tile of this size reaches
  int parts = 1;
};

constexpr Schedule kSchedules[] = {{128, 128, 2, 4, 1},   {128, 64, 4, 2, 0.85},
                                   {64, 128, 2, 4, 0.85}, {64, 64, 2, 2, 0.7},
                                   {128, 32, 4, 1, 0.6},  {32, 64, 1, 2, 0.5}};
constexpr int kParts[] = {1, 2, 3, 4, 6, 8};

std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

int threads(const Schedule& s) { return 32 * s.warps_y * s.warps_x; }
// Where loads go through registers, a thread needs more of them.
int resident(const Schedule& s, const Machine& machine) {
  return std::min((machine.device.capability < 80 ? 384 : 512) / threads(s), 4);
}

// As many as the blocks of a multiprocessor have room for, which keep a little for themselves.
int stages_of(const Schedule& s, const Machine& machine) {
  if (machine.device.capability < 80) return 2;
  const std::int64_t stage = (s.pixels + s.outputs) * kRowBytes;
  const std::int64_t room = std::min(machine.device.shared_block_bytes,
                                     machine.device.shared_bytes / resident(s, machine) - 1024);
  return static_cast<int>(std::clamp<std::int64_t>(room / stage, 3, 6));
}

struct Choice {
  Schedule schedule;
  double microseconds = std::numeric_limits<double>::infinity();
};

Choice choose(const Graph& graph, const Group& group, const Convolution& conv,
              const Machine& machine) {
  const double tflops = mma_tflops(multiplier_of(conv.dtype, conv.is_tf32, machine), machine);
  const std::int64_t block = block_of(conv), depth = round_up(product_depth(graph, conv), block);
  Choice best;
  for (Schedule s : kSchedules)
    for (const int parts : kParts) {
      if (parts > 1 && depth / block / parts < 8) continue;
      s.parts = parts;
      const int stages = stages_of(s, machine);
      const double time =
          tiles_us(graph, group, conv, machine,
                   {s.pixels, s.outputs, parts, depth, s.efficiency * tflops, resident(s, machine),
                    (s.pixels + s.outputs) * 0.0625 * (stages - 1)});
      if (time < best.microseconds) best = {s, time};
    }
  return best;
}

std::int64_t shared_bytes(const Schedule& s, int stages) {
  const std::int64_t tiles = stages * (s.pixels + s.outputs) * kRowBytes;
  const std::int64_t buffers =
      std::int64_t{16} * (s.outputs / s.warps_x + 8) * 4 * s.warps_y * s.warps_x;
  return std::max(tiles, buffers);
}

std::optional<double> estimate(const Graph& graph, const Group& group, const Convolution& conv,
                               const Machine& machine) {
  const bool has_type = multiplier_of(conv.dtype, conv.is_tf32, machine) != Multiplier::plain;
  if (!has_type || !conv.is_constant || conv.groups != 1 || conv.is_transposed) return std::nullopt;
  return choose(graph, group, conv, machine).microseconds;
}

Lowered lower(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
              const Machine& machine) {
  const Schedule s = choose(laid.graph, group, conv, machine).schedule;
  const int stages = stages_of(s, machine);
  TensorProblem problem = tensor_problem(laid, group, conv, machine);
  const std::int64_t depth =
      round_up(problem.taps.h * problem.taps.w * problem.channels, block_of(conv));
  Lowered lowered;
  lowered.scratch_bytes = problem.scratch_bytes;
  if (problem.before) lowered.calls.push_back(std::move(*problem.before));
  lowered.packed.push_back({operand_pointer(laid, group, conv.weight).index,
                            weight_packing(conv, problem, 1, block_of(conv))});
  ConvLaunch launch;
  launch.header = "conv_mma.h";
  launch.text =
      "struct Problem {\n" + problem_text(conv, problem) + constant_text("kDepth", depth) +
      "};\nstruct Schedule {\n" + constant_text("kPixels", s.pixels) +
      constant_text("kOutputs", s.outputs) + constant_text("kWarpsY", s.warps_y) +
      constant_text("kWarpsX", s.warps_x) + constant_text("kStages", stages) +
      constant_text("kParts", s.parts) +
      "  static constexpr bool kIsAsync = " + (machine.device.capability >= 80 ? "true" : "false") +
      ";\n};\n";
  launch.threads = threads(s);
  launch.resident = resident(s, machine);
  launch.shared_bytes = shared_bytes(s, stages);
  launch.run =
      "using Conv = ConvMma<Problem, Schedule, E>;\n  static_assert(Conv::kSharedBytes == " +
      std::to_string(launch.shared_bytes) +
      " && Conv::kThreads == " + std::to_string(launch.threads) +
      ");\n  Conv::run(image, weights, epilogue, part);";
  launch.parameters = {"const Problem::Element* image", "const Problem::Element* weights"};
  launch.arguments = {problem.image, Pointer{Pointer::Base::packed, 0, 0}};
  launch.blocks =
      ((conv.pixels() + s.pixels - 1) / s.pixels) * ((conv.outputs + s.outputs - 1) / s.outputs);
  launch.parts = s.parts;
  const std::string what = "conv_" + (conv.is_tf32 ? "tf32" : std::string(name(conv.dtype))) + "_" +
                           std::to_string(conv.taps.h) + "x" + std::to_string(conv.taps.w) +
                           "_mma_" + std::to_string(s.pixels) + "x" + std::to_string(s.outputs) +
                           "x" + std::to_string(block_of(conv)) + "_s" + std::to_string(stages) +
                           (s.parts > 1 ? "_k" + std::to_string(s.parts) : "");
  add_calls(lowered, launch, conv, conv_epilogue(laid, group, conv), what, machine);
  lowered.description = lowered.calls.back().entry;
  if (s.parts > 1) lowered.description = lowered.calls[lowered.calls.size() - 2].entry;
  return lowered;
}

}  // namespace

const ConvWay kConvMma = {estimate, lower};

}  // namespace tensor::cuda
