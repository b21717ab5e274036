// What another size of a model takes before its first run on a GPU, which need not be there: time
// on the host, and the kernels that no size before it had. One line of JSON a size, one for all.
#include <ctime>

#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <set>

#include "bench/all_models.h"
#include "bench/commit.h"
#include "bench/main.h"
#include "src/compile.h"
#include "src/kernels/cuda/family.h"
#include "src/runtime/program.h"
#include "src/tune/table.h"
#include "tensor/creation.h"
#include "tensor/text.h"

namespace {

namespace cuda = tensor::cuda;
namespace detail = tensor::detail;

constexpr const char* kHelp =
    "usage: plan_sizes [OPTION]... [MODEL]...\n"
    "Plans the models (DETR-R50-E6 alone; names as bench_models has them) for pictures of many\n"
    "sizes, one after the other, for an NVIDIA H200 that need not be there: milliseconds of this\n"
    "process's time, and the kernels that no size before had.\n"
    "  --dtype=f16       or bf16, f32\n"
    "  --sizes=50        different ones\n"
    "  --seed=1          of their choice\n"
    "  --batches         instead of pictures of any size, 1 to 32 of the model's own at a time\n"
    "  --sides=480,800,1333  of pictures: the shorter side's least and most, the longer one's "
    "most\n"
    "  --background      a size runs by kernels that are there, better ones come after it; only "
    "the\n"
    "                    time and the new kernels that a caller waits for count\n"
    "  --level0          without the logs\n"
    "  --differences     of each new kernel's text to the nearest that was there\n";

struct Options {
  tensor::CompileOptions compile;
  int sizes = 50, seed = 1;
  std::vector<int> sides = {480, 800, 1333};
  bool batches = false, background = false, differences = false;
  std::vector<std::string> models;
};

std::vector<int> numbers(std::string_view option, const std::string& text) {
  std::vector<int> all;
  tensor::TextReader reader(text);
  for (std::string part; std::getline(reader, part, ',');)
    all.push_back(bench::number<int>(option, part, 1));
  if (all.size() != 3 || all[0] > all[1] || all[1] > all[2])
    tensor::fail(option, "got \"", text, "\", need three numbers, each at least the one before");
  return all;
}

Options parse(int argc, char** argv) {
  using bench::number;
  Options o;
  o.compile.dtype = tensor::f16;
  o.models = bench::take_options(
      argc, argv,
      {{"--dtype=", [&](auto& text) { o.compile.dtype = tensor::parse_dtype(text); }},
       {"--sizes=", [&](auto& text) { o.sizes = number<int>("--sizes", text, 1); }},
       {"--seed=", [&](auto& text) { o.seed = number<int>("--seed", text, 0); }},
       {"--sides=", [&](auto& text) { o.sides = numbers("--sides", text); }},
       {"--batches", [&](auto&) { o.batches = true; }},
       {"--background", [&](auto&) { o.background = true; }},
       {"--level0", [&](auto&) { o.compile.tune_logs = std::vector<std::string>(); }},
       {"--differences", [&](auto&) { o.differences = true; }}},
      kHelp);
  if (o.batches) o.sizes = std::min(o.sizes, 32);
  if (o.models.empty()) o.models = {"detr-resnet-50-e6"};
  return o;
}

// A picture as DETR's processing scales it: its shorter side to some length, unless the longer one
// would exceed the most.
tensor::Shape picture(const Options& o, std::mt19937& random) {
  const auto between = [&](int least, int most) {
    return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
  };
  const double ratio = between(100, 200) / 100.0;
  const double shorter = std::min<double>(between(o.sides[0], o.sides[1]), o.sides[2] / ratio);
  const auto a = static_cast<std::int64_t>(shorter + 0.5),
             b = static_cast<std::int64_t>(shorter * ratio + 0.5);
  return random() % 2 ? tensor::Shape{1, 3, a, b} : tensor::Shape{1, 3, b, a};
}

std::vector<tensor::Shape> sizes_of(const bench::Model& model, const Options& o) {
  std::mt19937 random(static_cast<unsigned>(o.seed));
  std::vector<tensor::Shape> all;
  while (std::ssize(all) < o.sizes) {
    const tensor::Shape size = o.batches
                                   ? tensor::Shape{1 + static_cast<std::int64_t>(random() % 32), 3,
                                                   model.image.height, model.image.width}
                                   : picture(o, random);
    if (std::find(all.begin(), all.end(), size) == all.end()) all.push_back(size);
  }
  return all;
}

// ---- Kernels.

// Lines of a that b does not have, at the same distance from the beginning or not.
std::vector<std::string> lines_without(const std::string& a, const std::string& b) {
  std::multiset<std::string> others;
  tensor::TextReader of_b(b), of_a(a);
  for (std::string line; std::getline(of_b, line);) others.insert(line);
  std::vector<std::string> rest;
  for (std::string line; std::getline(of_a, line);)
    if (const auto at = others.find(line); at != others.end())
      others.erase(at);
    else
      rest.push_back(line);
  return rest;
}

class KnownKernels {
 public:
  struct New {
    std::string entry, family, schedule, difference;
  };
  // Those of a plan that are not known; they are from now on.
  std::vector<New> add(const tensor::LaidOutGraph& laid, const tensor::FusionPlan& plan,
                       cuda::Families& families, bool wants_differences) {
    std::vector<New> all;
    std::set<int> kinds;
    for (const tensor::Group& group : plan.groups) {
      if (group.kind >= 0 && !kinds.insert(group.kind).second) continue;
      const std::string family(families.name(group.family));
      for (const cuda::Call& call : families.build(laid, group).calls) {
        std::string text = call.source.text;
        for (std::size_t at; (at = text.find(call.entry)) != std::string::npos;)
          text.replace(at, call.entry.size(), "KERNEL");
        auto& texts = texts_[family];
        if (texts.contains(text)) continue;
        all.push_back(
            {call.entry, family, group.schedule, wants_differences ? difference(text, texts) : ""});
        texts.insert(std::move(text));
      }
    }
    return all;
  }

