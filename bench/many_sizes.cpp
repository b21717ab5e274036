// What inputs of many sizes cost beside inputs of one size: the time until a new size is ready, all
// calls together, memory. One line of JSON a model.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <random>

#include "bench/commit.h"
#include "bench/main.h"
#include "bench/nine_models.h"
#include "src/kernels/cuda/driver/compiler.h"
#include "src/tune/table.h"
#include "tensor/creation.h"
#include "tensor/text.h"

namespace {

using Clock = std::chrono::steady_clock;
using tensor::Tensor;

constexpr const char* kHelp =
    "usage: many_sizes [OPTION]... [MODEL]...\n"
    "Calls the models (DETR-R50-E6 alone; names as bench_models has them) with images of many "
    "sizes,\n"
    "then with as many of one size of the same area. The first call of each is not timed.\n"
    "Counts the kernels that NVRTC compiled, those after the first eight sizes by themselves.\n"
    "  --device=cpu      or cuda\n"
    "  --dtype=f32       or bf16, f16\n"
    "  --threads=0       how many compute; 0: one a core\n"
    "  --calls=100       of each\n"
    "  --sizes=50        different ones, of batches at most 32\n"
    "  --side=800        of the shorter side, in pixels; the longer one has up to 5/3 as many\n"
    "  --batches         instead of pictures of the model's own size, 1 to 32 at a time\n"
    "  --background      kernels that a size would gain by are compiled while others run\n"
    "  --level0          without the logs\n";

struct Options {
  tensor::CompileOptions compile;
  int calls = 100, sizes = 50, side = 800;
  bool batches = false;
  std::vector<std::string> models;
};

Options parse(int argc, char** argv) {
  using bench::number;
  Options o;
  o.models = bench::take_options(
      argc, argv,
      {{"--device=", [&](auto& text) { o.compile.device = tensor::Device(text); }},
       {"--dtype=", [&](auto& text) { o.compile.dtype = tensor::parse_dtype(text); }},
       {"--threads=", [&](auto& text) { o.compile.threads = number<int>("--threads", text, 0); }},
       {"--calls=", [&](auto& text) { o.calls = number<int>("--calls", text, 2); }},
       {"--sizes=", [&](auto& text) { o.sizes = number<int>("--sizes", text, 2); }},
       {"--side=", [&](auto& text) { o.side = number<int>("--side", text, 32); }},
       {"--batches", [&](auto&) { o.batches = true; }},
       {"--background", [&](auto&) { o.compile.better_kernels = tensor::When::in_background; }},
       {"--level0", [&](auto&) { o.compile.tune_logs = std::vector<std::string>(); }}},
      kHelp);
  if (o.batches) o.sizes = std::min(o.sizes, 32);
  if (o.models.empty()) o.models = {"detr-resnet-50-e6"};
  return o;
}

using Size = tensor::Shape;  // [N, 3, H, W]

std::vector<Size> sizes_of(const bench::Model& model, const Options& o) {
  std::mt19937 random(1);
  const auto below = [&](int end) { return static_cast<std::int64_t>(random() % unsigned(end)); };
  std::vector<Size> all;
  while (std::ssize(all) < o.sizes) {
    const std::int64_t longer = o.side + below(2 * o.side / 3 + 1);
    Size size = below(2) ? Size{1, 3, o.side, longer} : Size{1, 3, longer, o.side};
    if (o.batches) size = {1 + below(32), 3, model.image.height, model.image.width};
    if (std::find(all.begin(), all.end(), size) == all.end()) all.push_back(size);
  }
  return all;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::int64_t resident_bytes() {
  malloc_trim(0);
  tensor::Classic<std::ifstream> status("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  status >> pages >> resident;
  return resident * 4096;
}

struct Cost {
  std::vector<double> ready_ms;            // of each new size after the first
  std::vector<std::int64_t> compilations;  // of kernels by NVRTC, before each call, and at the end
  double seconds = 0;                      // of all calls but the first
  std::int64_t resident = 0, device = 0;
};

Cost cost_of(const bench::Network& net, const std::vector<Size>& sizes, const Options& o) {
  const tensor::Compiled f(net.function, o.compile, sizes.size());
  const std::int64_t before = resident_bytes();
  std::vector<Tensor> inputs;
  for (const Size& size : sizes) inputs.push_back(tensor::Generator(1).normal(size));
  Cost cost;
  std::vector<bool> is_ready(sizes.size());
  std::mt19937 random(2);
  std::int64_t input_bytes = 0;
  for (const Tensor& x : inputs) input_bytes += x.nbytes();
  for (int call = 0; call < o.calls; ++call) {
    const std::size_t i =
        call < std::ssize(sizes) ? static_cast<std::size_t>(call) : random() % sizes.size();
    cost.compilations.push_back(tensor::cuda::Compiler::compilations());
    const auto begin = Clock::now();
    const tensor::Executable executable = f.executable({inputs[i]});
    if (call > 0 && !is_ready[i]) cost.ready_ms.push_back(seconds_since(begin) * 1e3);
    is_ready[i] = true;
    executable({inputs[i]});
    if (call > 0) cost.seconds += seconds_since(begin);
    const tensor::DeviceMemory memory = executable.device_memory();
    cost.device = std::max(cost.device, memory.weights + memory.arena);
  }
  cost.compilations.push_back(tensor::cuda::Compiler::compilations());
  cost.resident = resident_bytes() - before - input_bytes;
  return cost;
}

// The size whose area is the mean of all.
Size mean_of(const std::vector<Size>& sizes, const Options& o) {
  double sum = 0;
  for (const Size& size : sizes) sum += static_cast<double>(tensor::num_elements(size));
  const double mean = sum / static_cast<double>(sizes.size());
  Size result = sizes[0];
  const double rest = mean * static_cast<double>(o.batches ? result[0] : result[3]) /
                      static_cast<double>(tensor::num_elements(result));
  result[o.batches ? 0 : 3] = std::llround(rest);
  return result;
}

void run_one(const bench::Model& model, Options o) {
  const bench::Network net = model.make();
  tensor::nn::randomize(net.parameters, 1);
  for (const auto& [name, parameter] : net.parameters) {
    *parameter = parameter->copy();  // to which nobody holds a pointer, as those of a checkpoint
    o.compile.names.emplace_back(name, *parameter);
  }
  const std::vector<Size> sizes = sizes_of(model, o);
  const Cost many = cost_of(net, sizes, o), one = cost_of(net, {mean_of(sizes, o)}, o);
  std::vector<double> ready = many.ready_ms;
  std::sort(ready.begin(), ready.end());
  tensor::TextWriter text;
  text << "{\"model\": " << bench::quoted(model.name) << ", \"commit\": \"" << bench::commit()
       << "\", \"device\": \"" << o.compile.device << "\", \"dtype\": \"" << o.compile.dtype
       << "\", \"sizes\": " << sizes.size() << ", \"calls\": " << o.calls
       << ", \"ready_ms\": " << tensor::median(ready) << ", \"ready_most_ms\": " << ready.back()
       << ", \"compilations\": " << many.compilations.back() - many.compilations.front()
       << ", \"compilations_after_8\": "
       << many.compilations.back() - many.compilations[std::min<std::size_t>(8, sizes.size())]
       << ", \"many_s\": " << many.seconds << ", \"one_s\": " << one.seconds
       << ", \"time_ratio\": " << many.seconds / one.seconds
       << ", \"many_resident\": " << many.resident << ", \"one_resident\": " << one.resident
       << ", \"many_device\": " << many.device << ", \"one_device\": " << one.device << "}";
  std::cout << text.str() << std::endl;
}

void run(int argc, char** argv) {
  const Options o = parse(argc, argv);
  for (const bench::Model& model : bench::nine_models())
    if (std::count(o.models.begin(), o.models.end(), model.name) > 0) run_one(model, o);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main(argc, argv, kHelp, [&] { run(argc, argv); });
}
