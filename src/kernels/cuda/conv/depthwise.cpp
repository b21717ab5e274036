// Depthwise convolutions: a filter for every channel, which Tensor Cores cannot make use of.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "src/core/rounding.h"
#include "src/kernels/cuda/conv/conv.h"

namespace tensor::cuda {
namespace {

constexpr int kLanes = 8;  // templates/conv_depthwise.h

struct Strips {
  int channels = 4, columns = 4, strips = 4, rows = 4;  // of a thread, and threads of a block

  int threads() const { return kLanes * strips * rows; }
  std::int64_t block_channels() const { return std::int64_t{kLanes} * channels; }
  std::int64_t block_columns() const { return std::int64_t{columns} * strips; }
};
constexpr int kThreadChannels[] = {2, 4, 8}, kThreadColumns[] = {1, 2, 4, 7, 8},
              kBlockStrips[] = {1, 2, 4, 8, 16}, kBlockRows[] = {1, 2, 4, 8, 16};

// Columns that a strip of pixels reads.
std::int64_t reach(const Convolution& conv, std::int64_t columns) {
  return (columns - 1) * conv.stride.w + (conv.taps.w - 1) * conv.dilation.w + 1;
}

std::int64_t strips_blocks(const Strips& t, const Convolution& conv) {
  return ceil_div(conv.outputs, t.block_channels()) * ceil_div(conv.out_size.w, t.block_columns()) *
         ceil_div(conv.out_size.h, t.rows) * conv.images;
}

// Sums, weights of a row and what is read of one are in registers together.
int strips_registers(const Strips& t, const Convolution& conv, std::int64_t item_bytes) {
  const auto of = [&](std::int64_t elements, std::int64_t bytes) {
    return static_cast<int>(ceil_div(elements * t.channels * bytes, 4));
  };
  constexpr int kOthers = 40;
  return of(t.columns, 4) + of(conv.taps.w, 4) + of(reach(conv, t.columns), item_bytes) + kOthers;
}

std::string strips_fault(const Strips& t, const Convolution& conv, std::int64_t item_bytes) {
  if (t.threads() < 32 || t.threads() > 512) return "32 to 512 threads";
  if (t.columns > 1 && t.columns >= 2 * conv.out_size.w) return "strips longer than rows";
  if (t.strips > 1 && t.block_columns() >= 2 * conv.out_size.w) return "strips beyond the rows";
  if (t.rows > 1 && t.rows >= 2 * conv.out_size.h) return "more rows than the result has";
  if (strips_registers(t, conv, item_bytes) > 200) return "more registers than there are";
  return {};
}

// A thread reads pixels for every row of the window, brings them to float32, reads weights and
// multiplies; then it finishes its pixels.
double instructions_of(const Strips& t, const Convolution& conv, const ConvWork& work) {
  const auto columns = static_cast<double>(t.columns), channels = static_cast<double>(t.channels);
  const auto taps = static_cast<double>(conv.taps.w);
  const auto read = static_cast<double>(std::min(reach(conv, t.columns), t.columns * conv.taps.w));
  constexpr double kLoop = 15, kPixel = 12, kOthers = 60;
  const double loads = std::ceil(channels * work.item_bytes / 16),
               weights = std::ceil(channels / 4);
  const double converted = work.item_bytes < 4 ? channels : 0;
  const double of_row = read * (loads + converted) + taps * weights + columns * taps * channels;
  return static_cast<double>(conv.taps.h) * (of_row + kLoop) + columns * (kPixel + 2 * channels) +
         kOthers;
}

TimeParts strips_model(const Strips& t, const ConvWork& work, const Convolution& conv,
                       const Machine& machine) {
  const auto& times = machine.times.conv_tiles;
  const double processors = machine.device.multiprocessors;
  const double blocks = static_cast<double>(strips_blocks(t, conv)) / processors;
  const double channels = static_cast<double>(t.block_channels());
  // What comes to a block: rows and columns around its pixels, too.
  const auto rows =
      static_cast<double>((t.rows - 1) * conv.stride.h + (conv.taps.h - 1) * conv.dilation.h + 1);
  const double bytes =
      rows * static_cast<double>(reach(conv, t.block_columns())) * channels * work.item_bytes;
  const double gbps = times.cache_share * machine.l2_gbps / processors;
  const double turns = 0.5 * (std::ceil(blocks) + std::max(blocks, 1.));
  // A multiply-add is an instruction, of which there are half as many as operations.
  const double rate = times.depthwise_share * machine.f32_tflops / 2 / processors;
  const double multiply = turns * t.threads() * instructions_of(t, conv, work) / rate / 1e6;
  const double copy = turns * bytes / gbps / 1e3;
  // A row of the window follows another, each after what it reads has come.
  const double least =
      times.depthwise_us + times.depthwise_row_us * static_cast<double>(conv.taps.h);
  const double compute = std::max({multiply, copy, least});
  const double memory = work.bytes / conv_gbps(work, machine) / 1e3;
  return {machine.launch_us + std::max(compute, memory), multiply, 0, memory, copy};
}

Schedule schedule_of(const Strips& t) {
  return {
      "window_depthwise",
      {{"channels", t.channels}, {"columns", t.columns}, {"strips", t.strips}, {"rows", t.rows}}};
}

Strips strips_of(const Schedule& schedule) {
  const auto number = [&](std::string_view name) { return schedule.value(name).value_or(1); };
  return {number("channels"), number("columns"), number("strips"), number("rows")};
}

ConvWork depthwise_work(const Graph& graph, const Group& group, const Convolution& conv) {
  ConvWork work = conv_work(graph, group, conv);
  const double packing = packing_bytes(graph, conv);  // nothing is packed but weights
  work.depth = conv.depth();
  work.bytes -= packing, work.packing_bytes -= packing, work.packings -= packing > 0;
  return work;
}

Strips choose_strips(const ConvWork& work, const Convolution& conv, const Machine& machine) {
  Strips best;
  double least = std::numeric_limits<double>::infinity();
  const auto item = static_cast<std::int64_t>(work.item_bytes);
  for (const int channels : kThreadChannels)
    for (const int columns : kThreadColumns)
      for (const int strips : kBlockStrips)
        for (const int rows : kBlockRows) {
          const Strips t{channels, columns, strips, rows};
          if (!strips_fault(t, conv, item).empty()) continue;
          const double time = strips_model(t, work, conv, machine).total;
          if (time < least) best = t, least = time;
        }
  return best;
}

bool is_depthwise(const Convolution& conv) {
  constexpr std::int64_t kWidest = 64;  // columns of a window: the loop over them is unrolled
  return conv.groups > 1 && conv.groups == conv.channels && conv.groups == conv.outputs &&
         conv.dtype != f64 && conv.stride.w <= 4 && conv.taps.w <= 16 &&
         (conv.taps.w - 1) * conv.dilation.w < kWidest;
}

Space depthwise_space(const Graph& graph, const Group& group, const Convolution& conv,
                      const Machine& machine) {
  const ConvWork work = depthwise_work(graph, group, conv);
  const auto item = static_cast<std::int64_t>(work.item_bytes);
  Space space;
  space.sketches = {{"window_depthwise",
                     {{"channels", {std::begin(kThreadChannels), std::end(kThreadChannels)}},
                      {"columns", {std::begin(kThreadColumns), std::end(kThreadColumns)}},
                      {"strips", {std::begin(kBlockStrips), std::end(kBlockStrips)}},
                      {"rows", {std::begin(kBlockRows), std::end(kBlockRows)}}}}};
  space.fault = [=](const Schedule& s) { return strips_fault(strips_of(s), conv, item); };
  space.model_us = [=](const Schedule& s) {
    return strips_model(strips_of(s), work, conv, machine).total;
  };
  space.features = [=](const Schedule& schedule) {
    const Strips t = strips_of(schedule);
    const ConvTiles tiles{static_cast<int>(t.block_columns()) * t.rows,
                          static_cast<int>(t.block_channels()), 1, work.depth};
    Features f = features_of(work, tiles, strips_model(t, work, conv, machine), machine);
    f.sketch = schedule.sketch;
    f.threads = t.threads();
    f.registers = strips_registers(t, conv, item);
    f.blocks = static_cast<double>(strips_blocks(t, conv));
    return f.values();
  };
  space.choose(schedule_of(choose_strips(work, conv, machine)));
  return space;
}

std::optional<double> estimate_depthwise(const Graph& graph, const Group& group,
                                         const Convolution& conv, const Machine& machine) {
  if (!is_depthwise(conv)) return std::nullopt;
  const ConvWork work = depthwise_work(graph, group, conv);
  return strips_model(choose_strips(work, conv, machine), work, conv, machine).total;
}

void add_strips(Extents& numbers, const LaidOutGraph& laid, const Convolution& conv,
                const Strips& t, std::int64_t row) {
  const auto type = [&](ValueId id) { return std::string(device_type(laid.graph.type(id).dtype)); };
  const ImageSteps s = image_steps(laid, conv.image);
  numbers.text("using Image = " + type(conv.image) + ";");
  numbers.text("using Weight = " + (conv.is_constant ? "float" : type(conv.weight)) + ";");
  numbers.flag("kIsPacked", lies_in_chunks(laid, conv));
  numbers.constant("kCount", t.channels);
  numbers.constant("kColumns", t.columns);
  numbers.constant("kStrips", t.strips);
  numbers.constant("kRows", t.rows);
  numbers.constant("kTapRows", conv.taps.h);
  numbers.constant("kTapColumns", conv.taps.w);
  numbers.constant("kStrideX", conv.stride.w);
  numbers.constant("kDilationX", conv.dilation.w);
  numbers.numbers("k", conv.size, "Height", "Width");
  numbers.numbers("kOut", conv.out_size, "Height", "Width");
  numbers.number("kImageStep", s.image);
  numbers.number("kChannelStep", s.channel);
  numbers.number("kRowStep", s.row);
  numbers.constant("kColumnStep", s.column);
  numbers.number("kStrideY", conv.stride.h);
  numbers.number("kDilationY", conv.dilation.h);
  numbers.numbers("kPad", conv.padding, "Y", "X");
  numbers.number("kOutputs", conv.outputs);
  numbers.constant("kWeightRow", row);
  numbers.divisor("kChannelBlocks", ceil_div(conv.outputs, t.block_channels()));
  numbers.divisor("kStripBlocks", ceil_div(conv.out_size.w, t.block_columns()));
  numbers.divisor("kRowBlocks", ceil_div(conv.out_size.h, t.rows));
}

Lowered lower_depthwise(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
                        const Machine& machine) {
  const Strips t = group.schedule.empty()
                       ? choose_strips(depthwise_work(laid.graph, group, conv), conv, machine)
                       : strips_of(Schedule::parse(group.schedule));
  const std::int64_t row = round_up(conv.outputs, 8);
  Lowered lowered;
  WeightForm form = outputs_as_columns(conv, row);
  form.is_wide = conv.is_constant;
  const Pointer weights = add_weights(lowered, laid, group, conv, form, machine);
  ConvLaunch launch;
  launch.header = "conv_depthwise.h";
  launch.problem = Extents(machine.any_extent);
  add_strips(launch.problem, laid, conv, t, row);
  launch.run = "ConvDepthwise<Problem, E>::run(problem, image, weights, epilogue);";
  launch.parameters = {"const Problem::Image* image", "const Problem::Weight* weights"};
  launch.arguments = {operand_pointer(laid, group, conv.image), weights};
  launch.threads = t.threads();
  launch.resident = 1;
  launch.blocks = strips_blocks(t, conv);
  const std::string tile = "_" + std::to_string(conv.taps.h) + "x" + std::to_string(conv.taps.w) +
                           "_c" + std::to_string(t.channels) + "_w" + std::to_string(t.columns) +
                           "x" + std::to_string(t.strips) + "_h" + std::to_string(t.rows);
  add_calls(lowered, std::move(launch), laid, group, conv,
            "conv_depthwise_" + std::string(name(conv.dtype)) + tile, machine);
  return lowered;
}

}  // namespace

const ConvWay kConvDepthwise = {estimate_depthwise, lower_depthwise, depthwise_space,
                                "window_depthwise"};

}  // namespace tensor::cuda
