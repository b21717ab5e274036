#include "src/tune/search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "src/core/checksum.h"
#include "src/tune/table.h"
#include "tensor/error.h"

namespace tensor {
namespace {

// Of the children, those of two parents; the others have one.
constexpr double kCrossShare = 0.3;
// Children for each schedule of a batch, of which some have been measured.
constexpr std::size_t kChildren = 4;
// Draws for each schedule of a batch before the space counts as exhausted.
constexpr std::size_t kDrawsPerSchedule = 200;

// The order of the scores, the highest first; equal ones stay in order.
std::vector<std::size_t> descending(const std::vector<double>& scores) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  return order;
}

}  // namespace

Search::Search(std::string problem, std::string family, Space space, SearchOptions options)
    : problem_(std::move(problem)),
      family_(std::move(family)),
      space_(std::move(space)),
      options_(options),
      sampler_(space_),
      random_(hash_of(problem_ + family_, options.seed)),
      level0_us_(space_.model_us(space_.chosen)) {
  hints_.push_back(space_.chosen);
}

std::vector<float> Search::features(const Schedule& schedule) const {
  std::vector<float> result = space_.features(schedule);
  result.push_back(static_cast<float>(level0_us_ / space_.model_us(schedule)));
  return result;
}

void Search::resume(std::span<const Measurement> measurements) {
  std::map<std::string, std::vector<double>> times;  // by schedule; none of failures
  std::vector<std::string> order;
  std::unordered_set<std::string> faulty;
  for (const Measurement& m : measurements) {
    if (m.problem != problem_ || m.family != family_ || taken_.contains(m.schedule)) continue;
    if (!m.model_microseconds.empty()) continue;
    const auto [at, is_new] = times.try_emplace(m.schedule);
    if (is_new) order.push_back(m.schedule);
    at->second.insert(at->second.end(), m.microseconds.begin(), m.microseconds.end());
    if (!m.error.empty()) faulty.insert(m.schedule);
  }
  for (const std::string& text : order) {
    Schedule schedule;
    try {
      schedule = Schedule::parse(text);
    } catch (const UserError&) {
      continue;
    }
    if (!space_.has(schedule)) continue;
    taken_.insert(text);
    add(schedule, faulty.contains(text) ? INFINITY : median(std::move(times[text])),
        features(schedule));
  }
}

void Search::hint(const std::string& text, bool is_first) {
  try {
    Schedule schedule = Schedule::parse(text);
    if (space_.has(schedule))
      hints_.insert(is_first ? hints_.begin() : hints_.end(), std::move(schedule));
  } catch (const UserError&) {  // of another version
  }
}

void Search::add(const Schedule& schedule, double microseconds, std::vector<float> features) {
  trials_.push_back({schedule, microseconds});
  samples_.push_back({problem_ + '\n' + family_, std::move(features), microseconds});
  if (std::isinf(microseconds)) return;
  const bool is_better =
      !best_ || microseconds < best_->microseconds ||
      (microseconds == best_->microseconds && schedule.text() < best_->schedule.text());
  if (is_better) best_ = {schedule, microseconds};
}

std::vector<Measurement> Search::learn(std::span<const Schedule> schedules,
                                       std::span<const Measured> measured) {
  if (schedules.size() != measured.size())
    internal_error("tune", schedules.size(), " schedules have ", measured.size(), " answers");
  std::vector<Measurement> log;
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    Measurement m;
    m.problem = problem_;
    m.family = family_;
    m.schedule = schedules[i].text();
    m.features = features(schedules[i]);
    m.microseconds = measured[i].microseconds;
    m.error = measured[i].error;
    if (m.microseconds.empty() && m.error.empty()) m.error = "was not measured";
    taken_.insert(m.schedule);
    add(schedules[i], m.error.empty() ? median(m.microseconds) : INFINITY, m.features);
    log.push_back(std::move(m));
  }
  return log;
}

std::vector<double> Search::scores(const std::vector<Schedule>& schedules,
                                   const CostModel& model) const {
  std::vector<std::vector<float>> rows;
  for (const Schedule& s : schedules) rows.push_back(features(s));
  return model.predict(rows);
}

// The best measured, without failures.
std::vector<Schedule> Search::parents() const {
  std::vector<double> speed;
  for (const Trial& trial : trials_) speed.push_back(-trial.microseconds);
  std::vector<Schedule> best;
  for (const std::size_t i : descending(speed)) {
    if (best.size() == options_.parents || std::isinf(trials_[i].microseconds)) break;
    best.push_back(trials_[i].schedule);
  }
  return best;
}

