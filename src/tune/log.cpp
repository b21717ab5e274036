#include "src/tune/log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "src/core/cache_folder.h"
#include "src/core/checksum.h"
#include "src/io/atomic_file.h"
#include "tensor/error.h"
#include "tensor/json.h"
#include "tensor/version.h"

namespace tensor {
namespace {

// A line: an object that begins with the format and ends with the CRC-32, in eight hexadecimal
// digits, of all before it.
constexpr std::int64_t kFormat = 1;
constexpr std::string_view kLineBegin = "{\"log\":", kChecksum = ",\"crc\":\"", kLineEnd = "\"}";
constexpr std::size_t kDigits = 8, kTail = kChecksum.size() + kDigits + kLineEnd.size();
constexpr std::size_t kMaxError = 2000;

// The fields that are texts.
constexpr std::pair<const char*, std::string Measurement::*> kTexts[] = {
    {"problem", &Measurement::problem},   {"family", &Measurement::family},
    {"schedule", &Measurement::schedule}, {"device", &Measurement::device},
    {"driver", &Measurement::driver},     {"version", &Measurement::version},
    {"time", &Measurement::time}};

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The shortest digits that are read back as the same number.
template <class Number>
std::string list(std::string_view what, const std::vector<Number>& numbers) {
  std::string text = "[";
  for (const Number number : numbers) {
    if (!std::isfinite(number)) fail("log", "got ", number, " among the ", what, ", need numbers");
    char digits[32];
    const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
    if (text.size() > 1) text += ',';
    text.append(digits, end);
  }
  return text + ']';
}

bool is_time(double us) { return us > 0 && std::isfinite(us); }

// Either times of the schedule, or an error, or times of the whole model.
bool is_whole(const Measurement& m) {
  if (m.model_microseconds.empty()) return !m.microseconds.empty() || !m.error.empty();
  return m.microseconds.empty() && m.error.empty() && m.features.empty();
}

// nullopt: damaged.
std::optional<Measurement> parse_line(std::string_view line, std::string_view name) {
  if (line.size() < kLineBegin.size() + kTail || !line.starts_with(kLineBegin)) return std::nullopt;
  const std::string_view body = line.substr(0, line.size() - kTail),
                         tail = line.substr(body.size());
  if (tail != std::string(kChecksum) + crc32_digits(body) + std::string(kLineEnd))
    return std::nullopt;
  Measurement m;
  std::int64_t format = 0;
  try {
    const Json json = Json::parse(line, std::string(name));
    format = json["log"].integer();
    if (format == kFormat) {
      for (const auto& [key, field] : kTexts) m.*field = json[key].text();
      for (const double x : json["features"].numbers()) m.features.push_back(static_cast<float>(x));
      m.microseconds = json["us"].numbers();
      if (json.has("model_us")) m.model_microseconds = json["model_us"].numbers();
      m.error = json.text("error", ""), m.kernels = json.text("kernels", "");
    }
  } catch (const UserError&) {
    return std::nullopt;
  }
  if (format != kFormat)
    fail(name, "holds lines of format ", format, ", this version of tensor (", version(),
         ") reads format ", kFormat, ": use the version that wrote it, or another log");
  for (const float x : m.features)
    if (!std::isfinite(x)) return std::nullopt;
  for (const auto* times : {&m.microseconds, &m.model_microseconds})
    if (!std::all_of(times->begin(), times->end(), is_time)) return std::nullopt;
  if (!is_whole(m)) return std::nullopt;
  return m;
}

// Nothing yet, or lines of which one at least begins as those of a log do: it may be torn.
bool is_log(std::string_view text) {
  if (kLineBegin.starts_with(text) || text.starts_with(kLineBegin)) return true;
  return text.find('\n' + std::string(kLineBegin)) != text.npos;
}

// An open file that is locked until this object ends, or the process does.
class LockedFile {
 public:
  enum class For { reading, appending };
  LockedFile(const std::string& path, For use) : path_(path) {
    const int flags = use == For::reading ? O_RDONLY : O_RDWR | O_APPEND | O_CREAT;
    const char* what = use == For::reading ? "cannot be read: " : "cannot be written: ";
    // Merging puts another file in this one's place: a lock on the old one keeps nobody out.
    do {
      close();
      refuse_devices();
      descriptor_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
      if (descriptor_ < 0) fail(path, what, std::strerror(errno));
      while (::flock(descriptor_, use == For::reading ? LOCK_SH : LOCK_EX) != 0) {
        if (errno == EINTR) continue;
        if (use == For::reading) return;  // then a line that is being written may look torn
        fail(path, "cannot be locked: ", std::strerror(errno), "; need a log on a local disk");
      }
    } while (!is_in_place());
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  ~LockedFile() { close(); }

  int descriptor() const { return descriptor_; }

  // Of the whole file, which is a log.
  std::string text() const {
    std::string all;
    char part[1 << 16];
    for (;;) {
      const ssize_t count = ::read(descriptor_, part, sizeof part);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail(path_, "cannot be read: ", std::strerror(errno));
      if (count == 0) break;
      all.append(part, static_cast<std::size_t>(count));
    }
    if (!is_log(all)) refuse();
    return all;
  }

  // All of the line or nothing. Returns errno, 0 if it is written.
  int append(std::string line) {
    const off_t size = ::lseek(descriptor_, 0, SEEK_END);
    char last = '\n';
    if (size > 0 && ::pread(descriptor_, &last, 1, size - 1) != 1) return errno;
    if (last != '\n') line.insert(line.begin(), '\n');  // after a torn line
    for (std::string_view rest = line; !rest.empty();) {
      const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
      if (written > 0) rest.remove_prefix(static_cast<std::size_t>(written));
      if (written >= 0 || errno == EINTR) continue;
      const int error = errno;
      if (rest.size() < line.size() && ::ftruncate(descriptor_, size) != 0) return error;
      return error;
    }
    return 0;
  }

 private:
  // Opening a pipe waits for its other end, and /dev/zero has none.
  void refuse_devices() const {
    struct stat status {};
    if (::stat(path_.c_str(), &status) != 0) return;
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) refuse();
  }
  [[noreturn]] void refuse() const {
    fail(path_, "is no tuning log: name a log, or a file that does not exist yet");
  }
  bool is_in_place() const {
    struct stat here {
    }, there{};
    return ::fstat(descriptor_, &here) == 0 && ::stat(path_.c_str(), &there) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
  }
  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

