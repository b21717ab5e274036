// The conv family: a convolution with its epilogue, in the fastest of the ways that can run it.
#include "src/kernels/cuda/conv/conv.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>

#include "src/core/rounding.h"
#include "src/kernels/cuda/families.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

constexpr std::int64_t kStepChannels = 64;  // of 16 bits, of wgmma

constexpr const ConvWay* kWays[] = {&kConvSm90, &kConvMma, &kConvTiled, &kConvDepthwise,
                                    &kConvDirect};

// A convolution and all ways that can run it, each with its time.
struct Ways {
  std::shared_ptr<const Isolated> alone;
  Convolution conv;
  Machine machine;
  std::vector<std::pair<const ConvWay*, double>> all;
  std::pair<const ConvWay*, double> best;

  const Graph& graph() const { return alone->laid.graph; }
  const Space& space() const;
  Lowered lower(const Isolated& one) const;

 private:
  Space joined_space() const;
  mutable std::once_flag is_joined_;
  mutable Space joined_;
};

// On Hopper its own instructions, where they can: of 45 convolutions of DETR, ViT and SETR of which
// schedules of both ways were measured, none was faster with mma.sync, and most took twice as long.
// Of channels that do not fill its steps the models tell.
std::shared_ptr<const Ways> ways_of(const Isolated& alone, Convolution conv,
                                    const Machine& machine) {
  const auto ways = std::make_shared<Ways>();
  ways->alone = std::make_shared<const Isolated>(alone);
  ways->conv = std::move(conv), ways->machine = machine;
  for (const ConvWay* way : kWays) {
    if (ways->conv.dtype == i8 && way != &kConvSm90) continue;
    const auto time = way->estimate(ways->graph(), alone.group, ways->conv, machine);
    if (!time) continue;
    ways->all.emplace_back(way, *time);
    const bool fills_steps = ways->conv.groups > 1 || ways->conv.channels % kStepChannels == 0 ||
                             reads_patches(ways->graph(), ways->conv);
    const bool is_hopeless = fills_steps && way == &kConvMma && ways->best.first == &kConvSm90;
    if (!ways->best.first || (!is_hopeless && *time < ways->best.second)) ways->best = {way, *time};
  }
  return ways;
}

// The sketches of all ways that might be the fastest: the models do not err by more.
constexpr double kNear = 1.5;

const Space& Ways::space() const {
  std::call_once(is_joined_, [this] { joined_ = joined_space(); });
  return joined_;
}

Space Ways::joined_space() const {
  std::map<std::string, Space, std::less<>> spaces;
  Space joined;
  for (const auto& [way, time] : all) {
    if (!way->space || time > kNear * best.second) continue;
    Space one = way->space(graph(), alone->group, conv, machine);
    joined.sketches.insert(joined.sketches.end(), one.sketches.begin(), one.sketches.end());
    if (way == best.first) joined.chosen = one.chosen;
    spaces.emplace(way->sketch, std::move(one));
  }
  const auto shared = std::make_shared<const decltype(spaces)>(std::move(spaces));
  joined.fault = [shared](const Schedule& s) { return shared->at(s.sketch).fault(s); };
  joined.impossible = [shared](const Schedule& s) {
    const Space& one = shared->at(s.sketch);
    return one.impossible ? one.impossible(s) : one.fault(s);
  };
  joined.model_us = [shared](const Schedule& s) { return shared->at(s.sketch).model_us(s); };
  joined.features = [shared](const Schedule& s) { return shared->at(s.sketch).features(s); };
  return joined;
}

// The way is the one that the group's schedule names, if it is one for this problem; otherwise the
// fastest.
Lowered Ways::lower(const Isolated& one) const {
  Group group = one.group;
  const ConvWay* chosen = best.first;
  if (!best.first->space) {
    group.schedule.clear();
  } else if (!group.schedule.empty()) {
    const Schedule schedule = space().of(group.schedule);
    group.schedule = schedule.text();
    for (const auto& [way, time] : all)
      if (way->space && way->sketch == schedule.sketch) chosen = way;
  }
  return chosen->lower(one.laid, group, conv, machine);
}

std::optional<Implementation> consider(const Isolated& alone, const Machine& machine) {
  auto conv = match_convolution(alone.laid.graph, alone.group);
  if (!conv) return std::nullopt;
  const auto ways = ways_of(alone, std::move(*conv), machine);
  if (!ways->best.first) return std::nullopt;
  Implementation implementation{ways->best.second,
                                [ways](const Isolated& group) { return ways->lower(group); }};
  if (ways->best.first->space) implementation.space = [ways] { return ways->space(); };
  return implementation;
}

