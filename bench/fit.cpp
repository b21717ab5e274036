// Coordinate descent on the constants of one part of the time models.
#include "bench/fit.h"

#include <algorithm>
#include <cmath>

#include "src/kernels/cuda/family.h"
#include "src/tune/table.h"

namespace bench {

namespace cuda = tensor::cuda;
using cuda::TimeModel;
using tensor::Isolated, tensor::Measurement, tensor::Schedule, tensor::Space;

namespace {

constexpr std::string_view kParts[] = {"gemm_sm90",     "gemm_tiles",      "attention_sm90",
                                       "attention_mma", "attention_plain", "conv_sm90",
                                       "conv_tiles",    "generated"};

// Whose constants a schedule's time depends on, beside the rates.
std::string_view part_of(std::string_view family, const Schedule& schedule) {
  if (family == "gemm_sm90" || family == "attention_sm90" || family == "attention_plain")
    return family;
  if (family.starts_with("gemm")) return "gemm_tiles";
  if (family == "attention_mma" || family == "softmax_mma") return "attention_mma";
  if (family == "conv") return schedule.sketch == "window_tma" ? "conv_sm90" : "conv_tiles";
  return "generated";
}

const cuda::Family* family_of(std::string_view name) {
  const auto all = cuda::cuda_families();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const cuda::Family& family) { return family.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<double> modelled(const TimedProblem& problem, const cuda::Machine& machine) {
  std::vector<double> result(problem.microseconds.size(), 0);
  const cuda::Family* family = family_of(problem.family);
  const auto way = family ? family->consider(problem.alone, machine) : std::nullopt;
  if (!way) return result;
  const Space space = way->space ? way->space() : Space();
  for (std::size_t i = 0; i < result.size(); ++i) {
    const Schedule& schedule = problem.microseconds[i].first;
    if (schedule.sketch.empty())
      result[i] = way->microseconds;
    else if (way->space && space.has(schedule))
      result[i] = way->microseconds - space.model_us(space.chosen) + space.model_us(schedule);
  }
  return result;
}

// Three digits: no log says more.
double rounded(double x) {
  const double unit = std::pow(10, std::floor(std::log10(x)) - 2);
  return std::round(x / unit) * unit;
}

}  // namespace

std::span<const std::string_view> fitted_parts() { return kParts; }

std::vector<TimedProblem> timed_problems(std::span<const Measurement> lines,
                                         const std::map<std::string, Isolated>& problems,
                                         std::string_view part) {
  std::map<std::pair<std::string, std::string>, TimedProblem> all;  // by problem and family
  for (const Measurement& m : lines) {
    const auto known = problems.find(m.problem);
    if (known == problems.end() || !m.error.empty() || m.microseconds.empty()) continue;
    const Schedule schedule = m.schedule.empty() ? Schedule() : Schedule::parse(m.schedule);
    if (part_of(m.family, schedule) != part) continue;
    const auto [at, is_new] =
        all.try_emplace({m.problem, m.family}, TimedProblem{known->second, m.family, {}});
    at->second.microseconds.emplace_back(schedule, tensor::median(m.microseconds));
  }
  std::vector<TimedProblem> result;
  for (auto& [key, problem] : all) result.push_back(std::move(problem));
  return result;
}

std::vector<std::vector<double>> modelled(std::span<const TimedProblem> problems,
                                          const cuda::DeviceInfo& device, const TimeModel& times) {
  const cuda::Machine machine = cuda::machine_of(device, times);
  std::vector<std::vector<double>> result;
  for (const TimedProblem& problem : problems) result.push_back(modelled(problem, machine));
  return result;
}

double spread(std::span<const TimedProblem> problems, const cuda::DeviceInfo& device,
              const TimeModel& times) {
  const auto all = modelled(problems, device, times);
  double sum = 0;
  int count = 0;
  for (std::size_t p = 0; p < problems.size(); ++p)
    for (std::size_t i = 0; i < all[p].size(); ++i) {
      if (all[p][i] <= 0) continue;
      const double error = std::log(problems[p].microseconds[i].second / all[p][i]);
      sum += error * error, ++count;
    }
  return count > 0 ? std::sqrt(sum / count) : 0;
}

TimeModel fitted(std::span<const TimedProblem> problems, const cuda::DeviceInfo& device,
                 TimeModel times, std::string_view part) {
  constexpr double kFirst = 1.25, kLast = 1.01, kWorth = 1e-3;  // of the spread
  double least = spread(problems, device, times);
  const auto try_step = [&](const cuda::TimeParameter& parameter, double factor) {
    double& value = parameter.of(times);
    const double before = value;
    value = rounded(before * factor);
    const double now = spread(problems, device, times);
    if (now < least * (1 - kWorth)) {
      least = now;
      return true;
    }
    value = before;
    return false;
  };
  for (double step = kFirst; step > kLast; step = std::sqrt(step))
    for (bool is_better = true; is_better;) {
      is_better = false;
      for (const cuda::TimeParameter& parameter : cuda::time_parameters())
        if (parameter.name.starts_with(std::string(part) + '.'))
          is_better |= try_step(parameter, step) || try_step(parameter, 1 / step);
    }
  return times;
}

}  // namespace bench