  std::string path_;
  int descriptor_ = -1;
};

// Adds what `more` holds, one time each.
void add(LogContents& to, std::unordered_set<std::string>& lines, LogContents more) {
  to.damaged += more.damaged;
  to.duplicates += more.duplicates;
  for (Measurement& m : more.measurements)
    if (lines.insert(log_line(m)).second)
      to.measurements.push_back(std::move(m));
    else
      ++to.duplicates;
}

}  // namespace

std::string log_line(const Measurement& m) {
  if (!is_whole(m))
    fail("log", "got a measurement of ", m.schedule, " with ",
         m.model_microseconds.empty() ? "neither times nor an error, need one"
                                      : "times of the whole model and more, need them alone");
  for (const auto* times : {&m.microseconds, &m.model_microseconds})
    for (const double us : *times)
      if (!(us > 0)) fail("log", "got a time of ", us, " microseconds, need times above 0");
  std::string line = std::string(kLineBegin) + std::to_string(kFormat);
  for (const auto& [key, field] : kTexts)
    line += ",\"" + std::string(key) + "\":" + json_string(m.*field);
  if (!m.kernels.empty()) line += ",\"kernels\":" + json_string(m.kernels);
  line += ",\"features\":" + list("features", m.features);
  line += ",\"us\":" + list("times", m.microseconds);
  if (!m.model_microseconds.empty()) line += ",\"model_us\":" + list("times", m.model_microseconds);
  if (!m.error.empty())
    line += ",\"error\":" + json_string(std::string_view(m.error).substr(0, kMaxError));
  return line + std::string(kChecksum) + crc32_digits(line) + std::string(kLineEnd) + '\n';
}

LogContents parse_log(std::string_view text, std::string_view name) {
  LogContents contents;
  std::unordered_set<std::string_view> lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.empty()) continue;
    auto measurement = parse_line(line, name);
    if (!measurement)
      ++contents.damaged;
    else if (!lines.insert(line).second)
      ++contents.duplicates;
    else
      contents.measurements.push_back(*std::move(measurement));
  }
  return contents;
}

LogContents read_log(const std::string& path) {
  return parse_log(LockedFile(path, LockedFile::For::reading).text(), path);
}

std::string standard_log() { return cache_folder() + "/tuned.jsonl"; }

LogContents read_logs(std::span<const std::string> paths) {
  LogContents all;
  std::unordered_set<std::string> lines;
  for (const std::string& path : paths) add(all, lines, read_log(path));
  return all;
}

LogContents merge_logs(std::span<const std::string> paths, const std::string& path) {
  const LockedFile target(path, LockedFile::For::appending);
  const std::string before = target.text();
  LogContents all;
  std::unordered_set<std::string> lines;
  for (const std::string& source : paths) {
    std::error_code unknown;
    const bool is_target = std::filesystem::equivalent(source, path, unknown);
    add(all, lines, is_target ? parse_log(before, path) : read_log(source));
  }
  AtomicFile merged(path);
  for (const Measurement& m : all.measurements) merged.write(log_line(m));
  merged.commit();
  return all;
}

Log::Log(std::string path) : path_(std::move(path)), synced_(std::chrono::steady_clock::now()) {
  LockedFile(path_, LockedFile::For::appending).text();
}

Log::~Log() {
  try {
    sync();
  } catch (const Error&) {  // nobody is left to be told
  }
}

void Log::append(std::span<const Measurement> measurements) {
  std::vector<std::string> lines;  // checked before anything is written
  for (const Measurement& m : measurements) lines.push_back(log_line(m));
  {
    LockedFile file(path_, LockedFile::For::appending);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (const int error = file.append(lines[i]))
        fail(path_, "cannot be written: ", std::strerror(error), "; ", i, " of ", lines.size(),
             " measurements were appended, and all before them are kept");
      is_synced_ = false;
    }
  }
  if (std::chrono::steady_clock::now() - synced_ > std::chrono::seconds(1)) sync();
}

void Log::sync() {
  if (is_synced_) return;
  const int descriptor = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) fail(path_, "cannot be written: ", std::strerror(errno));
  const int failed = ::fdatasync(descriptor), error = errno;
  ::close(descriptor);
  // Devices and pipes cannot be synced, which is no fault of theirs.
  if (failed && error != EINVAL && error != EROFS)
    fail(path_, "cannot be written to the disk: ", std::strerror(error));
  is_synced_ = true;
  synced_ = std::chrono::steady_clock::now();
}

}  // namespace tensor
