// Plan timer: how long a whole model takes by each of several plans. Kernels overlap with their
// neighbours and share the cache with them, so that the fastest one alone is not always the fastest
// in its place.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "src/runtime/target.h"
#include "src/trace/layout.h"
#include "src/tune/worker.h"

namespace tensor {

/// Ways to divide one model into groups.
using Partitions = std::vector<std::pair<LaidOutGraph, FusionPlan>>;

/// One of the partitions, whose groups have other families and schedules.
struct Variant {
  std::size_t partition = 0;
  FusionPlan plan;
};

/// Microseconds of the whole model by each variant: the medians of rounds in which all of them are
/// timed by turns, as many for each; none of one that fails, or that it was stopped before. Rounds
/// are longer where the model slows down as it runs: a GPU that reaches its power limit lowers its
/// clock, and whoever runs the model again and again has that clock. Models that take long have
/// fewer rounds.
using TimePlans =
    std::function<std::vector<std::vector<double>>(std::span<const Variant> variants)>;

/// In a child process.
TimePlans plan_timer(Partitions partitions, detail::Target target, Worker::Stop stop);

/// Whether the last of a model's runs, one after the other, take longer than the first, by more
/// than chance.
bool slows_down(std::span<const double> times);

/// Whether times are below others of the same rounds by more than chance and the least gain that
/// matters: in all rounds but one, of fewer than five in all, and by a share of `gain` in the
/// median.
bool is_faster(std::span<const double> times, std::span<const double> others, double gain = 0.002);

/// What is faster than the first of several variants, and the times of both.
struct Faster {
  std::size_t best = 0;  // or the first itself, without times
  std::vector<double> before, after;
};

/// The fastest of them is timed once more, beside the first alone: of several that are about as
/// fast, one is likely to look faster in the first rounds by chance.
Faster find_faster(const std::vector<Variant>& variants, const TimePlans& time);

}  // namespace tensor
