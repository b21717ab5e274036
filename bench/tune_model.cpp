// The cost model that ships: trained on logs, and how well it ranks what it has not seen. Each log
// (one a model, say) is left out in turn, with all its problems wherever else they occur, and
// ranked by what the others teach.
#include <iostream>
#include <map>
#include <set>

#include "src/tune/cost_model.h"
#include "tensor/error.h"

namespace tensor {
namespace {

constexpr const char* kHelp =
    "usage: tune_model [--save=FILE] LOG...\n"
    "Prints JSON: for every log the mean over its problems of rank correlation and top-8 recall,\n"
    "by a cost model that has learned from the other logs, and by the analytic model. With --save\n"
    "a model trained on all of them is written.\n";

constexpr std::size_t kLeast = 16;  // schedules of a problem, for a recall of 8 to mean something

struct Quality {
  double correlation = 0, recall = 0;
  void add(const std::vector<double>& scores, const std::vector<double>& microseconds) {
    correlation -= rank_correlation(scores, microseconds);
    recall += top_recall(scores, microseconds);
  }
};

void print(std::ostream& out, const char* name, const Quality& sum, std::size_t problems) {
  const auto count = static_cast<double>(problems);
  out << "\"" << name << "\": {\"rank_correlation\": " << sum.correlation / count
      << ", \"top8_recall\": " << sum.recall / count << "}";
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

void run(std::vector<std::string> arguments) {
  std::string save;
  if (!arguments.empty() && arguments[0].starts_with("--save=")) {
    save = arguments[0].substr(7);
    arguments.erase(arguments.begin());
  }
  if (arguments.empty() || arguments[0].starts_with("--"))
    fail("tune_model", "got no log\n", kHelp);
  std::vector<std::vector<Sample>> logs;
  for (const std::string& path : arguments) logs.push_back(samples_of(read_log(path).measurements));
  std::cout << "{\"left_out\": [";
  const char* separator = "\n";
  for (std::size_t i = 0; i < logs.size(); ++i) {
    Tasks tasks;
    for (const Sample& s : logs[i]) tasks[s.task].push_back(s);
    std::vector<Sample> others;
    for (std::size_t k = 0; k < logs.size(); ++k)
      for (const Sample& s : logs[k])
        if (k != i && !tasks.contains(s.task)) others.push_back(s);
    std::cout << separator << "  {\"log\": \""
              << arguments[i].substr(arguments[i].rfind('/') + 1)  // npos + 1: all of it
              << "\", \"samples\": " << logs[i].size() << ", \"learned_from\": " << others.size()
              << ", ";
    evaluate(std::cout, tasks, others);
    std::cout << "}";
    separator = ",\n";
  }
  std::cout << "]}\n";
  if (save.empty()) return;
  std::vector<Sample> all;
  std::set<std::pair<std::string, std::vector<float>>> known;  // by task and features
  for (const std::vector<Sample>& log : logs)
    for (const Sample& s : log)
      if (known.emplace(s.task, s.features).second) all.push_back(s);
  CostModel model;
  model.train(all);
  model.save(save);
}

}  // namespace
}  // namespace tensor

int main(int argc, char** argv) {
  try {
    tensor::run({argv + 1, argv + argc});
    return 0;
  } catch (const tensor::UserError& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
