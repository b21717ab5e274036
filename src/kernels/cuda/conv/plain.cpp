// Convolutions on the cores for plain arithmetic: float32 exactly, and whatever else there is.
#include <algorithm>
#include <iterator>
#include <limits>

#include "src/core/rounding.h"
#include "src/kernels/cuda/conv/conv.h"

namespace tensor::cuda {
namespace {

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

void add_types(Extents& numbers, const LaidOutGraph& laid, const Convolution& conv) {
  const auto type = [&](ValueId id) { return std::string(device_type(laid.graph.type(id).dtype)); };
  numbers.text("using Image = " + type(conv.image) + ";");
  numbers.text("using Weight = " + type(conv.weight) + ";");
  numbers.text(std::string("using Sum = ") + (conv.dtype == f64 ? "double" : "float") + ";");
}

// ---- Tiles.

constexpr int kTilePixels = 128, kDepthStep = 16;  // templates/conv_plain.h

struct Tiling {
  int outputs = 64, parts = 1, resident = 2;
};
constexpr int kOutputs[] = {64, 128};

int threads_of(const Tiling& t) { return 2 * t.outputs; }

ConvTiles tiles_of(const Tiling& t, const ConvWork& work, const Machine& machine) {
  // What loads from shared memory leave of the rate.
  const auto& times = machine.times.conv_tiles;
  const double tflops =
      (t.outputs == 64 ? times.plain_share_64 : times.plain_share_128) * machine.f32_tflops;
  return {kTilePixels, t.outputs, t.parts, work.depth, tflops, t.resident, 64};
}

// The depth is that of the convolution: nothing is packed.
ConvWork plain_work(const Graph& graph, const Group& group, const Convolution& conv) {
  ConvWork work = conv_work(graph, group, conv);
  work.depth = conv.depth();
  return work;
}

double model_tiling(const Tiling& t, const ConvWork& work, const Machine& machine) {
  return model_conv_tiles(work, tiles_of(t, work, machine), machine).total;
}

// Two blocks of 256 threads leave each 128 registers: for 64 sums, what they are made of and, where
// it does not go to shared memory by itself, what is on its way there. The compiler spills then.
int most_resident(int outputs, const Machine& machine) {
  return outputs == 128 && !machine.copies_async ? 1 : 2;
}

Tiling choose_tiling(const ConvWork& work, const Machine& machine) {
  Tiling best;
  double least = std::numeric_limits<double>::infinity();
  for (const int outputs : kOutputs)
    for (const int parts : {1, 2, 4, 8}) {
      if (parts > 1 && work.depth / kDepthStep / parts < 8) continue;
      const Tiling t{outputs, parts, most_resident(outputs, machine)};
      if (const double time = model_tiling(t, work, machine); time < least) best = t, least = time;
    }
  return best;
}

Schedule named(const Tiling& t) {
  return {"window_plain", {{"outputs", t.outputs}, {"parts", t.parts}, {"resident", t.resident}}};
}

Tiling tiling_of(const Schedule& schedule) {
  const auto number = [&](std::string_view name) { return schedule.value(name).value_or(1); };
  return {number("outputs"), number("parts"), number("resident")};
}

std::string fault_of(const Tiling& t, const ConvWork& work, const Machine& machine) {
  const std::int64_t tiles = ceil_div(work.pixels, kTilePixels) * ceil_div(work.outputs, t.outputs);
  const std::int64_t processors = machine.device.multiprocessors;
  if (t.outputs == 128 && work.outputs <= 64) return "more outputs than the convolution has";
  if (t.resident > 1 && tiles * t.parts <= processors)
    return "too few blocks for so many on a multiprocessor";
  if (t.resident > most_resident(t.outputs, machine)) return "too few registers";
  if (t.parts == 1) return {};
  if (work.depth / kDepthStep / t.parts < 4) return "parts of four steps at least";
  if (tiles >= 2 * t.resident * processors) return "there are tiles enough without parts";
  return {};
}

// The rule: threads have eight pixels of eight outputs.
Space tiled_space(const Graph& graph, const Group& group, const Convolution& conv,
                  const Machine& machine) {
  const ConvWork work = plain_work(graph, group, conv);
  Space space;
  space.sketches = {{"window_plain",
                     {{"outputs", {std::begin(kOutputs), std::end(kOutputs)}},
                      {"parts", {std::begin(kConvParts), std::end(kConvParts)}},
                      {"resident", {1, 2}}}}};
  // What level 0 takes is always there, as room for blocks that there are not.
  const Schedule level0 = named(choose_tiling(work, machine));
  space.fault = [=](const Schedule& s) {
    return s == level0 ? std::string() : fault_of(tiling_of(s), work, machine);
  };
  space.model_us = [=](const Schedule& s) { return model_tiling(tiling_of(s), work, machine); };
  space.features = [=](const Schedule& schedule) {
    const Tiling t = tiling_of(schedule);
    const ConvTiles tiles = tiles_of(t, work, machine);
    Features f = features_of(work, tiles, model_conv_tiles(work, tiles, machine), machine);
    f.has_second_kernel = t.parts > 1;
    f.sketch = schedule.sketch;
    f.tile_depth = kDepthStep, f.stages = 2, f.threads = threads_of(t);
    f.registers = kTilePixels * t.outputs / f.threads;
    f.shared_bytes = 2. * kDepthStep * (kTilePixels + t.outputs + 8) * sizeof(float);
    // Each thread reads eight pixels and eight outputs of its own.
    f.operand_bytes = f.blocks / t.parts * f.depth * f.threads * 16 * sizeof(float);
    return f.values();
  };
  space.choose(level0);
  return space;
}

std::optional<double> estimate_tiled(const Graph& graph, const Group& group,
                                     const Convolution& conv, const Machine& machine) {
  if (conv.dtype == f64 || conv.groups != 1) return std::nullopt;
  const ConvWork work = plain_work(graph, group, conv);
  return model_tiling(choose_tiling(work, machine), work, machine);
}

// Whether four channels of a pixel lie together, as floats at multiples of 16 bytes.
bool has_fours(const LaidOutGraph& laid, const Convolution& conv) {
  const ImageSteps s = image_steps(laid, conv.image);
  const auto is_whole = [](std::int64_t n) { return n % 4 == 0; };
  return laid.graph.type(conv.image).dtype == f32 && s.channel == 1 && is_whole(conv.channels) &&
         is_whole(s.image) && is_whole(s.row) && is_whole(s.column) &&
         is_whole(laid.layouts[at(conv.image)].offset);
}

Lowered lower_tiled(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
                    const Machine& machine) {
  const TensorProblem problem = plain_problem(laid, group, conv);
  const Tiling tiling = group.schedule.empty()
                            ? choose_tiling(plain_work(laid.graph, group, conv), machine)
                            : tiling_of(Schedule::parse(group.schedule));
  const std::int64_t row = ceil_div(conv.outputs, tiling.outputs) * tiling.outputs;
  Lowered lowered;
  const Pointer weights =
      add_weights(lowered, laid, group, conv, outputs_as_columns(conv, row), machine);
  ConvLaunch launch;
  launch.parts = tiling.parts;
  launch.header = "conv_plain.h";
  launch.problem = Extents(machine.any_extent);
  add_types(launch.problem, laid, conv);
  add_problem(launch.problem, conv, problem);
  launch.problem.constant("kTileOutputs", tiling.outputs);
  launch.problem.flag("kHasFours", has_fours(laid, conv));
  launch.problem.flag("kIsAsync",
                      machine.copies_async && laid.graph.type(conv.weight).dtype == f32);
  launch.problem.constant("kParts", launch.parts);
  launch.problem.number("kWeightRow", row);
  launch.problem.number("kDepth", conv.depth());
  launch.problem.number("kSteps", ceil_div(conv.depth(), kDepthStep));
  launch.problem.divisor("kOutputBlocks", row / tiling.outputs);
  launch.run = "ConvPlain<Problem, E>::run(problem, image, weights, epilogue, part);";
  launch.parameters = {"const Problem::Image* image", "const Problem::Weight* weights"};
  launch.arguments = {problem.image, weights};
  launch.blocks = ceil_div(conv.pixels(), kTilePixels) * (row / tiling.outputs);
  launch.threads = threads_of(tiling);
  // Half the threads leave room for one block more, not for twice as many: they bring more each.
  launch.resident = tiling.resident + (tiling.outputs == 64 ? 1 : 0);
  add_calls(lowered, std::move(launch), laid, group, conv,
            conv_name("tiled", name(conv.dtype), conv, machine) +
                (tiling.outputs == 64 ? "_128x64x16_s2" : "_128x128x16_s2") +
                (tiling.parts > 1 ? "_k" + std::to_string(tiling.parts) : ""),
            machine);
  return lowered;
}

// ---- A loop.

std::optional<double> estimate_direct(const Graph& graph, const Group& group,
                                      const Convolution& conv, const Machine& machine) {
  // Every multiplication reads two numbers, mostly from the first-level cache.
  const Work work = work_of(graph, group);
  const auto& times = machine.times.conv_tiles;
  const double rate =
      (conv.dtype == f64 ? times.direct_share_f64 : times.direct_share) * machine.f32_tflops;
  // One product after the other, and one tap, each when what it reads has come.
  const auto taps = static_cast<double>(conv.taps.h * conv.taps.w);
  const double chain =
      times.direct_tap_us * taps + times.direct_step_us * static_cast<double>(conv.depth());
  return machine.launch_us + times.direct_us + chain +
         std::max(work.flops / rate / 1e6, work.bytes / machine.memory_gbps / 1e3);
}

Lowered lower_direct(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
                     const Machine& machine) {
  TensorProblem problem = plain_problem(laid, group, conv);
  const ImageSteps w = image_steps(laid, conv.weight);
  ConvLaunch launch;
  launch.header = "conv_plain.h";
  Extents& numbers = launch.problem = numbers_of_threads(conv.pixels() * conv.outputs, machine);
  add_types(numbers, laid, conv);
  add_problem(numbers, conv, problem);
  numbers.number("kGroupChannels", conv.group_channels);
  numbers.divisor("kGroupOutputs", conv.group_outputs);
  numbers.number("kOutputStep", w.image);
  numbers.number("kInputStep", w.channel);
  numbers.number("kTapRowStep", w.row);
  numbers.number("kTapColumnStep", w.column);
  launch.run = "convolve_directly(problem, image, weights, epilogue);";
  launch.parameters = {"const Problem::Image* image", "const Problem::Weight* weights"};
  launch.arguments = {problem.image, operand_pointer(laid, group, conv.weight)};
  launch.blocks = ceil_div(conv.pixels() * conv.outputs, launch.threads);
  Lowered lowered;
  add_calls(lowered, std::move(launch), laid, group, conv,
            conv_name("direct", name(conv.dtype), conv, machine), machine);
  return lowered;
}

}  // namespace

const ConvWay kConvTiled = {estimate_tiled, lower_tiled, tiled_space, "window_plain"};
const ConvWay kConvDirect = {estimate_direct, lower_direct};

}  // namespace tensor::cuda
