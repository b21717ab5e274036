#include "src/tune/trial.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "src/tune/table.h"
#include "tensor/error.h"
#include "tensor/text.h"

namespace tensor {
namespace {

constexpr int kTrialWarmUps = 2;

Candidate candidate_of(const std::string& item) {
  Candidate candidate;
  const char* const end = item.data() + item.size();
  const auto [rest, error] = std::from_chars(item.data(), end, candidate.task);
  if (error != std::errc() || rest == end || *rest != ' ')
    internal_error("tune", "got the item \"", item, '"');
  candidate.schedule = Schedule::parse(std::string_view(rest + 1, end));
  return candidate;
}

std::string text_of(const std::vector<double>& times) {
  TextWriter text;
  text.precision(9);
  for (const double& time : times) text << (&time == times.data() ? "" : " ") << time;
  return text.str();
}

Measured measured_of(const Answer& answer) {
  Measured result;
  result.error = answer.error;
  if (!answer.error.empty() || answer.result.empty()) return result;
  TextReader text(answer.result);
  for (double time = 0; text >> time;) result.microseconds.push_back(time);
  const bool is_good = text.eof() && !result.microseconds.empty() &&
                       std::all_of(result.microseconds.begin(), result.microseconds.end(),
                                   [](double time) { return std::isfinite(time) && time > 0; });
  if (!is_good) result = {{}, "answered \"" + answer.result.substr(0, 80) + "\", no times"};
  return result;
}

class Batch {
 public:
  Batch(const Measuring& how, const std::vector<std::string>& items, Channel& channel)
      : how_(how), items_(items), channel_(channel), entries_(items.size()) {}

  void run() {
    if (how_.compilers == 0) {
      for (std::size_t i = 0; i < items_.size(); ++i)
        if (compile(i)) screen(i);
    } else {
      std::vector<std::thread> threads;
      for (int i = 0; i < how_.compilers; ++i) threads.emplace_back([this] { compile_all(); });
      for (std::size_t i = 0; i < items_.size(); ++i)
        if (const auto [item, is_good] = next_compiled(); is_good) screen(item);
      for (std::thread& thread : threads) thread.join();
    }
    for (auto& [task, list] : finalists_) time_by_turns(list);
  }

 private:
  struct Entry {
    Candidate candidate;
    std::unique_ptr<Trial> trial;
    std::vector<double> times = {};
    double microseconds = 0;  // the median of the first times
  };

  // Tells of an exception, and whether there was none.
  template <class F>
  bool attempt(std::size_t item, F&& step) {
    channel_.begin(item);
    std::string error;
    try {
      step();
    } catch (const std::exception& thrown) {
      error = *thrown.what() ? thrown.what() : "threw an exception";
    } catch (...) {
      error = "threw something that is no std::exception";
    }
    if (error.empty()) return true;
    channel_.failed(item, error);
    return false;
  }

  bool compile(std::size_t item) {
    Entry& entry = entries_[item];
    entry.candidate = candidate_of(items_[item]);
    if (how_.prepare) how_.prepare(entry.candidate.task);
    return attempt(item, [&] {
      entry.trial = how_.make(entry.candidate);
      entry.trial->compile();
      channel_.pause(item);
    });
  }

  void compile_all() {
    for (std::size_t item = next_++; item < items_.size(); item = next_++) {
      const bool is_good = compile(item);
      const std::lock_guard again(mutex_);
      compiled_.emplace_back(item, is_good);
      changed_.notify_one();
    }
  }

  std::pair<std::size_t, bool> next_compiled() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !compiled_.empty(); });
    const auto result = compiled_.front();
    compiled_.pop_front();
    return result;
  }

  // On the device: a fault there may be the process's last.
  template <class F>
  bool attempt_on_device(std::size_t item, F&& step) {
    if (attempt(item, step)) return true;
    entries_[item].trial.reset();
    if (how_.is_lost && how_.is_lost()) channel_.give_up();
    return false;
  }

  void screen(std::size_t item) {
    Entry& entry = entries_[item];
    const bool is_good = attempt_on_device(item, [&] {
      entry.trial->check();
      for (int i = 0; i < kTrialWarmUps; ++i) entry.trial->time();
      for (int i = 0; i < how_.repeats; ++i) entry.times.push_back(entry.trial->time());
      entry.trial->rest();
      channel_.done(item, text_of(entry.times));
      entry.microseconds = median(entry.times);
    });
    if (!is_good) return;
    std::vector<std::size_t>& list = finalists_[entry.candidate.task];
    list.push_back(item);
    std::sort(list.begin(), list.end(), [&](std::size_t a, std::size_t b) {
      return entries_[a].microseconds < entries_[b].microseconds;
    });
    // One stays, also where a time is nonsense, below 0, which the parent will refuse.
    while (list.size() > 1 && (static_cast<int>(list.size()) > how_.finalists ||
                               entries_[list.back()].microseconds >
                                   how_.finalist_of * entries_[list.front()].microseconds)) {
      entries_[list.back()].trial.reset();
      list.pop_back();
    }
  }

  // What disturbs the one disturbs the other.
  void time_by_turns(const std::vector<std::size_t>& list) {
    if (list.size() < 2) return;
    for (int repeat = -1; repeat < how_.final_repeats; ++repeat)
      for (const std::size_t item : list)
        if (entries_[item].trial)
          attempt_on_device(item, [&] {
            const double time = entries_[item].trial->time();
            if (repeat >= 0) entries_[item].times.push_back(time);
            channel_.pause(item);
          });
    for (const std::size_t item : list) {
      if (entries_[item].trial) channel_.done(item, text_of(entries_[item].times));
      entries_[item].trial.reset();
    }
  }

  const Measuring& how_;
  const std::vector<std::string>& items_;
  Channel& channel_;
  std::vector<Entry> entries_;
  std::map<int, std::vector<std::size_t>> finalists_;  // of tasks, the fastest first
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<std::size_t> next_ = 0;                  // to compile
  std::deque<std::pair<std::size_t, bool>> compiled_;  // and whether they are good
};

}  // namespace

std::string item_of(const Candidate& candidate) {
  return std::to_string(candidate.task) + ' ' + candidate.schedule.text();
}

void measure_items(const Measuring& how, const std::vector<std::string>& items, Channel& channel) {
  Batch(how, items, channel).run();
}

std::vector<Measured> ChildMeasurer::measure_telling(std::span<const Candidate> candidates,
                                                     const Hear& hear) {
  if (const std::size_t tasks = how_.tasks ? how_.tasks() : 0; tasks != tasks_) {
    worker_.end();
    tasks_ = tasks;
  }
  std::vector<std::string> items;
  for (const Candidate& candidate : candidates) items.push_back(item_of(candidate));
  std::vector<Measured> result;
  Worker::Hear pass_on;
  if (hear)
    pass_on = [&](std::size_t item, const Answer& answer) { hear(item, measured_of(answer)); };
  for (const Answer& answer : worker_.run(items, pass_on)) result.push_back(measured_of(answer));
  return result;
}

}  // namespace tensor
