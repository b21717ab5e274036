// A progress bar on stderr for a person who waits: only if stderr is a terminal, and only once the
// work has taken a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace models {

/// The bar as text of at most `columns` characters: "layers [#####.....] 12/24  3 s left".
std::string progress_line(const std::string& what, std::int64_t done, std::int64_t total,
                          double seconds, int columns, bool color);

class Progress {
 public:
  /// `quiet` shows nothing. Colour unless NO_COLOR is set (https://no-color.org).
  Progress(std::string what, std::int64_t total, bool quiet);
  ~Progress();  // wipes the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(std::int64_t count = 1) { set(done_ + count); }
  /// So much of the total is done.
  void set(std::int64_t done);
  /// What is done, from now on.
  void rename(std::string what) { what_ = std::move(what); }
  bool is_shown() const { return shown_; }
  /// A line above the bar, for the same person.
  void note(const std::string& line);
  /// Wipes the bar, so that something else can be printed; the next step draws it again.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  std::int64_t total_, done_ = 0;
  bool shown_, color_, drawn_ = false;
  Clock::time_point start_, last_;
};

}  // namespace models
