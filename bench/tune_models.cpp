// Tunes the nine models one after the other in one process, and times each as a whole before and
// after: one line of JSON a model.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <optional>
#include <string_view>

#include "bench/commit.h"
#include "bench/main.h"
#include "bench/nine_models.h"
#include "src/compile.h"
#include "src/kernels/cuda/templates.h"
#include "src/tune/table.h"
#include "src/tune/worker.h"
#include "tensor/tensor.h"
#include "tensor/text.h"
#include "tensor/tune.h"

namespace {

using Clock = std::chrono::steady_clock;
using bench::quoted;
using tensor::fail;
using tensor::Tensor;

constexpr const char* kHelp =
    "usage: tune_models [OPTION]... [MODEL]...\n"
    "Tunes the models (all nine; names as bench_models has them) and prints a line of JSON each:\n"
    "milliseconds of the whole model before and after, trials, seconds, and every subgraph.\n"
    "  --device=cpu      or cuda, cuda:1\n"
    "  --dtype=f32       or bf16; on a GPU f16\n"
    "  --narrow-residuals=no   or yes: with bf16 and f16 the residual stream is stored so, too\n"
    "  --batch=1         images at a time\n"
    "  --threads=0       of the CPU; 0: one a core\n"
    "  --seconds=60      of tuning, a model; 0: no limit\n"
    "  --trials=0        measured schedules, a model; 0: no limit\n"
    "  --seed=0          of the search\n"
    "  --logs=FOLDER     where each model's log is kept and continued (tune-logs)\n"
    "  --best=FILE       takes the fastest schedules of these logs: small enough to ship in\n"
    "                    src/tune/shipped\n"
    "  --against=FOLDER  the time before is of the plans by the logs there; without it, of the\n"
    "                    analytic model's\n"
    "  --without=LIST    of model, evolution, scheduler, sketches, partition, whole, fusion: left "
    "out,\n"
    "                    to compare; tuning: all of it, the plans are those of the logs as they "
    "are\n"
    "  --record=N        no tuning: draws --trials schedules at random of each of a model's N "
    "heaviest\n"
    "                    problems that have 100 schedules or more, for tune_search to replay\n"
    "  --only=TEXT       such problems only as have this in their text (conv2d), even small ones\n"
    "Ctrl-C goes on to timing the model, and then ends.\n";

struct Options {
  tensor::CompileOptions compile;
  tensor::TuneOptions tune;
  tensor::Ablation ablation;
  tensor::RecordOptions record;
  int batch = 1;
  bool tunes = true;
  std::string folder = "tune-logs", against, best, without;
  std::vector<std::string> models;
  std::vector<std::string> logs;  // that were written to
};

// ---- The command line

void leave_out(Options& o, const std::string& list) {
  const std::map<std::string, bool*> switches = {{"model", &o.ablation.use_model},
                                                 {"evolution", &o.ablation.use_evolution},
                                                 {"scheduler", &o.ablation.use_scheduler},
                                                 {"sketches", &o.ablation.use_sketches},
                                                 {"partition", &o.ablation.use_partition},
                                                 {"whole", &o.ablation.use_whole},
                                                 {"fusion", &o.compile.fuse},
                                                 {"tuning", &o.tunes}};
  tensor::TextReader words(list);
  for (std::string word; std::getline(words, word, ',');) {
    const auto known = switches.find(word);
    if (known == switches.end()) fail("--without", "does not know \"", word, "\"\n", kHelp);
    *known->second = false;
  }
}

bool yes_or_no(std::string_view option, std::string_view text) {
  if (text != "yes" && text != "no") fail(option, "got \"", text, "\", need yes or no");
  return text == "yes";
}

Options parse(int argc, char** argv) {
  using bench::number;
  Options o;
  const bench::OptionSetters known = {
      {"--device=", [&](auto& text) { o.compile.device = text; }},
      {"--dtype=", [&](auto& text) { o.compile.dtype = tensor::parse_dtype(text); }},
      {"--narrow-residuals=",
       [&](auto& text) { o.compile.narrow_residuals = yes_or_no("--narrow-residuals", text); }},
      {"--batch=", [&](auto& text) { o.batch = std::max(1, number<int>("--batch", text)); }},
      {"--threads=", [&](auto& text) { o.compile.threads = number<int>("--threads", text); }},
      {"--seconds=", [&](auto& text) { o.tune.seconds = number<double>("--seconds", text); }},
      {"--trials=", [&](auto& text) { o.tune.trials = number<std::int64_t>("--trials", text); }},
      {"--seed=", [&](auto& text) { o.tune.seed = number<std::uint64_t>("--seed", text); }},
      {"--logs=", [&](auto& text) { o.folder = text; }},
      {"--against=", [&](auto& text) { o.against = text; }},
      {"--best=", [&](auto& text) { o.best = text; }},
      {"--record=", [&](auto& text) { o.record.problems = number<int>("--record", text); }},
      {"--only=", [&](auto& text) { o.record.only = text; }},
      {"--without=", [&](auto& text) { leave_out(o, o.without = text); }}};
  o.models = bench::take_options(argc, argv, known, kHelp);
  return o;
}

// ---- Timing whole models, in a process of its own: this one must stay free to have children that
// use the GPU.

struct Whole {
  double before_ms = 0, after_ms = 0;
  double compile_before_s = 0, compile_after_s = 0;
  std::size_t groups_before = 0, groups_after = 0;
  double difference = 0;  // of the results, relative to the largest
  std::string error;
};

using Paths = std::vector<std::string>;

// By turns, so that what disturbs the one disturbs the other.
Whole time_whole(const bench::Workload& work, tensor::CompileOptions how, const Paths& logs_before,
                 const Paths& logs_after) {
  const auto compiled = [&](const Paths& logs, double& seconds) {
    const Clock::time_point begin = Clock::now();
    how.tune_logs = logs;
    tensor::Executable executable = tensor::compile(work.function, work.inputs, how);
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return executable;
  };
  Whole whole;
  const tensor::Executable before = compiled(logs_before, whole.compile_before_s),
                           after = compiled(logs_after, whole.compile_after_s);
  whole.groups_before = before.group_count(), whole.groups_after = after.group_count();
  whole.difference = bench::difference(after(work.inputs), before(work.inputs));
  constexpr int kRounds = 5, kMost = 100;
  constexpr double kRoundUs = 200e3;
  const double once = tensor::median(before.time(work.inputs, 3));
  const int repeats = static_cast<int>(std::clamp(kRoundUs / once, 1.0, double{kMost}));
  std::vector<double> times_before, times_after;
  for (int round = 0; round < kRounds; ++round)
    for (auto [executable, times] : {std::pair(&before, &times_before), {&after, &times_after}}) {
      const std::vector<double> more = executable->time(work.inputs, repeats);
      times->insert(times->end(), more.begin(), more.end());
    }
  whole.before_ms = tensor::median(times_before) / 1e3;
  whole.after_ms = tensor::median(times_after) / 1e3;
  return whole;
}

Whole time_in_child(const bench::Workload& work, const tensor::CompileOptions& how,
                    const Paths& logs_before, const Paths& logs_after) {
  constexpr double kPatience = 900;  // seconds: compiles twice
  tensor::Worker worker(
      [&](const std::vector<std::string>&, tensor::Channel& channel) {
        channel.begin(0);
        const Whole w = time_whole(work, how, logs_before, logs_after);
        tensor::TextWriter text;
        text << std::setprecision(9) << w.before_ms << ' ' << w.after_ms << ' '
             << w.compile_before_s << ' ' << w.compile_after_s << ' ' << w.groups_before << ' '
             << w.groups_after << ' ' << w.difference;
        channel.done(0, text.str());
      },
      {.item_seconds = kPatience, .idle_seconds = kPatience});
  const tensor::Answer answer = worker.run({"whole"})[0];
  Whole w;
  w.error = answer.error;
  tensor::TextReader(answer.result) >> w.before_ms >> w.after_ms >> w.compile_before_s >>
      w.compile_after_s >> w.groups_before >> w.groups_after >> w.difference;
  return w;
}

// ---- What is told

// As the paper's Table IV: "{[12 * 6], [1 * 4]}" of 6 subgraphs that occur 12 times each, and 4.
std::string weights_of(const tensor::TuneSummary& summary) {
  if (summary.groups.empty()) return "{}";
  std::map<int, int, std::greater<>> subgraphs;
  for (const tensor::TunedGroup& group : summary.groups) ++subgraphs[group.count];
  tensor::TextWriter text;
  const char* separator = "{";
  for (const auto& [count, number] : subgraphs) {
    text << separator << '[' << count << " * " << number << ']';
    separator = ", ";
  }
  return text.str() + "}";
}

void print_texts(std::ostream& out, const char* name, const std::vector<std::string>& texts) {
  out << '"' << name << "\": [";
  const char* separator = "";
  for (const std::string& text : texts) {
    out << separator << quoted(text);
    separator = ", ";
  }
  out << ']';
}

void print_subgraphs(std::ostream& out, const tensor::TuneSummary& summary) {
  const char* separator = "";
  for (const tensor::TunedGroup& g : summary.groups) {
    out << separator << "{\"operators\": " << quoted(g.operators)
        << ", \"problem\": " << quoted(g.problem) << ", \"where\": " << quoted(g.where)
        << ", \"weight\": " << g.count << ", \"before_us\": " << g.before_us
        << ", \"after_us\": " << g.after_us << ", \"before\": " << quoted(g.before)
        << ", \"after\": " << quoted(g.after) << ", \"space\": " << g.space
        << ", \"trials\": " << g.trials << ", \"failures\": " << g.failures << "}";
    separator = ", ";
  }
}

void print_whole(std::ostream& out, const tensor::TuneSummary& s, const Whole& w) {
  out << "\"compile_seconds\": " << s.seconds + w.compile_after_s << ", ";
  if (w.error.empty())
    out << "\"before_ms\": " << w.before_ms << ", \"after_ms\": " << w.after_ms
        << ", \"groups_before\": " << w.groups_before << ", \"groups_after\": " << w.groups_after
        << ", \"plan_seconds_before\": " << w.compile_before_s
        << ", \"plan_seconds_after\": " << w.compile_after_s << ", \"difference\": " << w.difference
        << ", ";
  else
    out << "\"error\": " << quoted(w.error) << ", ";
}

void print(std::ostream& out, const std::string& model, const Options& o,
           const tensor::TuneSummary& s, const std::optional<Whole>& whole) {
  tensor::TextWriter text;
  text << "{\"model\": " << quoted(model) << ", \"commit\": \"" << bench::commit()
       << "\", \"batch\": " << o.batch << ", \"dtype\": \"" << o.compile.dtype
       << "\", \"narrow_residuals\": " << (o.compile.narrow_residuals ? "true" : "false")
       << ", \"device\": " << quoted(s.device) << ", \"against\": " << quoted(o.against)
       << ", \"without\": " << quoted(o.without) << ", \"log\": " << quoted(s.log)
       << ", \"tune_seconds\": " << s.seconds << ", \"end\": " << quoted(s.end)
       << ", \"trials\": " << s.trials << ", \"failures\": " << s.failures << ", ";
  if (whole) print_whole(text, s, *whole);
  text << "\"sum_before_us\": " << s.before_us << ", \"sum_after_us\": " << s.after_us
       << ", \"weights\": \"" << weights_of(s) << "\", ";
  print_texts(text, "overturned", s.overturned);
  print_texts(text << ", ", "chosen", s.chosen);
  text << ", \"subgraphs\": [";
  print_subgraphs(text, s);
  out << text.str() << "]}" << std::endl;
}

// Lines of the schedules that the logs' table has, without what only a cost model reads.
void write_best(const std::vector<std::string>& logs, const std::string& path, bool is_cuda) {
  const std::string kernels = is_cuda ? tensor::cuda::device_headers_checksum() : "";
  std::vector<tensor::Measurement> all =
      tensor::newest(tensor::read_logs(logs).measurements, kernels);
  std::vector<tensor::Measurement> alone = all;
  std::erase_if(alone, [](const tensor::Measurement& m) { return !m.model_microseconds.empty(); });
  // A choice by the whole model's time, and the fastest one alone, by which groups are fused.
  const tensor::Table tables[] = {tensor::Table(all, kernels), tensor::Table(alone, kernels)};
  std::erase_if(all, [&](const tensor::Measurement& m) {
    const auto is_it = [&](const std::optional<tensor::Table::Entry>& one) {
      return one && one->family == m.family && one->schedule == m.schedule;
    };
    return std::none_of(std::begin(tables), std::end(tables), [&](const tensor::Table& table) {
      return is_it(table.find(m.device, m.problem)) ||
             (!m.model_microseconds.empty() && is_it(table.choice(m.device, m.problem)));
    });
  });
  for (tensor::Measurement& m : all) m.features.clear();
  std::filesystem::remove(path);
  tensor::Log(path).append(all);
}

// ---- The run

volatile std::sig_atomic_t interrupted = 0;

void tell(const std::string& model, const tensor::TuneProgress& p) {
  tensor::TextWriter text;
  text << model << ": " << std::fixed << std::setprecision(0) << p.seconds << " s, " << p.trials
       << " schedules (" << p.failures << " failed) of " << p.problems << " problems; ";
  if (p.before_us > 0 && p.best_us > 0)
    text << std::setprecision(3) << p.before_us / 1e3 << " -> " << p.best_us / 1e3 << " ms; ";
  text << p.what << "\n";
  std::cerr << text.str();
}

void tune_one(const bench::Case& c, Options& o) {
  const bench::Workload work = c.make(o.compile.dtype);
  o.compile.names = work.weights;
  o.compile.tune_logs = std::vector<std::string>();
  tensor::TextWriter name;
  name << '/' << c.name << "-b" << o.batch << '-' << o.compile.dtype
       << (o.compile.narrow_residuals ? "-narrow" : "") << ".jsonl";
  o.tune.log = o.folder + name.str();
  double told = -1e9;
  o.tune.progress = [&](const tensor::TuneProgress& p) {
    constexpr double kBetween = 5;  // seconds
    if (p.seconds < told + kBetween) return;
    told = p.seconds;
    tell(c.name, p);
  };
  std::vector<tensor::TensorType> types;
  for (const Tensor& x : work.inputs) types.push_back(x.type());
  tensor::TuneSummary summary;
  summary.log = o.tune.log;
  if (o.tunes) {
    summary = tensor::detail::tune(work.function, types, o.compile, o.tune, o.ablation, o.record);
    std::cerr << summary;
  }
  o.logs.push_back(o.tune.log);
  if (o.record.problems > 0) return print(std::cout, c.name, o, summary, {});
  const Whole whole = time_in_child(
      work, o.compile, o.against.empty() ? Paths() : Paths{o.against + name.str()}, {o.tune.log});
  if (whole.error.empty())
    std::cerr << c.name << ", whole: " << whole.before_ms << " ms before, " << whole.after_ms
              << " ms after (" << whole.before_ms / whole.after_ms << " x)\n";
  print(std::cout, c.name, o, summary, whole);
  if (!whole.error.empty()) fail("the whole model", whole.error);
}

void run(int argc, char** argv) {
  Options o = parse(argc, argv);
  std::vector<bench::Case> cases = bench::cases(bench::nine_models(), o.batch);
  for (const std::string& name : o.models)
    if (std::none_of(cases.begin(), cases.end(), [&](auto& c) { return c.name == name; }))
      fail("tune_models", "does not know the model ", name, "\n", kHelp);
  if (!o.models.empty())
    std::erase_if(cases, [&](const bench::Case& c) {
      return std::count(o.models.begin(), o.models.end(), c.name) == 0;
    });
  std::filesystem::create_directories(o.folder);
  std::signal(SIGINT, [](int) {
    interrupted = 1;
    std::signal(SIGINT, SIG_DFL);
  });
  o.tune.stop = [] { return interrupted != 0; };
  int failed = 0;
  for (const bench::Case& c : cases) {
    if (interrupted != 0) break;
    try {
      tune_one(c, o);
    } catch (const std::exception& error) {  // the others have nothing to do with it
      std::cerr << c.name << ": " << error.what() << "\n";
      ++failed;
    }
  }
  if (!o.best.empty()) write_best(o.logs, o.best, o.compile.device.is_cuda());
  if (failed > 0) fail("tune_models", failed, " of ", cases.size(), " models failed, see above");
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main(argc, argv, kHelp, [&] { run(argc, argv); });
}
