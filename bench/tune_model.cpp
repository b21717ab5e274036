// The cost model that ships: trained on logs, and how well it ranks what it has not seen. Each log
// (one a model, say) is left out in turn, with all its problems wherever else they occur, and
// ranked by what the others teach.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <numeric>

#include "bench/commit.h"
#include "bench/main.h"
#include "src/tune/cost_model.h"
#include "tensor/error.h"

namespace tensor {
namespace {

constexpr const char* kHelp =
    "usage: tune_model [--save=FILE | --merge=FILE] LOG...\n"
    "Prints JSON: for every log the mean over its problems of rank correlation, top-8 recall and\n"
    "the speed of the best of the first four as a share of the best, by a cost model that has\n"
    "learned from the other logs, and by the analytic model. With --save a model trained on all "
    "of\n"
    "them is written, to be shipped in src/tune/shipped as nvidia-h200.model, say.\n"
    "With --merge nothing is learned: what the logs hold is written into one, duplicates and\n"
    "damaged lines left out.\n";

constexpr std::size_t kLeast = 16;  // schedules of a problem, for a recall of 8 to mean something

// The least time among the first `count` by the scores.
double best_of(const std::vector<double>& scores, const std::vector<double>& microseconds,
               std::size_t count) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  double best = INFINITY;
  for (std::size_t i = 0; i < std::min(count, order.size()); ++i)
    best = std::min(best, microseconds[order[i]]);
  return best;
}

struct Quality {
  double correlation = 0, recall = 0, speed = 0;
  void add(const std::vector<double>& scores, const std::vector<double>& microseconds) {
    correlation -= rank_correlation(scores, microseconds);
    recall += top_recall(scores, microseconds);
    speed += *std::min_element(microseconds.begin(), microseconds.end()) /
             best_of(scores, microseconds, 4);
  }
};

void print(std::ostream& out, const char* name, const Quality& sum, std::size_t problems) {
  const auto count = static_cast<double>(problems);
  out << "\"" << name << "\": {\"rank_correlation\": " << sum.correlation / count
      << ", \"top8_recall\": " << sum.recall / count << ", \"best_of_4\": " << sum.speed / count
      << "}";
}

using Tasks = std::map<std::string, std::vector<Sample>>;

void evaluate(std::ostream& out, const Tasks& tasks, const std::vector<Sample>& others) {
  CostModel learned, analytic;
  learned.train(others);
  Quality by_learned, by_analytic;
  std::size_t problems = 0;
  for (const auto& [name, samples] : tasks) {
    if (samples.size() < kLeast) continue;
    ++problems;
    std::vector<std::vector<float>> rows;
    std::vector<double> microseconds;
    for (const Sample& s : samples) {
      rows.push_back(s.features);
      microseconds.push_back(s.microseconds);
    }
    by_learned.add(learned.predict(rows), microseconds);
    by_analytic.add(analytic.predict(rows), microseconds);
  }
  out << "\"problems\": " << problems;
  if (problems == 0) return;
  print(out << ", ", "learned", by_learned, problems);
  print(out << ", ", "analytic", by_analytic, problems);
}

void run(int argc, char** argv) {
  std::string save, merged;
  const std::vector<std::string> arguments =
      bench::take_options(argc, argv,
                          {{"--save=", [&](auto& text) { save = text; }},
                           {"--merge=", [&](auto& text) { merged = text; }}},
                          kHelp);
  if (arguments.empty()) fail("tune_model", "got no log\n", kHelp);
  if (!merged.empty()) {
    const LogContents contents = merge_logs(arguments, merged);
    std::cerr << merged << ": " << contents.measurements.size() << " lines; left out "
              << contents.duplicates << " duplicates and " << contents.damaged << " damaged\n";
    return;
  }
  std::vector<std::vector<Measurement>> logs;
  std::vector<Measurement> all;
  for (const std::string& path : arguments) {
    logs.push_back(read_log(path).measurements);
    all.insert(all.end(), logs.back().begin(), logs.back().end());
  }
  std::cout << "{\"commit\": \"" << bench::commit() << "\", \"left_out\": [";
  const char* separator = "\n";
  for (std::size_t i = 0; i < logs.size(); ++i) {
    const std::vector<Sample> samples = samples_of(logs[i]);
    Tasks tasks;
    for (const Sample& s : samples) tasks[s.task].push_back(s);
    std::vector<Sample> others = samples_of(all);
    std::erase_if(others, [&](const Sample& s) { return tasks.contains(s.task); });
    std::cout << separator << "  {\"log\": \""
              << arguments[i].substr(arguments[i].rfind('/') + 1)  // npos + 1: all of it
              << "\", \"samples\": " << samples.size() << ", \"learned_from\": " << others.size()
              << ", ";
    evaluate(std::cout, tasks, others);
    std::cout << "}";
    separator = ",\n";
  }
  std::cout << "]}\n";
  if (save.empty()) return;
  CostModel model;
  model.train(samples_of(all));
  model.save(save);
}

}  // namespace
}  // namespace tensor

int main(int argc, char** argv) {
  return bench::run_main(argc, argv, tensor::kHelp, [&] { tensor::run(argc, argv); });
}