// Of the image's pixels those that no window has: windows that are smaller than their steps.
double skipped_bytes(const Graph& graph, const Convolution& conv) {
  const auto share = [](std::int64_t taps, std::int64_t stride) {
    return std::min(1., static_cast<double>(taps) / static_cast<double>(stride));
  };
  const double bytes = static_cast<double>(num_elements(graph.type(conv.image).shape) *
                                           item_size(graph.type(conv.image).dtype));
  return bytes * (1 - share(conv.taps.h, conv.stride.h) * share(conv.taps.w, conv.stride.w));
}

}  // namespace

ConvWork conv_work(const Graph& graph, const Group& group, const Convolution& conv) {
  const Work work = work_of(graph, group);
  const double image = packing_bytes(graph, conv), weights = weight_packing_bytes(graph, conv);
  return {conv.pixels(),
          conv.outputs,
          product_depth(graph, conv),
          static_cast<double>(item_size(conv.dtype)),
          work.flops,
          work.bytes - skipped_bytes(graph, conv) + image + weights,
          conv.groups > 1 ? conv.group_outputs : 0,
          (image > 0) + (weights > 0),
          image + weights,
          epilogue_work(graph, group, conv.code, conv.elementwise, conv.pixels() * conv.outputs)};
}

double conv_gbps(const ConvWork& work, const Machine& machine) {
  return is_cached(machine, work.bytes) ? machine.l2_gbps : machine.memory_gbps;
}

TimeParts model_conv_tiles(const ConvWork& work, const ConvTiles& tiles, const Machine& machine) {
  const auto& times = machine.times.conv_tiles;
  const auto tiles_along = [](std::int64_t n, int tile) {
    return static_cast<double>(ceil_div(n, tile));
  };
  const double processors = machine.device.multiprocessors;
  const double blocks = tiles.parts * tiles_along(work.pixels, tiles.pixels) *
                        tiles_along(work.outputs, tiles.outputs) / processors;
  // Of a multiprocessor; the last ones have it to themselves.
  const double turns = 0.5 * (std::ceil(blocks) + std::max(blocks, 1.));
  const double resident = std::min<double>(tiles.resident, std::ceil(blocks));
  const double rounds = std::ceil(blocks / tiles.resident);
  const double depth = static_cast<double>(tiles.depth) / tiles.parts;
  const double multiply =
      2. * tiles.pixels * tiles.outputs * depth / (tiles.tflops / processors) / 1e6;
  const double rate = std::min(times.cache_share * machine.l2_gbps / processors,
                               resident * tiles.ahead_kib * 1.024 / times.latency_us);
  const double copy = (tiles.pixels + tiles.outputs) * depth * work.item_bytes / rate / 1e3;
  const double compute =
      turns * std::max(multiply, copy) +
      times.fill_us * (1 + (rounds - 1) * (tiles.resident == 1 ? 1 : times.later_fill));
  const double memory = work.bytes / conv_gbps(work, machine) / 1e3;
  const double overlap = tiles.resident == 1 ? times.overlap_of_one : times.overlap;
  double time =
      machine.launch_us + std::max(compute, memory) + (1 - overlap) * std::min(compute, memory);
  if (tiles.parts > 1)
    time += times.add_us + static_cast<double>(tiles.parts * work.pixels * work.outputs) *
                               sizeof(float) / times.add_gbps / 1e3;
  const double finish = time - machine.launch_us - std::max(compute, memory);
  time += work.packings * (machine.launch_us + times.packing_us);
  return {time, turns * multiply, finish, memory, turns * copy};
}

Features features_of(const ConvWork& work, const ConvTiles& tiles, const TimeParts& time,
                     const Machine& machine) {
  const auto along = [](std::int64_t extent, int tile) {
    return std::ceil(static_cast<double>(extent) / tile);
  };
  Features f;
  f.rows = static_cast<double>(work.pixels), f.columns = static_cast<double>(work.outputs);
  f.depth = static_cast<double>(tiles.depth);
  f.flops = work.flops, f.memory_bytes = work.bytes, f.item_bytes = work.item_bytes;
  f.operations = work.epilogue.operations, f.read_bytes = work.epilogue.read_bytes;
  f.written_bytes = work.epilogue.written_bytes;
  f.tile_rows = tiles.pixels, f.tile_columns = tiles.outputs, f.splits = tiles.parts;
  f.resident = tiles.resident;
  const double count = along(work.pixels, tiles.pixels) * along(work.outputs, tiles.outputs);
  f.blocks = count * tiles.parts;
  f.cache_bytes = count * f.depth * work.item_bytes * (tiles.pixels + tiles.outputs);
  f.time = time;
  set_machine(f, machine);
  return f;
}

const Family kConv = {"conv", consider};

}  // namespace tensor::cuda
