// tune: the stages of compile() up to fusion, then the tuner on the device that was asked for.
#include "tensor/tune.h"

#include <cmath>
#include <filesystem>

#include "src/compile.h"
#include "src/core/parallel.h"
#include "src/tune/cpu_measurer.h"
#include "src/tune/gpu_measurer.h"
#include "src/tune/tuned_cost.h"
#include "src/tune/tuner.h"

namespace tensor {
namespace {

// A kernel runs for milliseconds; what takes seconds hangs, or is the compiler, or copies the
// operands of a large problem. Its reference may take its time before.
constexpr Worker::Limits kOnCpu{.item_seconds = 30, .idle_seconds = 600},
    kOnGpu{.item_seconds = 20, .idle_seconds = 600};

Tuner::MakeMeasurer measures_on_cpu(const cpu::Machine& machine) {
  return [=](const auto& problems, auto stop) {
    return std::make_unique<ChildMeasurer>(cpu_measuring(machine, problems), kOnCpu,
                                           std::move(stop));
  };
}

Tuner::MakeMeasurer measures_on_gpu(int index) {
  return [=](const auto& problems, auto stop) {
    return std::make_unique<ChildMeasurer>(gpu_measuring(index, problems), kOnGpu, std::move(stop));
  };
}

Tuner::MakeTimer times_on(const detail::Target& target) {
  return [=](const auto& partitions, auto stop) {
    return plan_timer(partitions, target, std::move(stop));
  };
}

// On a target that these instruments measure.
TuneSummary tune_target(const TensorFunction& function, const std::vector<TensorType>& inputs,
                        const CompileOptions& options, const TuneOptions& tuning,
                        detail::Target target, Tuner::Limits limits,
                        const Tuner::Instruments& instruments) {
  Fusible fusible = detail::prepare(function, inputs, options, target);
  const std::string path = tuning.log.empty() ? standard_log() : tuning.log;
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error)
    fail(path, "the folder cannot be made: ", error.message(),
         ": name another log (--tune-log), or for the default one a folder with TENSOR_CACHE_DIR");
  Log log(path);
  std::vector<Measurement> known = known_measurements(options.tune_logs);
  if (options.tune_logs || path != standard_log()) {
    std::vector<Measurement> own = read_log(path).measurements;
    std::move(own.begin(), own.end(), std::back_inserter(known));
  }
  limits.fuse = options.fuse;
  return Tuner(std::move(fusible), std::move(target), tuning, limits, std::move(known), log,
               instruments)
      .run();
}

void validate(const TuneOptions& tuning, const CompileOptions& options) {
  if (!options.devices.empty())
    fail("tune", "got ", options.devices.size(), " devices, need one, in device: what is measured ",
         "on a GPU counts for all of its model. Tune for inputs as large as the part of one");
  if (!(tuning.seconds >= 0) || std::isinf(tuning.seconds) || tuning.trials < 0)
    fail("tune", "got ", tuning.seconds, " s and ", tuning.trials, " schedules, need 0 or more");
  if (!(tuning.goal_us >= 0))
    fail("tune", "got a goal of ", tuning.goal_us, " us, need 0 (none) or more");
}

}  // namespace

TuneSummary detail::tune(const TensorFunction& function, const std::vector<TensorType>& inputs,
                         const CompileOptions& options, const TuneOptions& tuning,
                         const Ablation& ablation, const RecordOptions& record) {
  validate(tuning, options);
  Tuner::Limits limits{.ablation = ablation, .record = record};
  if (options.device.is_cuda()) {
    const int index = options.device.index();
    limits.first = 4, limits.slot = 16, limits.side_by_side = 2, limits.overlap = true;
    const Target target = cuda_target(ask_for_device(index));
    return tune_target(function, inputs, options, tuning, target, limits,
                       {measures_on_gpu(index), times_on(target)});
  }
  const cpu::Machine machine = cpu::this_machine(cpu::threads_within(options.threads));
  const Target target = cpu_target(machine);
  return tune_target(function, inputs, options, tuning, target, limits,
                     {measures_on_cpu(machine), times_on(target)});
}

TuneSummary tune(const TensorFunction& function, const std::vector<TensorType>& inputs,
                 const CompileOptions& options, const TuneOptions& tuning) {
  return detail::tune(function, inputs, options, tuning, Ablation());
}

std::string user_log() { return standard_log(); }

}  // namespace tensor
