#include "models/common/tuning.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <iomanip>
#include <iostream>
#include <vector>

#include "models/common/progress.h"
#include "tensor/error.h"
#include "tensor/text.h"

namespace models {
namespace {

volatile std::sig_atomic_t interrupted = 0;

// While it lives, Ctrl-C sets `interrupted`; the second one ends the program as ever.
class Interrupts {
 public:
  Interrupts() {
    interrupted = 0;
    before_ = std::signal(SIGINT, [](int) {
      interrupted = 1;
      std::signal(SIGINT, SIG_DFL);
    });
  }
  ~Interrupts() { std::signal(SIGINT, before_); }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

 private:
  void (*before_)(int) = SIG_DFL;
};

std::string state_of(const tensor::TuneProgress& p) {
  tensor::TextWriter text;
  text << "tuning" << std::fixed << std::setprecision(3);
  // Unknown until every kernel has a time.
  if (p.best_us > 0) text << ' ' << p.best_us / 1e3 << " ms";
  if (p.best_us > 0 && p.before_us > 0) text << " (before " << p.before_us / 1e3 << ")";
  text << ", " << p.trials << " schedules";
  if (p.failures > 0) text << ", " << p.failures << " failed";
  return text.str();
}

// The mean of the two in the middle: as many runs before as after, several rounds of each.
double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
}

// The proof of it all: groups that are fast alone need not be in a row. The two are timed by turns,
// so that what disturbs the one disturbs the other.
void tell_whole(std::ostream& out, const Forward& function, const tensor::nn::StateDict& inputs,
                tensor::CompileOptions options) {
  constexpr int kRounds = 3, kMost = 80;
  constexpr double kRoundUs = 1e5;
  const NamedExecutable tuned = compile_named(function, inputs, options);
  options.tune_logs = std::vector<std::string>();
  const NamedExecutable untuned = compile_named(function, inputs, options);
  const std::vector<tensor::Tensor> arguments = tuned.arguments(inputs);
  const double once = untuned.executable.time(arguments, 1).at(0);
  const int repeats = static_cast<int>(std::clamp(kRoundUs / once, 1.0, double{kMost}));
  std::vector<double> before, after;
  for (int round = 0; round < kRounds; ++round)
    for (auto [model, times] : {std::pair(&untuned, &before), {&tuned, &after}}) {
      const std::vector<double> more = model->executable.time(arguments, repeats);
      times->insert(times->end(), more.begin(), more.end());
    }
  tensor::TextWriter text;
  text << std::fixed << std::setprecision(3) << "whole model: " << median(before) / 1e3
       << " ms before, " << median(after) / 1e3 << " ms after (" << std::setprecision(2)
       << median(before) / median(after) << " x)\n";
  out << text.str();
}

}  // namespace

double parse_duration(const std::string& option, const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [unit, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const std::string rest(error == std::errc() ? unit : text.data(), end);
  const std::pair<const char*, double> units[] = {
      {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
  constexpr double kDay = 24 * 3600;
  for (const auto& [name, seconds] : units)
    if (error == std::errc() && rest == name && number > 0 && number * seconds <= kDay)
      return number * seconds;
  tensor::fail(option, "got \"", text, "\", need a time up to 24h, such as 300ms, 60s or 5m");
}

tensor::CompileOptions tuned(const Forward& function, const tensor::nn::StateDict& inputs,
                             tensor::CompileOptions options, tensor::TuneOptions tuning, bool quiet,
                             std::ostream& out) {
  constexpr double kMilli = 1e3, kBetweenLines = 5;  // seconds
  const double seconds = tuning.seconds;
  const std::string& log = tuning.log;
  Progress bar("tuning", static_cast<std::int64_t>(seconds * kMilli), quiet);
  double told = 0;
  const Interrupts interrupts;
  tuning.stop = [] { return interrupted != 0; };
  tuning.progress = [&](const tensor::TuneProgress& p) {
    bar.rename(state_of(p));
    bar.set(static_cast<std::int64_t>(p.seconds * kMilli));
    if (quiet || bar.is_shown() || p.seconds < told + kBetweenLines) return;
    told = p.seconds;
    std::cerr << state_of(p) << ", " << static_cast<int>(p.seconds) << " of " << seconds << " s\n";
  };
  tensor::CompileOptions known = options;
  // tune() reads the log that it writes.
  if (!log.empty()) known.tune_logs = std::vector<std::string>{tensor::kShippedLogs};
  const tensor::TuneSummary summary = tune_named(function, inputs, known, tuning);
  bar.clear();
  if (quiet) return options;
  out << summary;
  if (!summary.is_stopped) tell_whole(out, function, inputs, options);
  return options;
}

}  // namespace models