std::vector<Search::Best> Search::within(double times) const {
  std::vector<Best> all;
  for (const Trial& trial : trials_)
    if (best_ && trial.microseconds <= times * best_->microseconds)
      all.push_back({trial.schedule, trial.microseconds});
  std::stable_sort(all.begin(), all.end(),
                   [](const Best& a, const Best& b) { return a.microseconds < b.microseconds; });
  return all;
}

std::vector<Schedule> Search::bred(const std::vector<Schedule>& parents, std::size_t count) {
  // The better of two: parents are sorted.
  const auto parent = [&]() -> const Schedule& {
    return parents[std::min(random_.below(parents.size()), random_.below(parents.size()))];
  };
  std::vector<Schedule> children;
  for (std::size_t i = 0; i < count; ++i) {
    const bool crosses = random_.uniform() < kCrossShare;
    const Schedule& one = parent();
    auto child = crosses ? sampler_.cross(one, parent(), random_) : sampler_.mutate(one, random_);
    if (child) children.push_back(*std::move(child));
  }
  return children;
}

// Generations of children, of which the fittest become parents; returned by fitness.
std::vector<Schedule> Search::evolve(std::vector<Schedule> population, const CostModel& model) {
  std::unordered_set<std::string> known;
  std::vector<Schedule> all;
  std::vector<double> fitness;
  const auto add = [&](std::vector<Schedule> schedules) {
    std::vector<Schedule> fresh;
    for (Schedule& s : schedules)
      if (known.insert(s.text()).second) fresh.push_back(std::move(s));
    const std::vector<double> more = scores(fresh, model);
    fitness.insert(fitness.end(), more.begin(), more.end());
    all.insert(all.end(), fresh.begin(), fresh.end());
  };
  add(std::move(population));
  for (int generation = 0; generation < options_.generations; ++generation) {
    std::vector<Schedule> fittest;
    for (const std::size_t i : descending(fitness)) {
      if (fittest.size() == options_.population / 4) break;
      fittest.push_back(all[i]);
    }
    add(bred(fittest, options_.population));
  }
  std::vector<Schedule> sorted;
  for (const std::size_t i : descending(fitness)) sorted.push_back(all[i]);
  return sorted;
}

// A batch under construction: every schedule one time.
class Search::Batch {
 public:
  explicit Batch(Search& search) : search_(search) {}

  // Unless the batch has `limit` schedules.
  void add(const Schedule& schedule, std::size_t limit) {
    if (schedules_.size() < limit && search_.taken_.insert(schedule.text()).second)
      schedules_.push_back(schedule);
  }
  // Draws until the batch has `size` schedules or the space no more.
  void add_random(std::size_t size) {
    if (const auto& all = search_.sampler_.all()) {
      std::vector<const Schedule*> left;
      for (const Schedule& s : *all)
        if (!search_.taken_.contains(s.text())) left.push_back(&s);
      for (; schedules_.size() < size && !left.empty(); left.pop_back()) {
        std::swap(left[search_.random_.below(left.size())], left.back());
        add(*left.back(), size);
      }
      return;
    }
    for (std::size_t i = 0; i < kDrawsPerSchedule * size && schedules_.size() < size; ++i)
      add(search_.sampler_.sample(search_.random_), size);
  }
  std::vector<Schedule> take() { return std::move(schedules_); }

 private:
  Search& search_;
  std::vector<Schedule> schedules_;
};

std::vector<Schedule> Search::propose(std::size_t count, const CostModel& model) {
  Batch batch(*this);
  for (const Schedule& s : hints_) batch.add(s, count);
  if (options_.use_evolution) {
    // The part of the random schedules, rounded at random: some of every ten in small batches, too.
    const auto random = static_cast<std::size_t>(
        options_.random_share * static_cast<double>(count) + random_.uniform());
    const std::size_t limit = count - std::min(random, count);
    for (const Schedule& s : candidates(limit, model)) batch.add(s, limit);
  }
  batch.add_random(count);
  std::vector<Schedule> schedules = batch.take();
  is_exhausted_ = schedules.size() < count;
  return schedules;
}

// What evolution would measure, the most promising first.
std::vector<Schedule> Search::candidates(std::size_t count, const CostModel& model) {
  std::vector<Schedule> population = parents();
  if (!options_.use_model)
    return population.empty() ? population : bred(population, kChildren * count);
  population.insert(population.end(), hints_.begin(), hints_.end());
  while (population.size() < options_.population) population.push_back(sampler_.sample(random_));
  return evolve(std::move(population), model);
}

}  // namespace tensor
