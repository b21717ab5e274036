// Convolutions of 16-bit operands, or of float32 ones rounded to tf32, with mma.sync on every GPU
// whose Tensor Cores have it.
#include <algorithm>
#include <iterator>
#include <limits>

#include "src/core/rounding.h"
#include "src/kernels/cuda/conv/conv.h"
#include "src/kernels/cuda/gemm/mma.h"

namespace tensor::cuda {
namespace {

constexpr std::int64_t kRowBytes = 64;  // of depth in a tile, as in templates/conv_mma.h
constexpr int kMostThreads = 256;
constexpr std::int64_t kLeastMmaOutputs = 32;  // of a tile

std::optional<Convolution> merged_for_mma(const Convolution& conv) {
  return merged_groups(conv, kChunk, kLeastMmaOutputs, LastGroup::whole);
}

struct Tile {
  int pixels = 128, outputs = 128;
  int down = 2, across = 4;  // warps
  int stages = 2, resident = 1, parts = 1;

  int threads() const { return 32 * down * across; }
  std::int64_t shared_bytes() const {
    const std::int64_t tiles = stages * (pixels + outputs) * kRowBytes;
    const std::int64_t buffers = std::int64_t{16} * (outputs / across + 8) * 4 * down * across;
    return std::max(tiles, buffers);
  }
};

constexpr Tile kTiles[] = {{128, 128, 2, 4}, {128, 64, 4, 2}, {64, 128, 2, 4},
                           {64, 64, 2, 2},   {128, 32, 4, 1}, {32, 64, 1, 2}};

// The share of mma.sync's rate that a tile of this size reaches: those of level 0 have constants of
// their own, others what they multiply of each element that they read makes likely.
double efficiency_of(const Tile& s, const Machine& machine) {
  const auto& times = machine.times.conv_tiles;
  const auto is = [&](int one, int other) {
    return std::max(s.pixels, s.outputs) == one && std::min(s.pixels, s.outputs) == other;
  };
  if (is(128, 128)) return times.share_128x128;
  if (is(128, 64)) return times.share_128x64;
  if (is(64, 64)) return times.share_64x64;
  if (s.pixels == 128 && s.outputs == 32) return times.share_128x32;
  if (s.pixels == 32 && s.outputs == 64) return times.share_32x64;
  const double intensity = static_cast<double>(s.pixels) * s.outputs / (s.pixels + s.outputs);
  return std::clamp(times.share_of_none + times.share_of_intensity * intensity,
                    times.share_at_least, 1.0);
}

// As many stages as the blocks of a multiprocessor have room for, which keep a little for
// themselves.
Tile filled_in(Tile s, const Machine& machine) {
  // Where loads go through registers, a thread needs more of them.
  s.resident = std::min((machine.copies_async ? 512 : 384) / s.threads(), 4);
  if (!machine.copies_async) return s;
  const std::int64_t stage = (s.pixels + s.outputs) * kRowBytes;
  const std::int64_t room =
      std::min(machine.device.shared_block_bytes, machine.device.shared_bytes / s.resident - 1024);
  s.stages = static_cast<int>(std::clamp<std::int64_t>(room / stage, 3, 6));
  return s;
}

// What all tiles of a convolution share.
struct Problem {
  ConvWork work;
  std::int64_t block = 32, depth = 0;  // of a step; of the product, in whole steps
  Multiplier multiplier = Multiplier::mma;
};
Problem problem_of(const Graph& graph, const Group& group, const Convolution& given,
                   const Machine& machine) {
  const Convolution conv = *merged_for_mma(given);
  const std::int64_t block = kRowBytes / item_size(conv.dtype);
  return {conv_work(graph, group, conv), block, round_up(product_depth(graph, conv), block),
          multiplier_of(conv.dtype, conv.is_tf32, machine)};
}

ConvTiles tiles_of(const Tile& s, const Problem& p, const Machine& machine) {
  return {s.pixels,
          s.outputs,
          s.parts,
          p.depth,
          efficiency_of(s, machine) * mma_tflops(p.multiplier, machine),
          s.resident,
          (s.pixels + s.outputs) * 0.0625 * (s.stages - 1)};
}

double model(const Tile& s, const Problem& p, const Machine& machine) {
  return model_conv_tiles(p.work, tiles_of(s, p, machine), machine).total;
}

Tile choose(const Problem& p, const Machine& machine) {
  Tile best;
  double least = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles)
    for (const int parts : kConvParts) {
      if (parts > 1 && p.depth / p.block / parts < 8) continue;
      if (p.work.group_outputs % tile.outputs != 0) continue;
      Tile s = filled_in(tile, machine);
      s.parts = parts;
      if (const double time = model(s, p, machine); time < least) best = s, least = time;
    }
  return best;
}

// ---- What may be tried.

Schedule named(const Tile& s) {
  return {"window_mma",
          {{"pixels", s.pixels},
           {"outputs", s.outputs},
           {"down", s.down},
           {"across", s.across},
           {"stages", s.stages},
           {"resident", s.resident},
           {"parts", s.parts}}};
}

Tile tile_of(const Schedule& schedule) {
  const auto number = [&](std::string_view name) { return schedule.value(name).value_or(1); };
  Tile s{.pixels = number("pixels"),
         .outputs = number("outputs"),
         .down = number("down"),
         .across = number("across"),
         .stages = number("stages"),
         .resident = number("resident"),
         .parts = number("parts")};
  return s;
}

// The rule: threads gather the windows into tiles, which warps multiply; the depth whole or in
// parts that a second kernel adds up.
Sketch window_mma(const Machine& machine) {
  return {"window_mma",
          {{"pixels", {32, 64, 128, 256}},
           {"outputs", {32, 64, 128, 256}},
           {"down", {1, 2, 4, 8}},
           {"across", {1, 2, 4, 8}},
           {"stages", machine.copies_async ? std::vector<int>{2, 3, 4, 5, 6} : std::vector<int>{2}},
           {"resident", {1, 2, 3, 4}},
           {"parts", {kConvParts, kConvParts + std::size(kConvParts)}}}};
}

// Why there is no such kernel, as far as is known: what spills was found by compiling.
std::string impossible(const Tile& s, const Machine& machine) {
  const DeviceInfo& device = machine.device;
  if (s.threads() > kMostThreads) return "256 threads at most";
  const int rows = s.threads() / 4;  // that are copied at once
  const int columns = s.outputs / s.across;
  if (s.pixels % (16 * s.down) != 0 || s.outputs % s.across != 0 || columns % 16 != 0)
    return "16 pixels and outputs for each warp";
  if (s.pixels % rows != 0 || s.outputs % rows != 0) return "rows for every thread";
  const int sums = s.pixels * s.outputs / s.threads();
  if (sums > 64 || columns > 128) return "64 sums a thread at most";
  // Besides the sums some 56 are needed, four for each corner of a window, and five for each copy
  // where loads go through registers.
  const int corners = s.pixels / rows, copies = corners + s.outputs / rows;
  const int needed = sums + 56 + 4 * corners + (machine.copies_async ? 0 : 5 * copies);
  if (needed > std::min(255, device.registers / (s.threads() * s.resident) / 8 * 8))
    return "too few registers";
  if (s.shared_bytes() > device.shared_block_bytes) return "too little shared memory for a block";
  if (s.resident * (s.shared_bytes() + 1024) > device.shared_bytes)
    return "too little shared memory for the blocks of a multiprocessor";
  return {};
}

// Of a kernel that there is: why nobody needs it.
std::string pointless(const Tile& s, const Problem& p, const Machine& machine) {
  const std::int64_t steps = p.depth / p.block, processors = machine.device.multiprocessors;
  const std::int64_t tiles =
      ceil_div(p.work.pixels, s.pixels) * ceil_div(p.work.outputs, s.outputs);
  if (p.work.group_outputs % s.outputs != 0) return "outputs of several groups";
  if (s.outputs >= 2 * round_up(p.work.outputs, 32)) return "more outputs than the convolution has";
  if (s.pixels >= 2 * round_up(p.work.pixels, 32)) return "more pixels than the convolution has";
  if (s.stages > std::max<std::int64_t>(steps / s.parts, 2)) return "more stages than steps";
  if (s.resident > 1 && tiles * s.parts <= (s.resident - 1) * processors)
    return "too few blocks for so many on a multiprocessor";
  if (s.parts == 1) return {};
  if (steps / s.parts < 4) return "parts of four steps at least";
  if (tiles >= 2 * s.resident * processors) return "there are tiles enough without parts";
  return {};
}

std::vector<float> features_of_tile(const Tile& s, const Problem& p, const Machine& machine) {
  const ConvTiles tiles = tiles_of(s, p, machine);
  Features f = features_of(p.work, tiles, model_conv_tiles(p.work, tiles, machine), machine);
  f.has_second_kernel = s.parts > 1;
  f.sketch = "window_mma";
  f.tile_depth = static_cast<double>(p.block);
  f.groups = s.down, f.row_blocks = s.across, f.stages = s.stages, f.threads = s.threads();
  f.registers = s.pixels * s.outputs / f.threads;
  f.shared_bytes = static_cast<double>(s.shared_bytes());
  // Every warp reads its own pixels and outputs.
  f.operand_bytes =
      f.blocks / s.parts * f.depth * f.item_bytes * (s.pixels * s.across + s.outputs * s.down);
  return f.values();
}

Space mma_space(const Graph& graph, const Group& group, const Convolution& conv,
                const Machine& machine) {
  const Problem p = problem_of(graph, group, conv, machine);
  Space space;
  space.sketches = {window_mma(machine)};
  // What level 0 takes is always there, as tiles that are larger than the convolution.
  const Schedule level0 = named(choose(p, machine));
  space.fault = [=](const Schedule& schedule) {
    if (schedule == level0) return std::string();
    const Tile s = tile_of(schedule);
    const std::string fault = impossible(s, machine);
    return fault.empty() ? pointless(s, p, machine) : fault;
  };
  space.model_us = [=](const Schedule& s) { return model(tile_of(s), p, machine); };
  space.features = [=](const Schedule& s) { return features_of_tile(tile_of(s), p, machine); };
  space.choose(level0);
  return space;
}

std::optional<double> estimate_mma(const Graph& graph, const Group& group, const Convolution& conv,
                                   const Machine& machine) {
  const bool has_type = multiplier_of(conv.dtype, conv.is_tf32, machine) != Multiplier::plain;
  if (!has_type || !merged_for_mma(conv)) return std::nullopt;
  const Problem p = problem_of(graph, group, conv, machine);
  return model(choose(p, machine), p, machine);
}

Lowered lower_mma(const LaidOutGraph& laid, const Group& group, const Convolution& given,
                  const Machine& machine) {
  const Tile s = group.schedule.empty()
                     ? choose(problem_of(laid.graph, group, given, machine), machine)
                     : tile_of(Schedule::parse(group.schedule));
  const Convolution conv = *merged_for_mma(given);
  const std::int64_t block = kRowBytes / item_size(conv.dtype);
  TensorProblem problem = tensor_problem(laid, group, conv, machine);
  const std::int64_t depth = round_up(problem.taps.h * problem.taps.w * problem.channels, block);
  Lowered lowered;
  lowered.scratch_bytes = problem.scratch_bytes;
  if (problem.before) lowered.calls.push_back(std::move(*problem.before));
  const Pointer weights =
      add_weights(lowered, laid, group, conv, outputs_as_rows(conv, problem, 1, block), machine);
  ConvLaunch launch;
  launch.header = "conv_mma.h";
  launch.problem = Extents(machine.any_extent);
  add_problem(launch.problem, conv, problem);
  add_groups(launch.problem, conv, problem);
  launch.problem.number("kDepth", depth);
  launch.problem.number("kSteps", depth / block);
  launch.problem.divisor("kOutputBlocks", ceil_div(conv.outputs, s.outputs));
  launch.problem.flag("kIsWholeDepth", depth == problem.taps.h * problem.taps.w * problem.channels);
  launch.text = "struct Schedule {\n" + constant_text("kPixels", s.pixels) +
                constant_text("kOutputs", s.outputs) + constant_text("kWarpsY", s.down) +
                constant_text("kWarpsX", s.across) + constant_text("kStages", s.stages) +
                constant_text("kParts", s.parts) +
                "  static constexpr bool kIsAsync = " + (machine.copies_async ? "true" : "false") +
                ";\n};\n";
  launch.threads = s.threads();
  launch.resident = s.resident;
  launch.shared_bytes = s.shared_bytes();
  launch.run =
      "using Conv = ConvMma<Problem, Schedule, E>;\n  static_assert(Conv::kSharedBytes == " +
      std::to_string(launch.shared_bytes) +
      " && Conv::kThreads == " + std::to_string(launch.threads) +
      ");\n  Conv::run(problem, image, weights, epilogue, part);";
  launch.parameters = {"const Problem::Element* image", "const Problem::Element* weights"};
  launch.arguments = {problem.image, weights};
  launch.blocks = ceil_div(conv.pixels(), s.pixels) * ceil_div(conv.outputs, s.outputs);
  launch.parts = s.parts;
  const std::string what =
      conv_name("mma", conv.is_tf32 ? "tf32" : name(conv.dtype), conv, machine) + "_" +
      std::to_string(s.pixels) + "x" + std::to_string(s.outputs) + "x" + std::to_string(block) +
      "_s" + std::to_string(s.stages) + (s.parts > 1 ? "_k" + std::to_string(s.parts) : "");
  add_calls(lowered, std::move(launch), laid, group, conv, what, machine);
  return lowered;
}

}  // namespace

const ConvWay kConvMma = {estimate_mma, lower_mma, mma_space, "window_mma"};

}  // namespace tensor::cuda
