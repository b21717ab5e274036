// The nine models in both forms of kernels on a GPU (Machine::any_extent), timed by turns: what it
// costs that kernels do not know their problem's extents. One line of JSON a model.
#include <algorithm>
#include <chrono>
#include <iostream>

#include "bench/commit.h"
#include "bench/main.h"
#include "bench/nine_models.h"
#include "src/compile.h"
#include "src/kernels/cuda/driver/device.h"
#include "src/tune/table.h"
#include "tensor/tensor.h"
#include "tensor/text.h"

namespace {

using Clock = std::chrono::steady_clock;
using tensor::Executable;
using tensor::Tensor;

constexpr const char* kHelp =
    "usage: time_forms [OPTION]... [MODEL]...\n"
    "Compiles the models (all nine; names as bench_models has them) with kernels that know their\n"
    "extents and with kernels that take any, and prints milliseconds of both.\n"
    "  --dtype=f16       or bf16, f32\n"
    "  --batch=1         images at a time\n"
    "  --rounds=7        of each form, by turns\n"
    "  --level0          without the schedules of logs\n";

struct Options {
  tensor::CompileOptions compile;
  int batch = 1, rounds = 7;
  std::vector<std::string> models;
};

Options parse(int argc, char** argv) {
  using bench::number;
  Options o;
  o.compile.device = "cuda";
  o.compile.dtype = tensor::f16;
  o.models = bench::take_options(
      argc, argv,
      {{"--dtype=", [&](auto& text) { o.compile.dtype = tensor::parse_dtype(text); }},
       {"--batch=", [&](auto& text) { o.batch = number<int>("--batch", text, 1); }},
       {"--rounds=", [&](auto& text) { o.rounds = number<int>("--rounds", text, 1); }},
       {"--level0", [&](auto&) { o.compile.tune_logs = std::vector<std::string>(); }}},
      kHelp);
  return o;
}

struct Compiled {
  Executable executable;
  double seconds = 0;
  std::vector<double> microseconds;
};

Compiled compiled(const bench::Workload& work, const Options& o, bool any_extent) {
  tensor::cuda::Machine machine =
      tensor::cuda::machine_of(tensor::cuda::Device::get(o.compile.device.index()).info());
  machine.any_extent = any_extent;
  std::vector<tensor::TensorType> types;
  for (const Tensor& x : work.inputs) types.push_back(x.type());
  const auto begin = Clock::now();
  Compiled result{tensor::detail::compile(work.function, types, o.compile,
                                          tensor::detail::cuda_target(machine)),
                  0,
                  {}};
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return result;
}

void time_one(const bench::Case& c, Options o) {
  constexpr double kRoundUs = 100e3;
  constexpr int kMost = 200;
  const bench::Workload work = c.make(o.compile.dtype);
  o.compile.names = work.weights;
  Compiled fixed = compiled(work, o, false), any = compiled(work, o, true);
  const double off = bench::difference(any.executable(work.inputs), fixed.executable(work.inputs));
  const double once = tensor::median(fixed.executable.time(work.inputs, 3));
  const int repeats = static_cast<int>(std::clamp(kRoundUs / once, 1.0, double{kMost}));
  for (int round = 0; round < o.rounds; ++round)
    for (Compiled* one : {&fixed, &any})
      one->microseconds.push_back(tensor::median(one->executable.time(work.inputs, repeats)));
  const double fixed_ms = tensor::median(fixed.microseconds) / 1e3,
               any_ms = tensor::median(any.microseconds) / 1e3;
  tensor::TextWriter text;
  text << "{\"model\": " << bench::quoted(c.name) << ", \"commit\": \"" << bench::commit()
       << "\", \"batch\": " << o.batch << ", \"dtype\": \"" << o.compile.dtype
       << "\", \"fixed_ms\": " << fixed_ms << ", \"any_ms\": " << any_ms
       << ", \"ratio\": " << any_ms / fixed_ms << ", \"compile_fixed_s\": " << fixed.seconds
       << ", \"compile_any_s\": " << any.seconds << ", \"difference\": " << off << "}";
  std::cout << text.str() << std::endl;
}

void run(int argc, char** argv) {
  const Options o = parse(argc, argv);
  for (const bench::Case& c : bench::cases(bench::nine_models(), o.batch))
    if (o.models.empty() || std::count(o.models.begin(), o.models.end(), c.name) > 0)
      time_one(c, o);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main(argc, argv, kHelp, [&] { run(argc, argv); });
}
