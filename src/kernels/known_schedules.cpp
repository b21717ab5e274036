#include "src/kernels/known_schedules.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "tensor/text.h"

namespace tensor {
namespace {

constexpr double kNear = 1.05;  // times the least time of a group, or of a plan
constexpr double kFar = 2;      // times the least time of a group

// Of groups whose kernels may be the same in two sizes.
std::string kind_of(const LaidOutGraph& laid, const Group& group, const std::string& device) {
  TextWriter kind;
  kind << device << ' ' << group.family;
  for (const ValueId id : group.reads) kind << ' ' << laid.graph.type(id).dtype;
  for (const ValueId id : group.nodes) kind << ' ' << info(laid.graph[id].op).name;
  return kind.str();
}

// How much may be lost for kernels that are there.
enum class Mode : std::uint8_t { near, far, haste };

// What equal groups of a plan run by.
struct Problem {
  const Group* group = nullptr;  // the first of them
  int count = 0;
  std::string kind;
  Schedule best;                  // if its kernels were there
  std::optional<Schedule> known;  // the fastest whose kernels are
  double best_us = 0, known_us = 0;
  bool takes_known = false;

  double lost_us() const { return count * (known_us - best_us); }
  bool is_near() const { return known_us < kNear * best_us; }
};

class Scheduler {
 public:
  Scheduler(const LaidOutGraph& laid, Offers& offers, const KnownSchedules& known,
            const std::string& device, Mode mode)
      : laid_(laid), offers_(offers), known_(known), device_(device), mode_(mode) {}

  // The plan's groups know their kinds.
  Scheduled run(FusionPlan plan) {
    std::map<int, std::size_t> problem_of;  // of kinds
    for (const Group& group : plan.groups) {
      if (const auto same = problem_of.find(group.kind); same != problem_of.end()) {
        ++problems_[same->second].count;
        continue;
      }
      for (const Offer& offer : offers_.of(isolate(laid_, group)))
        if (const Space* space = offer.family == group.family ? offer.space() : nullptr) {
          problem_of[group.kind] = problems_.size();
          add(group, *space);
        }
    }
    if (mode_ == Mode::far) bound_loss((kNear - 1) * plan.microseconds);
    for (Group& group : plan.groups)
      if (const auto known = problem_of.find(group.kind); known != problem_of.end()) {
        const Problem& problem = problems_[known->second];
        group.schedule = (problem.takes_known ? *problem.known : problem.best).text();
      }
    return {std::move(plan), std::move(made_)};
  }

 private:
  void add(const Group& group, const Space& space) {
    Problem& problem = problems_.emplace_back();
    problem.group = &group, problem.count = 1;
    problem.kind = kind_of(laid_, group, device_);
    problem.best = space.of(group.schedule);
    problem.best_us = space.model_us(space.chosen);
    find_known(problem, space);
    const bool is_measured = group.is_measured && mode_ != Mode::haste;
    problem.takes_known =
        problem.known && !is_measured && (mode_ != Mode::near || problem.is_near());
    if (!problem.takes_known) make(problem);
  }

  // The kernels of groups before it will be there, too; those are waited for in any case.
  void find_known(Problem& problem, const Space& space) {
    std::vector<std::pair<double, Schedule>> all;
    const auto add = [&](const Schedule& schedule, double most) {
      if (!space.runs(schedule)) return;
      const double us = space.model_us(schedule);
      if (us < most * problem.best_us) all.emplace_back(us, schedule);
    };
    for (const Schedule& schedule : known_.of_kind(problem.kind)) add(schedule, kFar);
    for (const KnownSchedules::Made& one : made_)
      if (one.kind == problem.kind) add(one.schedule, kNear);
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [us, schedule] : all)
      if (are_there(kernels_of(*problem.group, schedule))) {
        problem.known = std::move(schedule), problem.known_us = us;
        return;
      }
  }

