// The progress bar.
#include "models/common/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string_view>

namespace models {

namespace {

/// The width of the terminal that stderr is, 80 if it does not say.
int terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value;
}

bool terminal_draws() {
  const char* kind = std::getenv("TERM");
  return isatty(STDERR_FILENO) && !(kind && std::string_view(kind) == "dumb");
}

std::string duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole < 60) return std::to_string(whole) + " s";
  return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
}

}  // namespace

std::string progress_line(const std::string& what, std::int64_t done, std::int64_t total,
                          double seconds, int columns, bool color) {
  const double share = static_cast<double>(done) / static_cast<double>(total);
  constexpr std::int64_t kCountable = 9999;
  const std::string count = total > kCountable
                                ? " " + std::to_string(static_cast<int>(share * 100)) + " %"
                                : " " + std::to_string(done) + "/" + std::to_string(total);
  std::string left;
  if (done > 0 && done < total) left = "  " + duration(seconds * (1 - share) / share) + " left";
  // One column stays free: some terminals wrap when the last one is written.
  const int room = columns - 1 - static_cast<int>(what.size() + count.size() + left.size()) - 3;
  if (room < 8) return (what + count).substr(0, static_cast<std::size_t>(std::max(columns - 1, 0)));
  const int cells = std::min(room, 40);
  const auto full = static_cast<std::size_t>(share * cells);
  const std::string bar = std::string(full, '#');
  const std::string rest = std::string(static_cast<std::size_t>(cells) - full, '.');
  return what + " [" + (color ? "\x1b[32m" + bar + "\x1b[0m" : bar) + rest + "]" + count + left;
}

Progress::Progress(std::string what, std::int64_t total, bool quiet)
    : what_(std::move(what)),
      total_(std::max<std::int64_t>(total, 1)),
      shown_(!quiet && terminal_draws()),
      color_(!is_set("NO_COLOR")),
      start_(Clock::now()),
      last_(start_) {}

Progress::~Progress() { clear(); }

void Progress::set(std::int64_t done) {
  using namespace std::chrono_literals;
  done_ = std::min(done, total_);
  const Clock::time_point now = Clock::now();
  if (!shown_ || now - start_ < 1s || (drawn_ && now - last_ < 100ms)) return;
  last_ = now;
  drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  std::cerr << "\r\x1b[K"
            << progress_line(what_, done_, total_, seconds, terminal_columns(), color_)
            << std::flush;
}

void Progress::note(const std::string& line) {
  clear();
  if (shown_) std::cerr << line << "\n" << std::flush;
}

void Progress::clear() {
  if (drawn_) std::cerr << "\r\x1b[K" << std::flush;
  drawn_ = false;
}

}  // namespace models
