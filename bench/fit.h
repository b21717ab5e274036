// Fitting the constants of the time models (src/kernels/cuda/time_model.h) to logs.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/kernels/cuda/machine.h"
#include "src/kernels/schedule.h"
#include "src/trace/isolate.h"
#include "src/tune/log.h"

namespace bench {

/// A problem, and what schedules of one family took of it.
struct TimedProblem {
  tensor::Isolated alone;
  std::string family;
  std::vector<std::pair<tensor::Schedule, double>> microseconds;  // one without a sketch: the only
};

/// What is fitted by itself, by the first word of its constants' names. "rates" are no such part:
/// they belong to all, and follow from a GPU's ceilings.
std::span<const std::string_view> fitted_parts();

/// The medians of a part's lines whose problems are known, of a device; schedules with errors left
/// out.
std::vector<TimedProblem> timed_problems(std::span<const tensor::Measurement> lines,
                                         const std::map<std::string, tensor::Isolated>& problems,
                                         std::string_view part);

/// What the models make of the schedules, problem by problem, on a GPU with these constants: as the
/// families estimate them, launch included. 0 where there is no such kernel.
std::vector<std::vector<double>> modelled(std::span<const TimedProblem> problems,
                                          const tensor::cuda::DeviceInfo& device,
                                          const tensor::cuda::TimeModel& times);

/// The root of the mean square of log(measured / modelled): 0.1 is about 10 %.
double spread(std::span<const TimedProblem> problems, const tensor::cuda::DeviceInfo& device,
              const tensor::cuda::TimeModel& times);

/// The constants of a part, one after the other, by steps of a quarter and less, as long as the
/// spread falls: those that nothing tells of stay as they are.
tensor::cuda::TimeModel fitted(std::span<const TimedProblem> problems,
                               const tensor::cuda::DeviceInfo& device,
                               tensor::cuda::TimeModel times, std::string_view part);

}  // namespace bench
