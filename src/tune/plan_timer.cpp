#include "src/tune/plan_timer.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "src/runtime/program.h"
#include "src/tune/table.h"
#include "tensor/creation.h"
#include "tensor/error.h"
#include "tensor/text.h"

namespace tensor {
namespace {

// Linking packs and copies all weights, and compiles what is not in the cache of kernels.
constexpr Worker::Limits kPatience{.item_seconds = 120, .idle_seconds = 600};
// By turns, so many times, so long each.
constexpr int kRounds = 9;
constexpr double kQuickUs = 20e3, kSustainedUs = 200e3;
constexpr int kFewestRuns = 3, kMostRuns = 1000;
// Models that take longer run once a round, in fewer rounds.
constexpr double kLongRunUs = 100e3;
constexpr int kFewestRounds = 3;
using Clock = std::chrono::steady_clock;

// What differs between variants: the partition, and a line a group.
std::string item_of(const Variant& variant) {
  std::string text = std::to_string(variant.partition) + '\n';
  for (const Group& group : variant.plan.groups)
    text += std::to_string(group.family) + ' ' + group.schedule + '\n';
  return text;
}

Variant variant_of(const Partitions& partitions, const std::string& item) {
  TextReader text(item);
  Variant variant;
  text >> variant.partition;
  variant.plan = partitions.at(variant.partition).second;
  for (Group& group : variant.plan.groups) {
    text >> group.family;
    text.get();
    std::getline(text, group.schedule);
  }
  if (!text) internal_error("tune", "got a plan of other groups");
  return variant;
}

std::vector<Tensor> inputs_of(const std::vector<TensorType>& types) {
  Generator random(1);
  std::vector<Tensor> inputs;
  for (const TensorType& type : types)
    inputs.push_back(is_floating(type.dtype) ? random.normal(type.shape).astype(type.dtype)
                                             : zeros(type.shape, type.dtype));
  return inputs;
}

class Rounds {
 public:
  Rounds(const Partitions& partitions, const detail::Target& target)
      : partitions_(partitions), target_(target) {}

  // Worker::Work.
  void operator()(const std::vector<std::string>& items, Channel& channel) {
    std::vector<Entry> entries;
    for (std::size_t i = 0; i < items.size(); ++i) {
      channel.begin(i);
      try {
        Variant variant = variant_of(partitions_, items[i]);
        const LaidOutGraph& laid = partitions_[variant.partition].first;
        entries.push_back({i, detail::link(laid, std::move(variant.plan), target_)});
        channel.pause(i);
      } catch (const Error& error) {
        channel.failed(i, error.what());
      }
    }
    if (entries.empty()) return;
    const std::vector<Tensor> inputs = inputs_of(entries[0].program->inputs);
    const auto time_all = [&](double round_us) {
      for (Entry& entry : entries) {
        channel.begin(entry.item);
        entry.times.push_back(time_round(entry, inputs, round_us));
        channel.pause(entry.item);
      }
    };
    time_all(kQuickUs);  // a run each, which warms up
    double longest = 0;
    for (const Entry& entry : entries) longest = std::max(longest, entry.times[0]);
    if (longest < kLongRunUs) time_all(kQuickUs);
    if (!round_us_) {
      channel.begin(entries[0].item);
      const int repeats = repeats_in(kSustainedUs, entries[0].times.back());
      const bool slows = slows_down(entries[0].program->engine->time_whole(inputs, repeats));
      round_us_ = slows ? kSustainedUs : kQuickUs;
      channel.pause(entries[0].item);
    }
    for (Entry& entry : entries) entry.times.clear();
    const int rounds =
        std::clamp(static_cast<int>(kRounds * kLongRunUs / longest), kFewestRounds, kRounds);
    for (int round = 0; round < rounds; ++round) time_all(*round_us_);
    for (const Entry& entry : entries) {
      TextWriter text;
      text.precision(9);
      for (const double time : entry.times) text << time << ' ';
      channel.done(entry.item, text.str());
    }
  }

 private:
  struct Entry {
    std::size_t item;
    std::shared_ptr<const detail::Program> program;
    double run_us = kLongRunUs;  // with its share of the copies, once it is known
    std::vector<double> times = {};
  };

  static int repeats_in(double us, double run_us) {
    const double least = run_us < kLongRunUs ? kFewestRuns : 1;
    return static_cast<int>(std::clamp(us / run_us, least, double{kMostRuns}));
  }

  // Of the second half: in the first, the device gets to its clock.
  static double time_round(Entry& entry, const std::vector<Tensor>& inputs, double round_us) {
    const int repeats = repeats_in(round_us, entry.run_us);
    const Clock::time_point start = Clock::now();
    const std::vector<double> times = entry.program->engine->time_whole(inputs, repeats);
    const std::chrono::duration<double, std::micro> taken = Clock::now() - start;
    entry.run_us = taken.count() / repeats;
    return median({times.begin() + std::ssize(times) / 2, times.end()});
  }

  const Partitions& partitions_;
  const detail::Target& target_;
  std::optional<double> round_us_;  // of the model, once it is known
};

double middle(std::span<const double> times) { return median({times.begin(), times.end()}); }

std::vector<double> numbers_of(const std::string& list) {
  TextReader text(list);
  std::vector<double> numbers;
  for (double number = 0; text >> number;) numbers.push_back(number);
  return numbers;
}

}  // namespace

TimePlans plan_timer(Partitions partitions, detail::Target target, Worker::Stop stop) {
  struct Child {
    Partitions partitions;
    detail::Target target;
    Worker worker;
    Child(Partitions p, detail::Target t, Worker::Stop stop)
        : partitions(std::move(p)),
          target(std::move(t)),
          worker(Rounds(partitions, target), kPatience, std::move(stop)) {}
  };
  const auto child =
      std::make_shared<Child>(std::move(partitions), std::move(target), std::move(stop));
  return [child](std::span<const Variant> variants) {
    std::vector<std::string> items;
    for (const Variant& variant : variants) items.push_back(item_of(variant));
    std::vector<std::vector<double>> times;
    for (const Answer& answer : child->worker.run(items))
      times.push_back(numbers_of(answer.result));
    return times;
  };
}

bool slows_down(std::span<const double> times) {
  constexpr double kSlower = 1.03;
  const std::size_t part = std::max<std::size_t>(1, times.size() / 10);
  if (times.size() < 2 * part) return false;
  return middle(times.last(part)) > kSlower * middle(times.first(part));
}

bool is_faster(std::span<const double> times, std::span<const double> others, double gain) {
  if (times.empty() || times.size() != others.size()) return false;
  constexpr std::size_t kFew = 5;
  std::size_t slower = 0;
  for (std::size_t i = 0; i < times.size(); ++i) slower += times[i] >= others[i];
  return slower <= (times.size() < kFew ? 0U : 1U) && middle(times) <= (1 - gain) * middle(others);
}

Faster find_faster(const std::vector<Variant>& variants, const TimePlans& time) {
  const std::vector<std::vector<double>> times = time(variants);
  std::size_t best = 0;
  for (std::size_t i = 1; i < times.size() && !times[0].empty(); ++i)
    if (is_faster(times[i], times[0]) && (best == 0 || middle(times[i]) < middle(times[best])))
      best = i;
  if (best == 0) return {};
  const std::vector<Variant> both = {variants[0], variants[best]};
  std::vector<std::vector<double>> again = time(both);
  if (!is_faster(again[1], again[0])) return {};
  return {best, std::move(again[0]), std::move(again[1])};
}

}  // namespace tensor
