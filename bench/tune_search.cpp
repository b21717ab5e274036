// How many trials searches take: random, evolution without a cost model, and with it. The machine
// is a log that has all that was ever measured of some problems (tune --help says how to make one),
// so this runs anywhere; as many seeds as wanted cost nothing.
#include <algorithm>
#include <charconv>
#include <iostream>
#include <map>

#include "src/tune/curve.h"
#include "src/tune/recording.h"
#include "src/tune/table.h"
#include "tensor/error.h"

namespace tensor {
namespace {

struct Options {
  std::vector<std::string> logs;
  std::string model;  // to start from
  std::size_t seeds = 3, trials = 1000, batch = 16, least = 100;
};

constexpr const char* kHelp =
    "usage: tune_search [--seeds=3] [--trials=1000] [--batch=16] [--least=100] [--model=FILE] "
    "LOG...\n"
    "Prints JSON: of every problem with so many schedules in the logs the best time after each\n"
    "trial, by three searches; and the trials that they take to random search's best.\n";

Options parse(int argc, char** argv) {
  Options options;
  std::map<std::string, std::size_t*> numbers = {{"--seeds=", &options.seeds},
                                                 {"--trials=", &options.trials},
                                                 {"--batch=", &options.batch},
                                                 {"--least=", &options.least}};
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const std::size_t end = text.find('=') + 1;
    const auto number = numbers.find(text.substr(0, end));
    if (text.starts_with("--model=")) {
      options.model = text.substr(end);
    } else if (end > 0 && number != numbers.end()) {
      const char* last = text.data() + text.size();
      const auto [at, error] = std::from_chars(text.data() + end, last, *number->second);
      if (error != std::errc() || at != last || *number->second == 0)
        fail("tune_search", "got ", text, ", need a number above 0");
    } else if (text.starts_with("--")) {
      fail("tune_search", "got ", text, "\n", kHelp);
    } else {
      options.logs.push_back(text);
    }
  }
  if (options.logs.empty()) fail("tune_search", "got no log\n", kHelp);
  return options;
}

struct Method {
  const char* name;
  bool use_model, use_evolution;
};
constexpr Method kMethods[] = {
    {"random", false, false}, {"evolution", false, true}, {"full", true, true}};

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + '"';
}

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

// Of a method the trials until it is where random search ends, over those of random search.
using Shares = std::map<std::string, std::vector<double>>;

void print_task(std::ostream& out, const Options& options, const Recording& recording,
                RecordedMeasurer& measurer, int task, Shares& shares) {
  const Space space = recording.space();
  out << "    {\"problem\": " << quoted(recording.problem())
      << ", \"device\": " << quoted(recording.device()) << ", \"schedules\": " << recording.size()
      << ", \"best_us\": " << recording.best_us() << ",\n     \"curves\": [";
  const char* separator = "\n";
  for (std::size_t seed = 1; seed <= options.seeds; ++seed) {
    double goal = 0;
    std::size_t random_trials = 0;
    for (const Method& method : kMethods) {
      Search search(
          recording.problem(), recording.family(), space,
          {.seed = seed, .use_model = method.use_model, .use_evolution = method.use_evolution});
      CostModel model =
          options.model.empty() ? CostModel(seed) : CostModel::load(options.model, seed);
      std::vector<double> curve;
      for (const Search::Best& best :
           search_curve(search, task, measurer, model, options.trials, options.batch))
        curve.push_back(best.microseconds);
      if (goal == 0) goal = curve.back(), random_trials = curve.size();
      const std::size_t trials = trials_to(curve, goal);
      shares[method.name].push_back(static_cast<double>(trials) /
                                    static_cast<double>(random_trials));
      out << separator << "      {\"method\": \"" << method.name << "\", \"seed\": " << seed
          << ", \"trials_to_random_best\": " << trials << ", \"steps\": ";
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
  Shares shares;
  std::cout << "{\"trials\": " << options.trials << ", \"batch\": " << options.batch
            << ", \"learns\": " << (CostModel::can_learn() ? "true" : "false")
            << ",\n \"tasks\": [\n";
  for (std::size_t task = 0; task < all.size(); ++task) {
    if (task > 0) std::cout << ",\n";
    print_task(std::cout, options, all[task], measurer, static_cast<int>(task), shares);
  }
  std::cout << "],\n \"median_share_of_random_trials\": {";
  const char* separator = "";
  for (const auto& [method, values] : shares) {
    std::cout << separator << '"' << method << "\": " << median(values);
    separator = ", ";
  }
  std::cout << "}}\n";
}

}  // namespace
}  // namespace tensor

int main(int argc, char** argv) {
  try {
    tensor::run(tensor::parse(argc, argv));
    return 0;
  } catch (const tensor::UserError& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
