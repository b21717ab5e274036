// How many trials searches take: random, evolution without a cost model, with it, and with one that
// has learned from other problems before. The machine is a log that has all that was ever measured
// of some problems (tune_models --help says how to make one), so this runs anywhere; as many seeds
// as wanted cost nothing.
#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "bench/commit.h"
#include "bench/curve.h"
#include "bench/main.h"
#include "bench/recording.h"
#include "src/tune/table.h"
#include "tensor/error.h"

namespace tensor {
namespace {

struct Options {
  std::vector<std::string> logs, lessons;
  std::string model;       // to start from
  bool transfers = false;  // starts from what the other logs teach
  std::size_t seeds = 3, trials = 1000, batch = 16, least = 100;
};

constexpr const char* kHelp =
    "usage: tune_search [--seeds=3] [--trials=1000] [--batch=16] [--least=100] [--transfer | "
    "--model=FILE] [--teach=LOG]... LOG...\n"
    "Prints JSON: of every problem with so many schedules in the logs the best time after each\n"
    "trial, by three searches; and the trials that they take to random search's best, and to 1 %\n"
    "and 2 % above the best that is recorded. A fourth search starts from the model of the file;\n"
    "with --transfer from one that has learned from all problems but those of logs (one a model,\n"
    "say) that have this one. Logs to --teach are not searched, but learned from, too.\n"
    "A search takes what was recorded for the whole space. Of a log by tune_models --record these\n"
    "are so many schedules at random: then random search's best of as many trials is the best of\n"
    "them, which it comes upon after half of these trials on average.\n";

Options parse(int argc, char** argv) {
  Options o;
  const auto set = [](const char* option, std::size_t& value) {
    return [=, &value](auto& text) { value = bench::number<std::size_t>(option, text, 1); };
  };
  o.logs = bench::take_options(argc, argv,
                               {{"--seeds=", set("--seeds", o.seeds)},
                                {"--trials=", set("--trials", o.trials)},
                                {"--batch=", set("--batch", o.batch)},
                                {"--least=", set("--least", o.least)},
                                {"--model=", [&](auto& text) { o.model = text; }},
                                {"--transfer", [&](auto&) { o.transfers = true; }},
                                {"--teach=", [&](auto& text) { o.lessons.push_back(text); }}},
                               kHelp);
  if (o.logs.empty()) fail("tune_search", "got no log\n", kHelp);
  if (o.transfers && !o.model.empty())
    fail("tune_search", "got --transfer and --model, need one of them\n", kHelp);
  return o;
}

struct Method {
  const char* name;
  bool use_model, use_evolution, is_started;
};
constexpr Method kMethods[] = {{"random", false, false, false},
                               {"evolution", false, true, false},
                               {"full", true, true, false},
                               {"started", true, true, true}};
// Times above the best by no more than 1 % and 2 %.
constexpr double kNear[] = {1.01, 1.02};

// What searches start from: the bytes of a cost model, empty for none.
class Starts {
 public:
  explicit Starts(const Options& options) : transfers_(options.transfers) {
    if (!options.model.empty()) given_ = CostModel::load(options.model).to_bytes(options.model);
    if (!transfers_) return;
    std::vector<std::string> paths = options.logs;
    paths.insert(paths.end(), options.lessons.begin(), options.lessons.end());
    for (const std::string& path : paths) {
      auto& log = logs_.emplace_back(read_log(path).measurements);
      std::erase_if(log, [](const Measurement& m) { return m.features.empty(); });
    }
  }
  bool have_any() const { return transfers_ || !given_.empty(); }

  const std::string& of(const std::string& problem) {
    if (!transfers_) return given_;
    std::set<std::size_t> left_out;  // logs
    std::set<std::string> unknown;   // problems
    for (std::size_t i = 0; i < logs_.size(); ++i)
      if (has(logs_[i], problem)) left_out.insert(i);
    for (const std::size_t i : left_out)
      for (const Measurement& m : logs_[i]) unknown.insert(m.problem);
    const auto [at, is_new] = learned_.try_emplace(left_out);
    if (!is_new) return at->second;
    std::vector<Measurement> others;
    for (const std::vector<Measurement>& log : logs_)
      for (const Measurement& m : log)
        if (!unknown.contains(m.problem)) others.push_back(m);
    CostModel model;
    model.train(samples_of(others));
    return at->second = model.is_trained() ? model.to_bytes("start") : "";
  }

 private:
  static bool has(const std::vector<Measurement>& log, const std::string& problem) {
    return std::any_of(log.begin(), log.end(),
                       [&](const Measurement& m) { return m.problem == problem; });
  }

