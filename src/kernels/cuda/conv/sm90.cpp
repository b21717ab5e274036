// Convolutions of 16-bit operands and of bytes on Hopper, with wgmma and the tensor memory
// accelerator.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/core/rounding.h"
#include "src/kernels/cuda/conv/conv.h"
#include "src/kernels/cuda/tensor_map.h"
#include "src/kernels/cuda/wgmma.h"

namespace tensor::cuda {
namespace {

constexpr int kStepBytes = 128;                 // of depth, the width of the swizzle
constexpr std::int64_t kLeastSm90Outputs = 64;  // of a tile

// Elements of such a step.
int block_of(DType dtype) { return kStepBytes / static_cast<int>(item_size(dtype)); }
int block_of(const ConvWork& work) { return kStepBytes / static_cast<int>(work.item_bytes); }

std::optional<Convolution> merged_for_wgmma(const Convolution& conv) {
  return merged_groups(conv, block_of(conv.dtype), kLeastSm90Outputs, LastGroup::any);
}

// Every tap in whole steps: boxes are zeros beyond the channels, and so are the weights there.
std::int64_t filled_depth(const Graph& graph, const Convolution& conv) {
  if (reads_patches(graph, conv)) return product_depth(graph, conv);
  return conv.taps.h * conv.taps.w * round_up(conv.group_channels, block_of(conv.dtype));
}

ConvWork filled_work(const Graph& graph, const Group& group, const Convolution& conv) {
  const Convolution merged = *merged_for_wgmma(conv);
  ConvWork work = conv_work(graph, group, merged);
  work.depth = filled_depth(graph, merged);
  return work;
}

// Those that the model chooses from: among what was measured, most often the fastest, or near it.
constexpr ConvSm90Schedule kSchedules[] = {
    {2, 256, 4, 1}, {2, 192, 5, 1}, {3, 128, 5, 1}, {2, 128, 3, 2}, {2, 128, 6, 1}, {2, 64, 2, 2},
    {2, 64, 8, 1},  {1, 128, 2, 3}, {1, 128, 4, 2}, {1, 128, 8, 1}, {1, 64, 4, 3},  {1, 64, 12, 1}};

// The share of the multiprocessors that clusters of this size reach: their blocks run in one group
// of 16 or, rarely, 18 multiprocessors.
double reach_of_clusters(int blocks, const Machine& machine) {
  constexpr int kGroup = 16;
  return blocks <= 2 ? 1.
                     : static_cast<double>(kGroup / blocks * blocks) / kGroup *
                           machine.times.conv_sm90.cluster_reach;
}

// Microseconds, by the constants of struct TimeModel::ConvSm90. Rounds of as many blocks as fit on
// a multiprocessor go through the depth in steps. Each step is multiplied, at a rate that grows
// with the sums in work, while the next ones come from the second-level cache, which takes its time
// where few are ahead; then clusters exchange sums, and results are written.
TimeParts model(const ConvSm90Schedule& s, const ConvWork& work, const Machine& machine) {
  const auto& times = machine.times.conv_sm90;
  const double processors = machine.device.multiprocessors, block = block_of(work);
  const double steps = std::ceil(static_cast<double>(work.depth) / block / s.parts);
  const double tile = static_cast<double>(s.pixels()) * s.outputs;
  const double cache = machine.l2_gbps / processors;  // bytes a nanosecond, of a multiprocessor
  const double rate = work.item_bytes == 1 ? machine.byte_tops : machine.tensor_tflops;
  const double multiply = 2 * tile * block / (rate / processors) / 1e6;
  const double copy = (s.pixels() + s.outputs) * kStepBytes / (times.cache_share * cache) / 1e3;
  const double write = tile * (work.epilogue.written_bytes + work.epilogue.read_bytes) /
                       (times.write_share * cache) / 1e3;
  struct Round {
    double multiply, copy, finish, time;
  };
  const auto round_of = [&](double blocks) {
    Round r;
    r.multiply = steps * blocks * multiply / (1 - std::exp(-blocks * tile / times.sums));
    r.copy = steps * blocks * copy;
    r.finish = write * (1 + times.together * (blocks - 1));
    if (s.parts > 1)
      r.finish += times.cluster_us + blocks * tile * sizeof(float) / times.cluster_gbps / 1e3;
    const double ahead = steps * times.ahead_us / std::max(s.stages - 1, 1);
    r.time = std::max(r.multiply, r.copy) + ahead + r.finish + times.round_us;
    return r;
  };
  const double fit = s.blocks_that_fit(machine.device);
  const double blocks =
      s.parts *
      static_cast<double>(ceil_div(work.pixels, s.pixels()) * ceil_div(work.outputs, s.outputs)) /
      (processors * reach_of_clusters(s.parts, machine));
  const double full = std::floor(blocks / fit), rest = std::ceil(blocks - full * fit);
  const Round one = round_of(fit), last = round_of(std::max(rest, 1.));
  const auto all = [&](double Round::*part) {
    return full * one.*part + (rest > 0 ? last.*part : 0);
  };
  const double gbps = conv_gbps(work, machine);
  const double compute = all(&Round::time);
  const double memory =
      work.bytes / (gbps * (gbps > machine.memory_gbps ? times.small_share : times.memory_share)) /
      1e3;
  const double time = machine.launch_us + std::max(compute, memory) +
                      (1 - times.overlap) * std::min(compute, memory);
  const double packing = work.packings * (machine.launch_us + times.packing_us) +
                         work.packing_bytes / times.packing_gbps / 1e3;
  return {time + packing, all(&Round::multiply), all(&Round::finish), memory, all(&Round::copy)};
}

struct Choice {
  ConvSm90Schedule schedule{};
  double microseconds = std::numeric_limits<double>::infinity();
};

Choice choose(const ConvWork& work, const Machine& machine) {
  Choice best;
  for (ConvSm90Schedule s : kSchedules)
    for (const int parts : kConvParts) {
      if (work.group_outputs % s.outputs != 0) continue;
      if (parts > 1 && work.depth / block_of(work) / parts < 4) continue;
      s.parts = parts;
      const double time = model(s, work, machine).total;
      if (time < best.microseconds) best = {s, time};
    }
  return best;
}

// ---- What may be tried.

Schedule named(const ConvSm90Schedule& s) {
  return {"window_tma",
          {{"groups", s.groups},
           {"outputs", s.outputs},
           {"stages", s.stages},
           {"resident", s.resident},
           {"parts", s.parts}}};
}

ConvSm90Schedule schedule_of(const Schedule& named) {
  const auto number = [&](std::string_view name) { return named.value(name).value_or(1); };
  return {.groups = number("groups"),
          .outputs = number("outputs"),
          .stages = number("stages"),
          .resident = number("resident"),
          .parts = number("parts")};
}

// The rule: windows are gathered by the tensor memory accelerator into tiles of one tap each, which
// warpgroups multiply; the depth whole or in parts that a cluster adds up.
Sketch window_tma() {
  return {"window_tma",
          {{"groups", {1, 2, 3, 4}},
           {"outputs", {64, 128, 192, 256}},
           {"stages", {2, 3, 4, 5, 6, 8, 12}},
           {"resident", {1, 2, 3, 4}},
           {"parts", {kConvParts, kConvParts + std::size(kConvParts)}}}};
}

std::vector<float> features_of_schedule(const ConvSm90Schedule& s, const ConvWork& work,
                                        const Machine& machine) {
  const ConvTiles tiles{.pixels = s.pixels(),
                        .outputs = s.outputs,
                        .parts = s.parts,
                        .depth = work.depth,
                        .resident = s.resident};
  Features f = features_of(work, tiles, model(s, work, machine), machine);
  f.sketch = "window_tma";
  f.tile_depth = block_of(work), f.groups = s.groups, f.stages = s.stages, f.threads = s.threads();
  f.registers = 0.5 * s.outputs;
  f.shared_bytes = static_cast<double>(s.shared_bytes());
  f.operand_bytes = f.blocks / s.parts * static_cast<double>(work.depth) * work.item_bytes *
                    s.groups * (64 + s.outputs);
  return f.values();
}

Space sm90_space(const Graph& graph, const Group& group, const Convolution& conv,
                 const Machine& machine) {
  const ConvWork work = filled_work(graph, group, conv);
  Space space;
  space.sketches = {window_tma()};
  // What was measured is always there, as rings that are longer than the depth.
  const auto level0 = named(choose(work, machine).schedule);
  space.fault = [=](const auto& s) {
    return s == level0 ? std::string() : schedule_of(s).fault(work, machine);
  };
  space.impossible = [=](const auto& s) { return schedule_of(s).impossible(work, machine); };
  space.model_us = [=](const auto& s) { return model(schedule_of(s), work, machine).total; };
  space.features = [=](const auto& s) {
    return features_of_schedule(schedule_of(s), work, machine);
  };
  space.choose(level0);
  return space;
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
  const std::int64_t channels = conv.groups == 1 ? p.channels : conv.channels;
  const std::int64_t column = p.steps.column != 0 ? p.steps.column : channels;
  const std::int64_t row = p.steps.row != 0 ? p.steps.row : column * p.size.w;
  const std::int64_t image = p.steps.image != 0 ? p.steps.image : row * p.size.h;
  const std::int64_t bytes = item_size(conv.dtype);
  TensorMapOf map{p.image,
                  conv.dtype,
                  {channels, p.size.w, p.size.h, conv.images},
                  {column * bytes, row * bytes, image * bytes},
                  {}};
  if (is_matrix(p, {image, 1, row, column}, conv.images)) {
    map.extents = {channels, conv.pixels()};
    map.stride_bytes = {column * bytes};
    map.box = {block_of(conv.dtype), pixels};
    return map;
  }
  const auto corner = [&](std::int64_t padding, std::int64_t taps, std::int64_t dilation) {
    return static_cast<int>(padding - (taps - 1) * dilation);
  };
  map.steps = {1, static_cast<int>(p.stride.w), static_cast<int>(p.stride.h), 1};
  map.im2col = TensorMapOf::Im2col{
      {static_cast<int>(-p.padding.w), static_cast<int>(-p.padding.h)},
      {corner(p.padding.w, p.taps.w, p.dilation.w), corner(p.padding.h, p.taps.h, p.dilation.h)},
      block_of(conv.dtype),
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

// Bytes come without gaps. Of few channels a tap is a row of the window to other kernels, which
// wastes less of the depth.
bool takes_channels(const Convolution& conv) {
  return conv.dtype == i8 ? conv.channels % block_of(i8) == 0 : conv.channels > kChunk;
}

std::optional<double> estimate_sm90(const Graph& graph, const Group& group, const Convolution& conv,
                                    const Machine& machine) {
  const bool has_type = conv.dtype == f16 || conv.dtype == bf16 || conv.dtype == i8;
  if (!machine.has_wgmma || !has_type) return std::nullopt;
  const auto merged = merged_for_wgmma(conv);
  if (!merged) return std::nullopt;
  if (!reads_patches(graph, *merged) && !(takes_channels(conv) && has_window(conv)))
    return std::nullopt;
  return choose(filled_work(graph, group, conv), machine).microseconds;
}

std::string schedule_text(const Convolution& conv, const ConvSm90Schedule& s) {
  return "struct Schedule {\n  using Input = " + std::string(device_type(conv.dtype)) + ";\n" +
         constant_text("kOutputs", s.outputs) + constant_text("kGroups", s.groups) +
         constant_text("kStages", s.stages) + constant_text("kParts", s.parts) + "};\n" +
         wgmma_text("Wgmma", {.columns = s.outputs, .dtype = conv.dtype});
}

Lowered lower_sm90(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
                   const Machine& machine) {
  const ConvSm90Schedule schedule =
      group.schedule.empty() ? choose(filled_work(laid.graph, group, conv), machine).schedule
                             : schedule_of(Schedule::parse(group.schedule));
  return lower_conv_sm90(laid, group, conv, machine, schedule);
}

}  // namespace

std::int64_t ConvSm90Schedule::shared_bytes() const {
  return std::int64_t{stages} * (pixels() + outputs) * kStepBytes;
}

int ConvSm90Schedule::blocks_that_fit(const DeviceInfo& device) const {
  constexpr int kRegisters = 40;  // a thread, besides sums
  constexpr std::int64_t kReserved = 2 << 10;
  const std::int64_t by_memory = device.shared_bytes / (shared_bytes() + kReserved);
  const std::int64_t by_registers = device.registers / ((outputs / 2 + kRegisters) * threads());
  const std::int64_t fit =
      std::min({by_memory, by_registers, std::int64_t{device.threads / threads()}});
  return static_cast<int>(std::max<std::int64_t>(fit, resident));
}

std::string ConvSm90Schedule::impossible(const ConvWork& work, const Machine& machine) const {
  const DeviceInfo& device = machine.device;
  // A kernel may have 255; besides the sums some 64 are needed.
  const int registers = std::min(255, device.registers / (threads() * resident) / 8 * 8);
  if (outputs / 2 + 64 > registers) return "too few registers";
  const std::int64_t shared = shared_bytes() + 1024;
  if (shared > device.shared_block_bytes) return "too little shared memory for a block";
  if (resident * (shared + 1024) > device.shared_bytes)
    return "too little shared memory for the blocks of a multiprocessor";
  if (work.group_outputs % outputs != 0) return "outputs of several groups";
  if (parts == 1) return {};
  if (work.depth / block_of(work) / parts < 2) return "parts of two steps at least";
  // Sums are exchanged where the tiles were, as many pixels from each part.
  if (4 * round_up(pixels(), parts) * (outputs + 8) > shared_bytes())
    return "too little shared memory for the sums of a part";
  return {};
}

std::string ConvSm90Schedule::fault(const ConvWork& work, const Machine& machine) const {
  if (std::string reason = impossible(work, machine); !reason.empty()) return reason;
  const DeviceInfo& device = machine.device;
  const std::int64_t steps = work.depth / block_of(work);
  if (stages > std::max<std::int64_t>(steps / parts, 2)) return "more stages than steps";
  const std::int64_t blocks =
      ceil_div(work.pixels, pixels()) * ceil_div(work.outputs, outputs) * parts;
  if (resident > 1 && blocks <= (resident - 1) * device.multiprocessors)
    return "too few blocks for so many on a multiprocessor";
  if (outputs > 64 && outputs >= work.outputs + 64) return "more outputs than the convolution has";
  if (parts > 1 && blocks / parts >= 2 * device.multiprocessors)
    return "there are tiles enough without parts";
  return {};
}

std::span<const ConvSm90Schedule> conv_sm90_schedules() { return kSchedules; }

Lowered lower_conv_sm90(const LaidOutGraph& laid, const Group& group, const Convolution& given,
                        const Machine& machine, const ConvSm90Schedule& s) {
  const Convolution conv = *merged_for_wgmma(given);
  const int block = block_of(conv.dtype);
  TensorProblem problem = tensor_problem(laid, group, conv, machine);
  const TensorMapOf image = image_map(conv, problem, s.pixels());
  Lowered lowered;
  lowered.scratch_bytes = problem.scratch_bytes;
  const Pointer weights = add_weights(
      lowered, laid, group, conv,
      conv.dtype == i8 ? bytes_as_rows(conv) : outputs_as_rows(conv, problem, block, 1), machine);
  ConvLaunch launch;
  launch.header = "conv_sm90.h";
  launch.problem = Extents(machine.any_extent);
  launch.problem.flag("kIsMatrix", !image.im2col);
  launch.problem.flag("kWeightsFirst", conv.is_constant);
  const std::int64_t channel_blocks = ceil_div(problem.channels, std::int64_t{block});
  launch.problem.divisor("kChannelBlocks", channel_blocks);
  launch.problem.number("kSteps", problem.taps.h * problem.taps.w * channel_blocks);
  launch.problem.divisor("kOutputBlocks", ceil_div(conv.outputs, s.outputs));
  add_window(launch.problem, conv, problem);
  add_groups(launch.problem, conv, problem);
  launch.text = schedule_text(conv, s);
  launch.threads = s.threads();
  launch.resident = s.resident;
  launch.shared_bytes = s.shared_bytes();
  launch.run =
      "using Conv = ConvSm90<Problem, Schedule, Wgmma, E>;\n  static_assert("
      "Conv::kSharedBytes == " +
      std::to_string(launch.shared_bytes) +
      " && Conv::kThreads == " + std::to_string(launch.threads) +
      ");\n  Conv::run(problem, image, weights, epilogue);";
  launch.parameters = {"const __grid_constant__ TensorMap image",
                       "const __grid_constant__ TensorMap weights"};
  launch.arguments = {image, swizzled_boxes(conv.dtype, conv.outputs,
                                            filled_depth(laid.graph, conv), s.outputs, weights)};
  launch.blocks = ceil_div(conv.pixels(), s.pixels()) * ceil_div(conv.outputs, s.outputs) * s.parts;
  launch.cluster = static_cast<unsigned>(s.parts);
  if (problem.before) lowered.calls.push_back(std::move(*problem.before));
  const std::string what = conv_name("wgmma", name(conv.dtype), conv, machine) + "_" +
                           std::to_string(s.pixels()) + "x" + std::to_string(s.outputs) + "x" +
                           std::to_string(block) + "_s" + std::to_string(s.stages) +
                           (s.parts > 1 ? "_k" + std::to_string(s.parts) : "");
  add_calls(lowered, std::move(launch), laid, group, conv, what, machine);
  return lowered;
}

const ConvWay kConvSm90 = {estimate_sm90, lower_sm90, sm90_space, "window_tma"};

}  // namespace tensor::cuda