  // Where known kernels lose more than this together, those that lose most are not taken.
  void bound_loss(double most_us) {
    std::vector<Problem*> takers;
    double lost = 0;
    for (Problem& problem : problems_)
      if (problem.takes_known) takers.push_back(&problem), lost += problem.lost_us();
    std::stable_sort(takers.begin(), takers.end(), [](const Problem* a, const Problem* b) {
      return a->lost_us() > b->lost_us();
    });
    for (Problem* problem : takers) {
      if (lost <= most_us) return;
      lost -= problem->lost_us();
      problem->takes_known = false;
      make(*problem);
    }
  }

  void make(const Problem& problem) {
    std::vector<std::string> kernels = kernels_of(*problem.group, problem.best);
    names_.insert(kernels.begin(), kernels.end());
    made_.push_back({problem.kind, problem.best, std::move(kernels)});
  }

  std::vector<std::string> kernels_of(Group group, const Schedule& schedule) {
    group.schedule = schedule.text();
    return offers_.kernels(laid_, group);
  }
  bool are_there(const std::vector<std::string>& kernels) const {
    return std::all_of(kernels.begin(), kernels.end(), [&](const std::string& name) {
      return names_.contains(name) || known_.has(name);
    });
  }

  const LaidOutGraph& laid_;
  Offers& offers_;
  const KnownSchedules& known_;
  const std::string& device_;
  const Mode mode_;
  std::vector<Problem> problems_;
  std::vector<KnownSchedules::Made> made_;
  std::set<std::string> names_;  // of their kernels
};

bool run_alike(const FusionPlan& a, const FusionPlan& b) {
  return std::equal(a.groups.begin(), a.groups.end(), b.groups.begin(), b.groups.end(),
                    [](const Group& x, const Group& y) { return x.schedule == y.schedule; });
}

}  // namespace

std::vector<Schedule> KnownSchedules::of_kind(const std::string& kind) const {
  const std::lock_guard lock(mutex_);
  const auto known = known_.find(kind);
  return known == known_.end() ? std::vector<Schedule>() : known->second;
}

bool KnownSchedules::has(const std::string& kernel) const {
  const std::lock_guard lock(mutex_);
  return kernels_.contains(kernel);
}

bool KnownSchedules::are_many(const std::string& device) const {
  const std::lock_guard lock(mutex_);
  const auto sizes = sizes_.find(device);
  return sizes != sizes_.end() && sizes->second >= kMany;
}

void KnownSchedules::add(const std::string& device, std::vector<Made> made) {
  const std::lock_guard lock(mutex_);
  ++sizes_[device];
  for (Made& one : made) {
    for (std::string& name : one.kernels) kernels_.insert(std::move(name));
    std::vector<Schedule>& known = known_[one.kind];
    if (std::find(known.begin(), known.end(), one.schedule) != known.end()) continue;
    if (known.size() == kMost) known.erase(known.begin());
    known.push_back(std::move(one.schedule));
  }
}

Scheduled scheduled(const LaidOutGraph& laid, FusionPlan plan, Offers& offers,
                    const KnownSchedules& known, const std::string& device, bool in_haste) {
  const Structures structures(laid);
  std::map<std::tuple<std::string, int, std::string>, int> kinds;
  for (Group& group : plan.groups)
    group.kind = kinds
                     .try_emplace({structures.of(group), group.family, group.schedule},
                                  static_cast<int>(kinds.size()))
                     .first->second;
  const Mode usual = known.are_many(device) ? Mode::far : Mode::near;
  if (!in_haste) return Scheduler(laid, offers, known, device, usual).run(std::move(plan));
  const Scheduled patient = Scheduler(laid, offers, known, device, usual).run(plan);
  Scheduled hasty = Scheduler(laid, offers, known, device, Mode::haste).run(std::move(plan));
  hasty.is_hasty = !run_alike(hasty.plan, patient.plan);
  return hasty;
}

}  // namespace tensor
