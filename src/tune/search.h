// Search: which schedules of one problem to measure next, and which is best (GTCO, section IV-E).
// Batches come from evolution: parents are what was measured as fast, what others took, and random
// schedules; children are ranked by the cost model. It measures nothing itself.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "src/tune/cost_model.h"
#include "src/tune/measurer.h"
#include "src/tune/sampler.h"

namespace tensor {

struct SearchOptions {
  std::uint64_t seed = 0;
  bool use_model = true;      // else children are as likely as each other
  bool use_evolution = true;  // else every schedule is drawn at random, the model unused
  double random_share = 0.1;  // of a batch: drawn from the whole space, whatever the model says
  std::size_t population = 256;
  int generations = 4;
  std::size_t parents = 32;  // the best measured of so many
};

class Search {
 public:
  struct Best {
    Schedule schedule;
    double microseconds = 0;
  };

  /// `problem` is the log's key of what is computed, `family` of whose kernels.
  Search(std::string problem, std::string family, Space space, SearchOptions options = {});
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  /// What a log knows of this problem on this very device: nothing of it is measured again.
  /// Measurements of other problems, families, or of schedules the space has not are passed over.
  void resume(std::span<const Measurement> measurements);
  /// A schedule worth measuring soon, such as the best of another GPU, or even before level 0's;
  /// passed over where the space does not have it.
  void hint(const std::string& schedule, bool is_first = false);

  /// Up to `count` different schedules that have neither been proposed nor measured, level 0's
  /// choice and hints first. Fewer where the space has no more. The same calls with the same
  /// answers propose the same.
  std::vector<Schedule> propose(std::size_t count, const CostModel& model);
  /// Takes what came of them, and returns it for the log: device, driver, version and time are the
  /// caller's to add.
  std::vector<Measurement> learn(std::span<const Schedule> schedules,
                                 std::span<const Measured> measured);

  /// The fastest that ran without error, by the median of its repeats.
  const std::optional<Best>& best() const { return best_; }
  /// All that take at most so many times as long, the fastest first.
  std::vector<Best> within(double times) const;
  /// What was learned so far, for CostModel::train.
  const std::vector<Sample>& samples() const { return samples_; }
  /// How many schedules were measured, here or according to the log; failures included.
  std::size_t trials() const { return trials_.size(); }
  /// Whether this schedule was proposed or measured, whatever came of it.
  bool has_tried(const Schedule& schedule) const { return taken_.contains(schedule.text()); }
  /// Whether there is nothing left to propose.
  bool is_exhausted() const { return is_exhausted_; }
  /// Features of the schedule as the cost model wants them.
  std::vector<float> features(const Schedule& schedule) const;

  const std::string& problem() const { return problem_; }
  const std::string& family() const { return family_; }
  const Space& space() const { return space_; }
  const SearchOptions& options() const { return options_; }

 private:
  struct Trial {
    Schedule schedule;
    double microseconds = 0;  // infinity of a failure
  };
  class Batch;
  void add(const Schedule& schedule, double microseconds, std::vector<float> features);
  std::vector<Schedule> parents() const;
  std::vector<Schedule> candidates(std::size_t count, const CostModel& model);
  std::vector<Schedule> evolve(std::vector<Schedule> population, const CostModel& model);
  std::vector<Schedule> bred(const std::vector<Schedule>& parents, std::size_t count);
  std::vector<double> scores(const std::vector<Schedule>& schedules, const CostModel& model) const;

  std::string problem_, family_;
  Space space_;
  SearchOptions options_;
  Sampler sampler_;
  Random random_;
  double level0_us_ = 0;
  std::vector<Schedule> hints_;
  std::unordered_set<std::string> taken_;  // proposed or measured
  std::vector<Trial> trials_;
  std::vector<Sample> samples_;
  std::optional<Best> best_;
  bool is_exhausted_ = false;
};

}  // namespace tensor
