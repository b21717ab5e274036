// Tuner: measures the groups of a model and plans again with what it learned, until the plan stays
// as it is or the time is over.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/runtime/target.h"
#include "src/trace/layout.h"
#include "src/tune/ablation.h"
#include "src/tune/cost_model.h"
#include "src/tune/log.h"
#include "src/tune/plan_timer.h"
#include "src/tune/problem.h"
#include "src/tune/search.h"
#include "src/tune/table.h"
#include "src/tune/task_scheduler.h"
#include "src/tune/tuned_cost.h"
#include "tensor/tune.h"

namespace tensor {

class Tuner {
 public:
  /// What measures candidates of these problems, which become more with time, until `stop` says so.
  using MakeMeasurer = std::function<std::unique_ptr<Measurer>(const std::deque<Problem>& problems,
                                                               std::function<bool()> stop)>;
  /// What times whole models, until `stop` says so.
  using MakeTimer =
      std::function<TimePlans(const Partitions& partitions, std::function<bool()> stop)>;
  struct Limits {
    std::size_t first = 4;         // schedules of a new problem
    std::size_t slot = 4;          // schedules of a slot
    std::size_t side_by_side = 1;  // slots that are measured at a time
    bool fuse = true;              // else one kernel an operator
    bool overlap = false;          // kernels with their neighbors: what is fastest in the whole
                                   // model is chosen one by one
    Ablation ablation = {};
    RecordOptions record = {};
  };

  /// `known`: measurements of this and other devices, from logs. `log` takes the new ones. Without
  /// a timer the fastest schedules alone are taken for the best.
  Tuner(LaidOutGraph laid, detail::Target target, const TuneOptions& options, Limits limits,
        std::vector<Measurement> known, Log& log, const MakeMeasurer& make,
        MakeTimer make_timer = nullptr);

  TuneSummary run();

 private:
  using Clock = std::chrono::steady_clock;
  // A problem and what was tried for it.
  struct Entry {
    const Problem* problem = nullptr;
    std::unique_ptr<Search> search;
    std::string operators, where;
    double weight = 0;                 // how often the present plan has it
    std::vector<double> history = {};  // the best time after each slot
    double before_us = 0;              // as the analytic model chooses; 0 if not measured
  };
  struct Plans {
    Partition partition = {};
    FusionPlan apart = {};  // parallel products not merged yet
    std::pair<LaidOutGraph, FusionPlan> merged = {};
    std::vector<Group> alternatives = {};  // to `apart`
  };
  struct Slot {
    int task;
    std::vector<Schedule> schedules;
  };
  // What the log has of a candidate of the batch under way.
  struct Written {
    std::size_t times = 0;
    bool has_error = false;
  };

  std::shared_ptr<const Table> table() const;
  Plans plan(const std::shared_ptr<const Table>& table, bool is_final) const;
  Plans merged(FusionPlan apart) const;
  int task_of(const LaidOutGraph& laid, const Group& group);
  std::unique_ptr<Search> search_for(const Problem& problem) const;
  std::vector<int> adopt(const Plans& plans);

  std::string search(const Plans& before);
  std::string record(const Plans& before);
  std::vector<int> recorded_tasks() const;
  static std::string recorded(const Entry& entry);
  double best_sum() const;
  std::vector<int> next_tasks();
  void add_slot(std::vector<Slot>& slots, int task, std::size_t size);
  std::vector<Slot> slots(const std::vector<int>& tasks, std::size_t size);
  std::vector<Slot> first_slots(const std::vector<int>& fresh);
  void measure(const std::vector<Slot>& slots);
  void write(const Candidate& candidate, const Measured& measured, Written& written);
  void stamp(Measurement& m) const;
  void learn(const Slot& slot, std::span<const Measured> measured);
  std::size_t trials_left() const;

  void choose();
  Plans divided(const Partition& partition) const;
  FusionPlan estimated() const;
  static bool has(const std::vector<Plans>& all, const FusionPlan& plan);
  std::optional<Plans> divided_like(const FusionPlan& wanted) const;
  std::vector<Plans> partitions() const;
  FusionPlan with_level0(const Plans& plans) const;
  Variant choose_start(const std::vector<Plans>& partitions, const TimePlans& time);
  std::vector<Plans> without_heaviest(const Plans& plans);
  bool choose_fusion(std::vector<Plans>& partitions, Variant& variant, TimePlans& time);
  TimePlans timer(const std::vector<Plans>& partitions) const;
  bool choose(const LaidOutGraph& laid, Variant& variant, const Entry& entry,
              const TimePlans& time);
  void note_partition(const Partition& before, const Partition& after,
                      const std::vector<double>& times_before,
                      const std::vector<double>& times_after);
  void note(const std::string& problem, const std::string& what, const std::string& before,
            const std::string& after, const std::vector<double>& times_before,
            const std::vector<double>& times_after);
  std::string scheduled(const Group& group) const;

  std::string late() const;  // why it has to end, empty if it may go on
  std::string over() const;  // the same of searching
  double seconds() const;
  void tell(int task);
  const Entry* entry_of(const LaidOutGraph& laid, const Group& group) const;
  double measured_sum(const Plans& plans, bool is_tuned) const;
  TuneSummary summary(const Plans& before, const Plans& after) const;
  std::vector<std::string> overturned(const Plans& before, const Plans& after) const;

  LaidOutGraph laid_;
  detail::Target target_;
  TuneOptions options_;
  Limits limits_;
  std::vector<Measurement> known_;  // grows
  Log& log_;
  Clock::time_point start_ = Clock::now();
  std::deque<Problem> problems_;
  std::vector<Entry> tasks_;                 // of problems_, in their order
  std::map<std::string, int> task_by_text_;  // -1: nothing to be tuned
  CostModel model_;
  std::unique_ptr<Measurer> measurer_;
  MakeTimer make_timer_;
  double end_s_;            // of what it does now
  FusionPlan began_;        // as the log divided the model when tuning began
  bool has_start_ = false;  // of choosing: a plan that was compared with the untuned one
  std::vector<std::string> chosen_;
  std::int64_t trials_ = 0, failures_ = 0;
  double model_bytes_;    // of the constants
  std::size_t turn_ = 0;  // where tasks are taken in turns
  double before_us_ = 0;
  double told_us_ = 0;  // of the last plan all of which had times
};

}  // namespace tensor
