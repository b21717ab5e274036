// Preparing, timing and counting of one workload at a time.
#include "bench/bench.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>

#include "bench/commit.h"
#include "bench/main.h"
#include "src/kernels/cuda/driver/device.h"
#include "tensor/creation.h"
#include "tensor/text.h"
#include "tensor/threads.h"

namespace bench {

using tensor::Tensor;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// A workload that has run: compiled unless it is eager, its memory touched, its caches filled.
struct Prepared {
  Workload work;
  std::optional<tensor::Executable> executable;
  std::vector<Tensor> outputs;
  double compile_seconds = 0;
  std::int64_t gpu_bytes = 0;  // by the driver's count, the kernels' code included
  double error = 0;            // verified: the largest of a group, in parts of its bound

  void operator()() {
    if (executable)
      executable->run(work.inputs, outputs);
    else
      outputs = work.function(work.inputs);
  }
};

/// Of all GPUs that are used.
std::int64_t free_bytes(const Options& options) {
  std::int64_t bytes = 0;
  for (const tensor::Device& device : options.devices)
    if (device.is_cuda()) bytes += tensor::cuda::Device::get(device.index()).free_bytes();
  return bytes;
}

/// "cuda-x2" of two that divide a batch, "cuda-x2-products" of two that divide products.
std::string place_of(const Options& options) {
  const std::string kind = options.device.is_cuda() ? "cuda" : "cpu";
  const std::size_t count = options.devices.size();
  if (count <= 1) return kind;
  return kind + "-x" + std::to_string(count) +
         (options.divide == tensor::Divide::products ? "-products" : "");
}

/// Of "cuda:0,cuda:1".
void set_devices(Options& options, const std::string& text) {
  options.devices.clear();
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(',', begin);
    options.devices.emplace_back(std::string_view(text).substr(begin, end - begin));
  }
  options.device = options.devices.front();
}

tensor::Divide divide_of(const std::string& text) {
  if (text != "batch" && text != "products")
    tensor::fail("--divide", "got \"", text, "\", need batch or products");
  return text == "batch" ? tensor::Divide::batch : tensor::Divide::products;
}

/// The largest error of a group, in parts of what rounding explains; UserError if it is more.
double verified(const std::string& name, const Prepared& p) {
  double worst = 0;
  for (const tensor::GroupCheck& group : tensor::verify(*p.executable, p.work.inputs)) {
    if (!group.ok())
      tensor::fail(name, "group ", group.operators, " (", group.where, ") of kernel ", group.kernel,
                   " is wrong by ", group.error, ", need ", group.bound,
                   " at most: mend the kernel");
    worst = std::max(worst, group.error / group.bound);
  }
  return worst;
}

bool is_calibrated(tensor::DType dtype, const Options& options) {
  return options.calibrate && dtype == tensor::i8;
}

Prepared prepare(const Case& c, tensor::DType dtype, bool eager, const Options& options) {
  Prepared result{.work = c.make(dtype), .executable = {}, .outputs = {}};
  const std::int64_t free = free_bytes(options);
  const bool is_one = options.devices.size() <= 1;
  if (!eager) {
    tensor::CompileOptions how{.device = is_one ? options.device : tensor::Device(),
                               .devices = is_one ? std::vector<tensor::Device>() : options.devices,
                               .divide = options.divide,
                               .dtype = dtype,
                               .threads = options.threads,
                               .narrow_residuals = options.narrow_residuals,
                               .names = result.work.weights};
    if (is_calibrated(dtype, options))
      how.scales = tensor::calibrate(result.work.function, result.work.inputs, how);
    const Clock::time_point begin = Clock::now();
    result.executable = tensor::compile(result.work.function, result.work.inputs, how);
    result.compile_seconds = seconds_since(begin);
    for (const tensor::TensorType& type : result.executable->output_types())
      result.outputs.push_back(tensor::empty(type.shape, type.dtype));
    result();
  }
  result();
  result.gpu_bytes = free - free_bytes(options);
  if (options.verify && result.executable) result.error = verified(c.name, result);
  if (options.report && result.executable) result.executable->report(std::cerr, result.work.inputs);
  return result;
}

void count(benchmark::State& state, const Prepared& p, double seconds) {
  constexpr double kMega = 1e6;
  double weights = 0;
  for (const auto& [name, tensor] : p.work.weights) weights += static_cast<double>(tensor.nbytes());
  if (weights > 0) state.counters["weights_MB"] = weights / kMega;
  if (p.work.flops > 0)
    state.counters["GFLOP/s"] =
        p.work.flops * static_cast<double>(state.iterations()) / seconds / 1e9;
  if (!p.executable) return;
  state.counters["compile_ms"] = p.compile_seconds * 1e3;
  state.counters["groups"] = static_cast<double>(p.executable->group_count());
  state.counters["arena_MB"] = static_cast<double>(p.executable->arena_bytes()) / kMega;
  if (p.error > 0) state.counters["error/bound"] = p.error;
  if (p.gpu_bytes > 0) state.counters["GPU_MB"] = static_cast<double>(p.gpu_bytes) / kMega;
}

