// A file of time models' constants (src/kernels/cuda/times), fitted to logs.
#include <algorithm>
#include <iostream>
#include <set>

#include "bench/fit.h"
#include "bench/main.h"
#include "bench/nine_models.h"
#include "bench/wanted_problems.h"
#include "src/compile.h"
#include "src/kernels/cuda/time_model.h"

namespace tensor {
namespace {

constexpr const char* kHelp =
    "usage: fit_times [--capability=90] --device=NAME LOG... > TIMES\n"
    "Prints the constants of the time models as src/kernels/cuda/times has them, fitted to what\n"
    "logs say of this device (\"NVIDIA H200\"), and on the error stream how far models and\n"
    "measurements are apart before and after. Lines of subgraphs of the nine models with one,\n"
    "eight and 64 images count. What no line tells of stays as it is: the file of the device,\n"
    "or the typical one. --capability is the GPU's, 90 for 9.0.\n";

void run(int argc, char** argv) {
  std::string device, capability = "90";
  const std::vector<std::string> logs = bench::take_options(
      argc, argv,
      {{"--device=", [&](const std::string& value) { device = value; }},
       {"--capability=", [&](const std::string& value) { capability = value; }}},
      kHelp);
  if (logs.empty() || device.empty()) fail("fit_times", "got no device or no log\n", kHelp);
  std::vector<Measurement> lines = read_logs(logs).measurements;
  std::erase_if(lines, [&](const Measurement& m) { return m.device != device; });
  std::set<std::string> problems;
  for (const Measurement& m : lines) problems.insert(m.problem);
  constexpr std::string_view kKnown[] = {"75", "80", "86", "89", "90", "100", "120"};
  if (std::find(std::begin(kKnown), std::end(kKnown), capability) == std::end(kKnown))
    fail("--capability", "got \"", capability, "\", need 75, 80, 86, 89, 90, 100 or 120");
  cuda::DeviceInfo info = cuda::typical_device(bench::number<int>("--capability", capability));
  info.name = device;
  detail::Target target = detail::cuda_target(info);
  bench::WantedProblems wanted(std::move(problems), target);
  for (const int batch : {1, 8, 64})
    for (const bench::Case& model : bench::cases(bench::nine_models(), batch)) {
      const bench::Workload work = model.make(f16);
      wanted.add_model(detail::prepare(work.function, {work.inputs[0].type()},
                                       {.device = "cuda", .dtype = f16}, target)
                           .laid);
    }
  cuda::TimeModel times = cuda::time_model_of(device);
  for (const std::string_view part : bench::fitted_parts()) {
    const auto timed = bench::timed_problems(lines, wanted.found(), part);
    const double before = bench::spread(timed, info, times);
    times = bench::fitted(timed, info, times, part);
    std::cerr << part << ": " << timed.size() << " problems, spread " << before << ", now "
              << bench::spread(timed, info, times) << '\n';
  }
  for (const auto& [name, text] : cuda::time_model_files())
    if (name == "typical.txt") std::cout << cuda::time_model_text(times, text);
}

}  // namespace
}  // namespace tensor

int main(int argc, char** argv) {
  return bench::run_main(argc, argv, tensor::kHelp, [&] { tensor::run(argc, argv); });
}
