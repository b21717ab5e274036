// Convolutions of 16-bit operands on Hopper, with wgmma and the tensor memory accelerator.
#include <algorithm>
#include <limits>

#include "src/kernels/cuda/conv.h"
#include "src/kernels/cuda/tensor_map.h"
#include "src/kernels/cuda/wgmma.h"

namespace tensor::cuda {
namespace {

constexpr int kBlock = 64;  // of depth, as in device/conv_sm90.h

using Schedule = ConvSm90Schedule;

// Either several blocks of a multiprocessor, or one with a longer ring.
constexpr Schedule kSchedules[] = {{2, 256, 4, 1, 0.9}, {2, 192, 5, 1, 0.85}, {3, 128, 5, 1, 0.9},
                                   {2, 128, 3, 2, 0.9}, {2, 128, 6, 1, 0.8},  {2, 64, 4, 2, 0.8},
                                   {2, 64, 8, 1, 0.7},  {1, 128, 4, 2, 0.75}, {1, 128, 8, 1, 0.6},
                                   {1, 64, 4, 3, 0.65}, {1, 64, 12, 1, 0.45}};
constexpr int kParts[] = {1, 2, 3, 4, 6, 8};

struct Choice {
  Schedule schedule{};
  double microseconds = std::numeric_limits<double>::infinity();
};

Choice choose(const Graph& graph, const Group& group, const Convolution& conv,
              const Machine& machine) {
  Choice best;
  const std::int64_t depth = product_depth(graph, conv);
  for (Schedule s : kSchedules)
    for (const int parts : kParts) {
      if (parts > 1 && depth / kBlock / parts < 4) continue;
      s.parts = parts;
      const double time =
          tiles_us(graph, group, conv, machine,
                   {s.pixels(), s.outputs, parts, depth, s.efficiency * machine.tensor_tflops,
                    s.resident, (s.pixels() + s.outputs) * 0.125 * (s.stages - 1), true});
      if (time < best.microseconds) best = {s, time};
    }
  return best;
}

// Whether pixels of the result read pixels of the image one to one, in their order.
bool is_matrix(const TensorProblem& p, const ImageSteps& s, std::int64_t images) {
  const bool is_pointwise = p.taps.h == 1 && p.taps.w == 1 && p.stride.h == 1 && p.stride.w == 1 &&
                            p.padding.h == 0 && p.padding.w == 0;
  return is_pointwise && (p.size.h == 1 || s.row == p.size.w * s.column) &&
         (images == 1 || s.image == p.size.h * p.size.w * s.column);
}

TensorMapOf image_map(const Convolution& conv, const TensorProblem& p, int pixels) {
  // The step of an axis of one element is never taken, but the accelerator wants one.
  const std::int64_t column = p.steps.column != 0 ? p.steps.column : p.channels;
  const std::int64_t row = p.steps.row != 0 ? p.steps.row : column * p.size.w;
  const std::int64_t image = p.steps.image != 0 ? p.steps.image : row * p.size.h;
  const std::int64_t bytes = item_size(conv.dtype);
  TensorMapOf map{p.image,
                  conv.dtype,
                  {p.channels, p.size.w, p.size.h, conv.images},
                  {column * bytes, row * bytes, image * bytes},
                  {}};
  if (is_matrix(p, {image, 1, row, column}, conv.images)) {
    map.extents = {p.channels, conv.pixels()};
    map.stride_bytes = {column * bytes};
    map.box = {kBlock, pixels};
    return map;
  }
  const auto corner = [&](std::int64_t padding, std::int64_t taps, std::int64_t dilation) {
    return static_cast<int>(padding - (taps - 1) * dilation);
  };
  map.steps = {1, static_cast<int>(p.stride.w), static_cast<int>(p.stride.h), 1};
  map.im2col = TensorMapOf::Im2col{
      {static_cast<int>(-p.padding.w), static_cast<int>(-p.padding.h)},
      {corner(p.padding.w, p.taps.w, p.dilation.w), corner(p.padding.h, p.taps.h, p.dilation.h)},
      kBlock,
      pixels};
  return map;
}

// Offsets in a window are bytes without a sign, corners bytes with one.
bool has_window(const Convolution& conv) {
  const auto fits = [](std::int64_t taps, std::int64_t stride, std::int64_t padding,
                       std::int64_t dilation) {
    return stride <= 8 && padding < 128 && (taps - 1) * dilation < 128;
  };
  return fits(conv.taps.h, conv.stride.h, conv.padding.h, conv.dilation.h) &&
         fits(conv.taps.w, conv.stride.w, conv.padding.w, conv.dilation.w);
}

std::optional<double> estimate(const Graph& graph, const Group& group, const Convolution& conv,
                               const Machine& machine) {
  const bool has_type = conv.dtype == f16 || conv.dtype == bf16;
  if (machine.device.capability != 90 || !has_type || !conv.is_constant || conv.groups != 1 ||
      conv.is_transposed)
    return std::nullopt;
  if (!reads_patches(graph, conv) && (conv.channels % kBlock != 0 || !has_window(conv)))
    return std::nullopt;
  return choose(graph, group, conv, machine).microseconds;
}

std::string schedule_text(const Convolution& conv, const Schedule& s) {
  return "struct Schedule {\n" + constant_text("kOutputs", s.outputs) +
         constant_text("kGroups", s.groups) + constant_text("kStages", s.stages) +
         constant_text("kParts", s.parts) + "};\n" +
         wgmma_text("Wgmma", {.columns = s.outputs, .dtype = conv.dtype});
}

Lowered lower(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
              const Machine& machine) {
  return lower_conv_sm90(laid, group, conv, machine,
                         choose(laid.graph, group, conv, machine).schedule);
}

}  // namespace

std::int64_t ConvSm90Schedule::shared_bytes() const {
  return std::int64_t{stages} * (pixels() + outputs) * kBlock * 2;
}

std::span<const ConvSm90Schedule> conv_sm90_schedules() { return kSchedules; }

Lowered lower_conv_sm90(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
                        const Machine& machine, const ConvSm90Schedule& s) {
  TensorProblem problem = tensor_problem(laid, group, conv, machine);
  const TensorMapOf image = image_map(conv, problem, s.pixels());
  Lowered lowered;
  lowered.scratch_bytes = problem.scratch_bytes;
  lowered.packed.push_back(
      {operand_pointer(laid, group, conv.weight).index, weight_packing(conv, problem, 1, 1)});
  ConvLaunch launch;
  launch.header = "conv_sm90.h";
  launch.text = "struct Problem {\n" + problem_text(conv, problem) +
                "  static constexpr bool kIsMatrix = " + (image.im2col ? "false" : "true") +
                ";\n};\n" + schedule_text(conv, s);
  launch.threads = s.threads();
  launch.resident = s.resident;
  launch.shared_bytes = s.shared_bytes();
  launch.run =
      "using Conv = ConvSm90<Problem, Schedule, Wgmma, E>;\n  static_assert("
      "Conv::kSharedBytes == " +
      std::to_string(launch.shared_bytes) +
      " && Conv::kThreads == " + std::to_string(launch.threads) +
      ");\n  Conv::run(image, weights, epilogue);";
  launch.parameters = {"const __grid_constant__ TensorMap image",
                       "const __grid_constant__ TensorMap weights"};
  launch.arguments = {
      image, swizzled_boxes(conv.dtype, conv.outputs, product_depth(laid.graph, conv), s.outputs,
                            {Pointer::Base::packed, 0, 0})};
  launch.blocks = ((conv.pixels() + s.pixels() - 1) / s.pixels()) *
                  ((conv.outputs + s.outputs - 1) / s.outputs) * s.parts;
  launch.cluster = static_cast<unsigned>(s.parts);
  if (problem.before) lowered.calls.push_back(std::move(*problem.before));
  const std::string what =
      "conv_" + std::string(name(conv.dtype)) + "_" + std::to_string(conv.taps.h) + "x" +
      std::to_string(conv.taps.w) + "_wgmma_" + std::to_string(s.pixels()) + "x" +
      std::to_string(s.outputs) + "x" + std::to_string(kBlock) + "_s" + std::to_string(s.stages) +
      (s.parts > 1 ? "_k" + std::to_string(s.parts) : "");
  add_calls(lowered, launch, conv, conv_epilogue(laid, group, conv), what, machine);
  lowered.description = lowered.calls.back().entry;
  return lowered;
}

const ConvWay kConvSm90 = {estimate, lower};

}  // namespace tensor::cuda