  bool transfers_;
  std::string given_;
  std::vector<std::vector<Measurement>> logs_;
  std::map<std::set<std::size_t>, std::string> learned_;
};

// The trials at which the curve falls, and its length: [[1, 5.2], [7, 4.9], [1000, 4.9]].
void print_steps(std::ostream& out, const std::vector<double>& curve) {
  out << '[';
  const char* separator = "";
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const bool falls = i == 0 || curve[i] < curve[i - 1] || i + 1 == curve.size();
    if (!falls || curve[i] > 1e300) continue;
    out << separator << '[' << i + 1 << ", " << curve[i] << ']';
    separator = ", ";
  }
  out << ']';
}

struct Trials {
  std::vector<double> to_random;                  // until it is where random search ends
  std::vector<double> shares;                     // the same over all trials of random search
  std::vector<double> to_best[std::size(kNear)];  // until it is near the best recorded
};
struct Outcome {
  std::map<std::string, Trials> methods;
  std::vector<double> level0;  // what the analytic model takes, over the best: of each problem
};

// The best time after each trial.
std::vector<double> curve_of(const Method& method, const Options& options,
                             const Recording& recording, RecordedMeasurer& measurer, int task,
                             std::size_t seed, const std::string& start) {
  const Space space = recording.space();
  Search search(
      recording.problem(), recording.family(), space,
      {.seed = seed, .use_model = method.use_model, .use_evolution = method.use_evolution});
  CostModel model(seed);
  if (method.is_started && !start.empty())
    model = CostModel::from_bytes(start, "start", seed, search.features(space.chosen).size());
  std::vector<double> curve;
  for (const Search::Best& best :
       search_curve(search, task, measurer, model, options.trials, options.batch))
    curve.push_back(best.microseconds);
  return curve;
}

void print_task(std::ostream& out, const Options& options, const Recording& recording,
                RecordedMeasurer& measurer, int task, Starts& starts, Outcome& outcome) {
  const Measured level0 = recording.measured(recording.space().chosen);
  const double level0_us = level0.error.empty() ? level0.microseconds[0] : 0;
  if (level0_us > 0) outcome.level0.push_back(level0_us / recording.best_us());
  out << "    {\"problem\": " << bench::quoted(recording.problem())
      << ", \"device\": " << bench::quoted(recording.device())
      << ", \"schedules\": " << recording.size() << ", \"best_us\": " << recording.best_us()
      << ", \"level0_us\": " << level0_us << ",\n     \"curves\": [";
  const char* separator = "\n";
  const std::string start = starts.have_any() ? starts.of(recording.problem()) : "";
  for (std::size_t seed = 1; seed <= options.seeds; ++seed) {
    double goal = 0;
    std::size_t random_trials = 0;
    for (const Method& method : kMethods) {
      if (method.is_started && !starts.have_any()) continue;
      const std::vector<double> curve =
          curve_of(method, options, recording, measurer, task, seed, start);
      if (goal == 0) goal = curve.back(), random_trials = curve.size();
      const std::size_t trials = trials_to(curve, goal);
      Trials& all = outcome.methods[method.name];
      all.to_random.push_back(static_cast<double>(trials));
      all.shares.push_back(static_cast<double>(trials) / static_cast<double>(random_trials));
      out << separator << "      {\"method\": \"" << method.name << "\", \"seed\": " << seed
          << ", \"trials_to_random_best\": " << trials;
      for (std::size_t i = 0; i < std::size(kNear); ++i) {
        const std::size_t to_best = trials_to(curve, kNear[i] * recording.best_us());
        all.to_best[i].push_back(static_cast<double>(to_best));
        out << ", \"trials_to_" << i + 1 << "_percent\": " << to_best;
      }
      out << ", \"steps\": ";
      print_steps(out, curve);
      out << '}';
      separator = ",\n";
    }
  }
  out << "]}";
}

void run(const Options& options) {
  const LogContents log = read_logs(options.logs);
  const std::vector<Recording> all = recordings(log.measurements, options.least);
  if (all.empty())
    fail("tune_search", "got logs without a problem of ", options.least,
         " schedules, need --least=N for smaller ones, or a log of more measurements");
  RecordedMeasurer measurer(all);
  Starts starts(options);
  Outcome outcome;
  std::cout << "{\"commit\": \"" << bench::commit() << "\", \"trials\": " << options.trials
            << ", \"batch\": " << options.batch
            << ", \"learns\": " << (CostModel::can_learn() ? "true" : "false")
            << ",\n \"tasks\": [\n";
  for (std::size_t task = 0; task < all.size(); ++task) {
    if (task > 0) std::cout << ",\n";
    print_task(std::cout, options, all[task], measurer, static_cast<int>(task), starts, outcome);
  }
  std::cout << "]";
  const auto print_medians = [&](const char* name, const auto& values) {
    std::cout << ",\n \"" << name << "\": {";
    const char* separator = "";
    for (const auto& [method, trials] : outcome.methods) {
      std::cout << separator << '"' << method << "\": " << median(values(trials));
      separator = ", ";
    }
    std::cout << "}";
  };
  print_medians("median_trials_to_random_best", [](const Trials& t) { return t.to_random; });
  print_medians("median_share_of_random_trials", [](const Trials& t) { return t.shares; });
  print_medians("median_trials_to_1_percent", [](const Trials& t) { return t.to_best[0]; });
  print_medians("median_trials_to_2_percent", [](const Trials& t) { return t.to_best[1]; });
  if (!outcome.level0.empty())
    std::cout << ",\n \"median_level0_over_best\": " << median(outcome.level0);
  std::cout << "}\n";
}

}  // namespace
}  // namespace tensor

int main(int argc, char** argv) {
  return bench::run_main(argc, argv, tensor::kHelp,
                         [&] { tensor::run(tensor::parse(argc, argv)); });
}
