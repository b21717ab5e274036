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

}  // namespace

double tiles_us(const Graph& graph, const Group& group, const Convolution& conv,
                const Machine& machine, int tile_pixels, int tile_outputs, int parts,
                std::int64_t depth, double tflops, double overlap) {
  constexpr double kFillUs = 1.6;  // until the first tile is there, and from the last product on
  const auto tiles_along = [](std::int64_t n, int tile) {
    return std::ceil(static_cast<double>(n) / tile);
  };
  const double width = item_size(conv.dtype), processors = machine.device.multiprocessors;
  const double tiles =
      parts * tiles_along(conv.pixels(), tile_pixels) * tiles_along(conv.outputs, tile_outputs);
  const double waves = std::ceil(tiles / processors), part = static_cast<double>(depth) / parts;
  const double multiply = 2. * tile_pixels * tile_outputs * part / (tflops / processors) / 1e6;
  const double copy =
      (tile_pixels + tile_outputs) * part * width / (machine.l2_gbps / processors) / 1e3;
  const double bytes = work_of(graph, group).bytes + packing_bytes(graph, conv);
  // What the kernels just before wrote is still in the second-level cache if it is small.
  const double bandwidth = bytes < 0.5 * static_cast<double>(machine.device.l2_bytes)
                               ? machine.l2_gbps
                               : machine.memory_gbps;
  const double compute = waves * std::max(multiply, copy), memory = bytes / bandwidth / 1e3;
  double time = machine.launch_us + kFillUs + std::max(compute, memory) +
                (1 - overlap) * std::min(compute, memory);
  if (parts > 1)
    time += machine.launch_us + 1 +
            2. * parts * static_cast<double>(conv.pixels() * conv.outputs) * sizeof(float) /
                machine.l2_gbps / 1e3;
  if (packing_bytes(graph, conv) > 0) time += machine.launch_us + 1;
  return time;
}

const Family kConv = {"conv", estimate, lower};

}  // namespace tensor::cuda