void time_on_device(benchmark::State& state, Prepared& p) {
  const std::vector<double> times =
      p.executable->time(p.work.inputs, static_cast<int>(state.max_iterations));
  double seconds = 0;
  for (std::size_t i = 0; state.KeepRunning(); ++i) {
    state.SetIterationTime(times[i] * 1e-6);
    seconds += times[i] * 1e-6;
  }
  count(state, p, seconds);
}

constexpr const char* kHelp =
    "--threads=N  threads of compiled functions (one a core)\n"
    "--batch=N    images at a time, for models (1)\n"
    "--verify     compares every group of compiled functions with the eager operators first\n"
    "--report     prints where the time of compiled functions goes (docs/report.md)\n"
    "--eager      models on the reference operators, too\n"
    "--device=D   cpu, cuda or cuda:1 (cpu), or cuda:0,cuda:1, which divide the batch\n"
    "--copies     on GPUs whole calls, copies from and to the host's memory included\n"
    "--divide=D   what these divide: batch, or products, by NCCL (batch)\n"
    "--narrow-residuals   models in bf16 and f16 store the residual stream so, too\n"
    "--calibrate  models in i8 have one scale for each product's activations\n"
    "and the options of Google Benchmark, which --help lists.\n\n";

void print_help() {
  std::cout << kHelp;
  benchmark::PrintDefaultHelp();
}

}  // namespace

Options parse(int& argc, char** argv) {
  benchmark::Initialize(&argc, argv, print_help);
  Options options;
  const OptionSetters known = {
      {"--threads=", [&](auto& text) { options.threads = number<int>("--threads", text); }},
      {"--batch=", [&](auto& text) { options.batch = number<int>("--batch", text, 1); }},
      {"--verify", [&](auto&) { options.verify = true; }},
      {"--report", [&](auto&) { options.report = true; }},
      {"--eager", [&](auto&) { options.eager = true; }},
      {"--device=", [&](auto& text) { set_devices(options, text); }},
      {"--divide=", [&](auto& text) { options.divide = divide_of(text); }},
      {"--narrow-residuals", [&](auto&) { options.narrow_residuals = true; }},
      {"--copies", [&](auto&) { options.copies = true; }},
      {"--calibrate", [&](auto&) { options.calibrate = true; }}};
  const std::vector<std::string> others = take_options(argc, argv, known, kHelp);
  if (!others.empty()) tensor::fail(argv[0], "got ", others[0], ", need options\n", kHelp);
  const int threads = options.threads > 0 ? options.threads : tensor::threads();
  benchmark::AddCustomContext("threads", std::to_string(threads));
  benchmark::AddCustomContext("commit", commit());
  return options;
}

void add(const Case& c, tensor::DType dtype, bool eager, const Options& options) {
  tensor::TextWriter name;
  name << c.name << "/" << place_of(options) << "/" << dtype;
  if (c.batch > 0) name << "/b" << c.batch;
  name << (eager                           ? "/eager"
           : options.narrow_residuals      ? "/narrow-residuals"
           : is_calibrated(dtype, options) ? "/calibrated"
                                           : "/compiled");
  const bool is_on_device = options.device.is_cuda() && !options.copies;
  if (options.copies) name << "/copies";
  // Google Benchmark calls this several times, with more iterations each time, and then the next
  // one: a single workload is kept, since the largest models take gigabytes.
  static std::unique_ptr<Prepared> prepared;
  static std::string prepared_name;
  const auto time = [=, key = name.str()](benchmark::State& state) {
    if (prepared_name != key) {
      prepared.reset();
      prepared = std::make_unique<Prepared>(prepare(c, dtype, eager, options));
      prepared_name = key;
    }
    if (is_on_device) return time_on_device(state, *prepared);
    const Clock::time_point begin = Clock::now();
    for (auto _ : state) (*prepared)();
    count(state, *prepared, seconds_since(begin));
  };
  auto* added = benchmark::RegisterBenchmark(name.str().c_str(), time);
  added->Unit(benchmark::kMillisecond);
  if (is_on_device) added->UseManualTime();
}

int run(int argc, char** argv, const std::function<void(const Options&)>& add_all) {
  try {
    add_all(parse(argc, argv));
    return benchmark::RunSpecifiedBenchmarks() > 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}

}  // namespace bench