 private:
  static std::string difference(const std::string& text, const std::set<std::string>& others) {
    std::vector<std::string> least;
    std::string from;
    for (const std::string& other : others) {
      std::vector<std::string> lines = lines_without(text, other);
      if (!from.empty() && lines.size() >= least.size()) continue;
      least = std::move(lines), from = other;
    }
    if (from.empty()) return {};
    constexpr std::size_t kMost = 6;
    std::string result;
    for (const auto& [sign, lines] :
         {std::pair{"\n    + ", least}, std::pair{"\n    - ", lines_without(from, text)}})
      for (std::size_t i = 0; i < std::min(lines.size(), kMost); ++i) result += sign + lines[i];
    return result;
  }

  std::map<std::string, std::set<std::string>> texts_;  // of families
};

// ---- A GPU that runs nothing.

struct NoEngine : detail::Engine {
  void run(const std::vector<tensor::Tensor>&, std::vector<tensor::Tensor>&,
           const std::stop_token&) const override {}
  std::vector<std::vector<double>> time(const std::vector<tensor::Tensor>&, int) const override {
    return {};
  }
  std::vector<double> time_whole(const std::vector<tensor::Tensor>&, int) const override {
    return {};
  }
  void run_step(std::size_t, std::span<std::byte* const>) const override {}
  const std::vector<detail::Step>& steps() const override { return none; }
  std::vector<detail::Step> none;
};

cuda::Machine h200() {
  cuda::DeviceInfo info = cuda::typical_device(90);
  info.name = "NVIDIA H200";
  cuda::Machine machine = cuda::machine_of(info);
  machine.any_extent = true;
  return machine;
}

detail::Target target_of(const cuda::Machine& machine) {
  detail::Target target = detail::cuda_target(machine);
  target.build = [](const detail::Program&, std::unique_ptr<detail::Kernels>) {
    return std::make_unique<NoEngine>();
  };
  return target;
}

double process_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// Microseconds by the model that the plan takes beyond the best schedule of every group that was
// not measured.
double lost_us(const detail::Program& program, cuda::Families& families) {
  std::map<std::pair<int, std::string>, double> of_kind;
  double lost = 0;
  for (const tensor::Group& group : program.plan.groups) {
    if (group.is_measured || group.schedule.empty()) continue;
    const auto [kind, is_new] = of_kind.try_emplace({group.kind, group.schedule});
    if (is_new)
      for (const tensor::Offer& offer : families.of(tensor::isolate(program.laid, group)))
        if (const tensor::Space* space = offer.family == group.family ? offer.space() : nullptr)
          kind->second =
              space->model_us(space->of(group.schedule)) - space->model_us(space->chosen);
    lost += kind->second;
  }
  return lost;
}

void print(const tensor::Shape& size, double ms, const std::vector<KnownKernels::New>& kernels,
           double microseconds, double lost) {
  tensor::TextWriter text;
  text << "{\"size\": \"" << size << "\", \"ms\": " << ms << ", \"estimate_us\": " << microseconds
       << ", \"lost_us\": " << lost << ", \"new_kernels\": " << kernels.size() << "}";
  std::cout << text.str() << std::endl;
}

void run_one(const bench::Model& model, Options o) {
  const bench::Network net = model.make();
  tensor::nn::randomize(net.parameters, 1);
  for (const auto& [name, parameter] : net.parameters)
    o.compile.names.emplace_back(name, *parameter);
  o.compile.sharing = tensor::Sharing();
  const cuda::Machine machine = h200();
  cuda::Families families(cuda::cuda_families(), machine);
  KnownKernels known;
  std::vector<double> times;
  std::vector<std::size_t> counts;
  std::vector<std::shared_ptr<const detail::Program>> kept;  // what is shared lives as long
  std::size_t in_background = 0;
  const auto compiled = [&](const tensor::Shape& size, bool in_haste) {
    return detail::compile_until(detail::Until::linked, net.function, {{size, tensor::f32}},
                                 o.compile, target_of(machine), nullptr, in_haste);
  };
  double estimates = 0, all_lost = 0;
  for (const tensor::Shape& size : sizes_of(model, o)) {
    const double begin = process_ms();
    const detail::Compilation compilation = compiled(size, o.background);
    times.push_back(process_ms() - begin);
    kept.push_back(compilation.program);
    const detail::Program& program = *kept.back();
    const auto more = known.add(program.laid, program.plan, families, o.differences);
    counts.push_back(more.size());
    estimates += program.plan.microseconds;
    const double lost = lost_us(program, families);
    all_lost += lost;
    print(size, times.back(), more, program.plan.microseconds, lost);
    if (compilation.is_hasty) {
      kept.push_back(compiled(size, false).program);
      in_background += known.add(kept.back()->laid, kept.back()->plan, families, false).size();
    }
    families.forget();
    for (const auto& kernel : more)
      if (o.differences && times.size() > 1)
        std::cout << "  " << kernel.entry << " (" << kernel.family << " " << kernel.schedule << ")"
                  << kernel.difference << '\n';
  }
  const auto between = [&](std::size_t begin, std::size_t end) {
    std::size_t sum = 0;
    for (std::size_t i = begin; i < std::min(end, counts.size()); ++i) sum += counts[i];
    return sum;
  };
  std::vector<double> later(times.begin() + 1, times.end());
  tensor::TextWriter text;
  text << "{\"model\": " << bench::quoted(model.name) << ", \"commit\": \"" << bench::commit()
       << "\", \"dtype\": \"" << o.compile.dtype << "\", \"sizes\": " << times.size()
       << ", \"first_ms\": " << times[0]
       << ", \"ms\": " << (later.empty() ? 0 : tensor::median(later))
       << ", \"estimates_us\": " << estimates << ", \"lost_us\": " << all_lost
       << ", \"kernels\": " << between(0, counts.size()) << ", \"of_the_first\": " << between(0, 1)
       << ", \"of_the_next_7\": " << between(1, 8) << ", \"after_8\": " << between(8, counts.size())
       << ", \"in_background\": " << in_background << "}";
  std::cout << text.str() << std::endl;
}

void run(int argc, char** argv) {
  const Options o = parse(argc, argv);
  for (const bench::Model& model : bench::all_models())
    if (std::count(o.models.begin(), o.models.end(), model.name) > 0) run_one(model, o);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main(argc, argv, kHelp, [&] { run(argc, argv); });
}
