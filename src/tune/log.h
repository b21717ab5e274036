// The log of measurements: what tuning leaves behind. A file of JSON lines, each with a checksum,
// that any number of processes append to at a time. A line that was torn (kill -9, a full disk) or
// damaged is skipped and counted; nothing else is lost with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensor {

/// One schedule, measured once; or chosen, because the whole model was fastest with it.
struct Measurement {
  std::string problem;               // what is computed: the key, one text in every model
  std::string family;                // of kernels
  std::string schedule;              // Schedule::text()
  std::string device;                // "NVIDIA H200"
  std::string driver;                // "580.65.06"
  std::string version;               // of this library
  std::string time;                  // UTC, "2026-11-21T23:04:05Z": these sort as texts
  std::vector<float> features;       // what a cost model may know of the schedule; may be empty
  std::vector<double> microseconds;  // of every repeat, above 0
  std::string error;                 // empty, or why the schedule cannot be used
  // Of a choice, which has no features, times of its own or error: of the whole model, above 0.
  std::vector<double> model_microseconds = {};
  // Target::kernels; empty on a CPU, and in logs from before it was there.
  std::string kernels = {};

  bool operator==(const Measurement&) const = default;
};

/// The measurement as a line of the log, newline included. Of an error's text the first 2,000
/// bytes are kept. UserError when there are neither times nor an error, when a time is not above 0,
/// when a number is not finite, or when a choice is also a measurement: such a line could not be
/// read again.
std::string log_line(const Measurement& measurement);

struct LogContents {
  std::vector<Measurement> measurements;  // in the order of the file, each line once
  std::int64_t damaged = 0;               // lines that were skipped
  std::int64_t duplicates = 0;            // lines that had been there before
};

/// Reads the text of a log, called `name` in messages. UserError on intact lines of a format that
/// this version does not know: they are not skipped, since they may be worth hours.
LogContents parse_log(std::string_view text, std::string_view name);
/// Reads logs one after the other. UserError when one is absent, unreadable, or no log at all.
LogContents read_logs(std::span<const std::string> paths);
LogContents read_log(const std::string& path);

/// The log that is written, and read, where no other is named: user_log().
std::string standard_log();

/// Writes what the logs hold to `path`, duplicates and damaged lines left out; `path` may be among
/// them, and others may be appending to it. What was read is returned. UserError as above, and when
/// `path` cannot be written, which leaves it as it was.
LogContents merge_logs(std::span<const std::string> paths, const std::string& path);

/// A log that is being written. No file is open and no lock held between calls, so that a process
/// may fork, stop or die at any time.
class Log {
 public:
  /// Makes the file if there is none. UserError when it cannot be written, or is no log.
  explicit Log(std::string path);
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log();  ///< syncs

  const std::string& path() const { return path_; }
  /// Appends a line each, under the file's lock; another process's lines may come between. When
  /// this returns the lines outlive the process, and after some time the machine (sync). UserError
  /// when the disk is full: the lines before the one named are kept, and none is half there.
  void append(std::span<const Measurement> measurements);
  void append(const Measurement& measurement) { append(std::span(&measurement, 1)); }
  /// Waits until everything is on the disk. Done by append at most once a second.
  void sync();

 private:
  std::string path_;
  std::chrono::steady_clock::time_point synced_;
  bool is_synced_ = true;
};

}  // namespace tensor
