// The conv family: a convolution with its epilogue, in the fastest of the ways that can run it.
#include "src/kernels/cuda/conv.h"

#include <algorithm>
#include <cmath>

#include "src/kernels/cuda/families.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

constexpr const ConvWay* kWays[] = {&kConvSm90, &kConvMma, &kConvTiled, &kConvDirect};

struct Choice {
  const ConvWay* way = nullptr;
  double microseconds = 0;
};

Choice choose(const Graph& graph, const Group& group, const Convolution& conv,
              const Machine& machine) {
  Choice best;
  for (const ConvWay* way : kWays)
    if (const auto time = way->estimate(graph, group, conv, machine);
        time && (best.way == nullptr || *time < best.microseconds))
      best = {way, *time};
  return best;
}

std::optional<double> estimate(const Graph& graph, const Group& group, const Machine& machine) {
  const auto conv = match_convolution(graph, group);
  if (!conv) return std::nullopt;
  return choose(graph, group, *conv, machine).microseconds;
}

Lowered lower(const LaidOutGraph& laid, const Group& group, const Machine& machine) {
  const auto conv = match_convolution(laid.graph, group);
  if (!conv) internal_error("conv", "the group was not accepted");
  return choose(laid.graph, group, *conv, machine).way->lower(laid, group, *conv, machine);
}

// The share of the multiprocessors that clusters of this size reach: their blocks run in one group
// of 16 or, rarely, 18 multiprocessors.
double reach_of_clusters(int blocks) {
  constexpr int kGroup = 16;
  return blocks <= 2 ? 1. : static_cast<double>(kGroup / blocks * blocks) / kGroup * 0.98;
}

}  // namespace

double tiles_us(const Graph& graph, const Group& group, const Convolution& conv,
                const Machine& machine, const ConvTiles& tiles) {
  // Of SETR-PUP's head on an H200: what comes from the second-level cache is under way for so long;
  // a block begins and ends; and parts are added up.
  constexpr double kLatencyUs = 1.7, kFillUs = 2, kAddUs = 3, kAddGbps = 2500;
  const auto tiles_along = [](std::int64_t n, int tile) {
    return std::ceil(static_cast<double>(n) / tile);
  };
  const double width = item_size(conv.dtype), processors = machine.device.multiprocessors;
  const double reach = tiles.in_cluster ? reach_of_clusters(tiles.parts) : 1;
  const double blocks = tiles.parts * tiles_along(conv.pixels(), tiles.pixels) *
                        tiles_along(conv.outputs, tiles.outputs) / (processors * reach);
  // Of a multiprocessor; the last ones have it to themselves.
  const double turns = 0.5 * (std::ceil(blocks) + std::max(blocks, 1.));
  const double resident = std::min<double>(tiles.resident, std::ceil(blocks));
  const double rounds = std::ceil(blocks / tiles.resident);
  const double depth = static_cast<double>(tiles.depth) / tiles.parts;
  const double multiply =
      2. * tiles.pixels * tiles.outputs * depth / (tiles.tflops / processors) / 1e6;
  const double rate = std::min(0.85 * machine.l2_gbps / processors,
                               resident * tiles.ahead_kib * 1.024 / kLatencyUs);
  const double copy = (tiles.pixels + tiles.outputs) * depth * width / rate / 1e3;
  const double compute = turns * std::max(multiply, copy) +
                         kFillUs * (1 + (rounds - 1) * (tiles.resident == 1 ? 1 : 0.3));
  const double bytes = work_of(graph, group).bytes + packing_bytes(graph, conv);
  // What the kernels just before wrote is still in the second-level cache if it is small.
  const double bandwidth = bytes < 0.5 * static_cast<double>(machine.device.l2_bytes)
                               ? machine.l2_gbps
                               : machine.memory_gbps;
  const double memory = bytes / bandwidth / 1e3, overlap = tiles.resident == 1 ? 0.4 : 0.75;
  double time =
      machine.launch_us + std::max(compute, memory) + (1 - overlap) * std::min(compute, memory);
  // In a cluster each block reads as many sums as a tile has.
  constexpr double kClusterUs = 1.5, kClusterGbps = 40;
  if (tiles.parts > 1 && tiles.in_cluster)
    time += kClusterUs + turns * tiles.pixels * tiles.outputs * sizeof(float) / kClusterGbps / 1e3;
  else if (tiles.parts > 1)
    time += kAddUs + static_cast<double>(tiles.parts * conv.pixels() * conv.outputs) *
                         sizeof(float) / kAddGbps / 1e3;
  if (packing_bytes(graph, conv) > 0) time += machine.launch_us + 1;
  return time;
}

const Family kConv = {"conv", estimate, lower};

}  // namespace tensor::cuda
