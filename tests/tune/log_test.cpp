// The log: what is written is read again, whatever happens to the writer, the disk or the file.
#include "src/tune/log.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <random>

#include "tests/fuzz/targets.h"
#include "tests/io/io_testing.h"

namespace tensor {
namespace {

using check::error_of;

Measurement sample(int i) {
  Measurement m;
  m.problem = "matmul [197,768]f16 x [768,2304]f16 const";
  m.family = "gemm_sm90";
  m.schedule = "swapped tokens=104 stages=" + std::to_string(i);
  m.device = "NVIDIA H200";
  m.driver = "580.65.06";
  m.version = "0.1.0";
  m.time = "2026-11-21T23:04:05Z";
  m.features = {0.1f, 197, 1e-7f, -3.5f};
  m.microseconds = {4.28, 0.1 + 0.2, 1e9 / 3};
  return m;
}

Measurement failure(const std::string& error) {
  Measurement m = sample(3);
  m.microseconds = {};
  m.error = error;
  return m;
}

class LogTest : public testing::FolderTest {
 protected:
  std::string log() const { return path("tune.jsonl"); }
};

Measurement choice(int i) {
  Measurement m = sample(i);
  m.features = {}, m.microseconds = {};
  m.model_microseconds = {452.1, 451.9};
  return m;
}

TEST_F(LogTest, ChoicesAreLinesOfTheirOwn) {
  {
    Log file(log());
    file.append(std::vector{sample(1), choice(1), choice(2)});
  }
  const std::vector<Measurement> written = {sample(1), choice(1), choice(2)};
  EXPECT_EQ(read_log(log()).measurements, written);
  merge_logs(std::vector{log(), log()}, path("merged.jsonl"));
  EXPECT_EQ(read_log(path("merged.jsonl")).measurements, written);
  Measurement both = choice(1);
  both.microseconds = {4};
  EXPECT_NE(error_of([&] { log_line(both); }).find("need them alone"), std::string::npos);
  Measurement none = choice(1);
  none.model_microseconds = {0};
  EXPECT_NE(error_of([&] { log_line(none); }).find("need times above 0"), std::string::npos);
}

TEST_F(LogTest, KernelsAreThereWhereTheyAreKnown) {
  Measurement m = sample(1);
  EXPECT_EQ(log_line(m).find("kernels"), std::string::npos) << "as in older logs";
  m.kernels = "0badcafe";
  EXPECT_EQ(parse_log(log_line(m) + log_line(sample(1)), "log").measurements,
            (std::vector{m, sample(1)}));
}

TEST_F(LogTest, ReadsWhatWasWritten) {
  const std::vector<Measurement> written = {
      sample(1), failure("launch: \"illegal address\"\n\tat \\ line 3 \x01 \xc3\xa9"), sample(2)};
  {
    Log file(log());
    file.append(std::span(written).first(2));
    file.append(written[2]);
  }
  const LogContents read = read_log(log());
  EXPECT_EQ(read.measurements, written);  // every number to the last bit
  EXPECT_EQ(read.damaged, 0);
  EXPECT_EQ(read.duplicates, 0);
  const std::string text = testing::read_bytes(log());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  for (const Measurement& m : written) {
    std::string line = log_line(m);
    line.pop_back();
    EXPECT_EQ(Json::parse(line, "line")["log"].integer(), 1);  // other programs can read it
  }
}

TEST_F(LogTest, KeepsTheBeginningOfLongErrors) {
  const Measurement m = failure(std::string(100000, 'x') + "\xff");
  const LogContents read = parse_log(log_line(m), "log");
  ASSERT_EQ(read.measurements.size(), 1u);
  EXPECT_EQ(read.measurements[0].error, std::string(2000, 'x'));
  // What is no UTF-8 becomes a sign that says so.
  EXPECT_EQ(parse_log(log_line(failure("a\xff")), "log").measurements.at(0).error, "a\xef\xbf\xbd");
}

TEST_F(LogTest, RefusesWhatItCouldNotRead) {
  Measurement m = sample(1);
  m.microseconds = {};
  EXPECT_EQ(
      error_of([&] { log_line(m); }),
      "log: got a measurement of swapped tokens=104 stages=1 with neither times nor an error, "
      "need one");
  for (const double us : {0., -1., std::numeric_limits<double>::quiet_NaN()}) {
    m.microseconds = {us};
    EXPECT_NE(error_of([&] { log_line(m); }).find("need times above 0"), std::string::npos);
  }
  m.microseconds = {std::numeric_limits<double>::infinity()};
  EXPECT_EQ(error_of([&] { log_line(m); }), "log: got inf among the times, need numbers");
  m = sample(1);
  m.features[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(error_of([&] { log_line(m); }), "log: got nan among the features, need numbers");
  Log file(log());
  EXPECT_THROW(file.append(std::vector{sample(1), m}), UserError);
  EXPECT_TRUE(read_log(log()).measurements.empty());  // nothing of a batch that is refused
}

TEST_F(LogTest, SkipsDamagedLines) {
  const std::string good = log_line(sample(1)), other = log_line(sample(2));
  // Every single byte of a line changed: never another measurement, and the lines around it stay.
  for (std::size_t i = 0; i + 1 < good.size(); ++i) {
    for (const int flip : {1, 0x20, 0x80}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      const LogContents read = parse_log(other + bad + log_line(sample(3)), "log");
      ASSERT_EQ(read.measurements, (std::vector{sample(2), sample(3)})) << i;
      ASSERT_GE(read.damaged, 1);
    }
    // Torn after any byte but the last two, and the next line begins fresh, or in the middle of it.
    if (i + 2 == good.size()) break;
    const std::string torn = good.substr(0, i + 1);
    ASSERT_EQ(parse_log(other + torn, "log").measurements, std::vector{sample(2)});
    const LogContents fresh = parse_log(torn + '\n' + other, "log");
    ASSERT_EQ(fresh.measurements, std::vector{sample(2)});
    ASSERT_EQ(fresh.damaged, 1);
    ASSERT_EQ(parse_log(torn + other, "log").damaged, 1);
  }
  EXPECT_EQ(parse_log("\n\n" + other + "\n", "log").damaged, 0);
  EXPECT_EQ(parse_log("{}\nnull\n\xff\xfe\n", "log").damaged, 3);
}

TEST_F(LogTest, RefusesOtherFormats) {
  // A line of a later version, its checksum right.
  std::string line = log_line(sample(1));
  line = line.substr(0, line.rfind(",\"crc\""));
  line.replace(line.find("\"log\":1"), 7, "\"log\":2");
  char crc[32];
  std::snprintf(crc, sizeof crc, ",\"crc\":\"%08lx\"}\n",
                static_cast<unsigned long>(crc32(0, reinterpret_cast<const Bytef*>(line.data()),
                                                 static_cast<unsigned>(line.size()))));
  const std::string text = log_line(sample(1)) + line + crc;
  EXPECT_EQ(
      error_of([&] { parse_log(text, "new.jsonl"); }),
      "new.jsonl: holds lines of format 2, this version of tensor (0.1.0) reads format 1: use "
      "the version that wrote it, or another log");
}

TEST_F(LogTest, BeginsAFreshLineAfterATornOne) {
  const std::string good = log_line(sample(1));
  testing::write_bytes(log(), good + good.substr(0, 40));
  Log(log()).append(sample(2));
  const LogContents read = read_log(log());
  EXPECT_EQ(read.measurements, (std::vector{sample(1), sample(2)}));
  EXPECT_EQ(read.damaged, 1);
}

TEST_F(LogTest, MergesWithoutDuplicates) {
  const std::string one = path("one"), two = path("two");
  Log(one).append(std::vector{sample(1), sample(2), sample(1)});
  Log(two).append(std::vector{sample(2), sample(3)});
  {
    std::ofstream file(two, std::ios::app);
    file << "{\"log\":1,\"prob";
  }
  const LogContents all = read_logs(std::vector{one, two});
  EXPECT_EQ(all.measurements, (std::vector{sample(1), sample(2), sample(3)}));
  EXPECT_EQ(all.duplicates, 2);
  EXPECT_EQ(all.damaged, 1);
  const LogContents merged = merge_logs(std::vector{one, two}, one);
  EXPECT_EQ(merged.measurements, all.measurements);
  EXPECT_EQ(merged.duplicates, 2);
  EXPECT_EQ(testing::read_bytes(one),
            log_line(sample(1)) + log_line(sample(2)) + log_line(sample(3)));
  merge_logs(std::vector{two}, path("new"));
  EXPECT_EQ(read_log(path("new")).measurements, (std::vector{sample(2), sample(3)}));
  EXPECT_EQ(files(), 3u);
}

TEST_F(LogTest, SaysWhatIsWrongWithAFile) {
  EXPECT_EQ(error_of([&] { read_log(path("absent")); }),
            path("absent") + ": cannot be read: No such file or directory");
  EXPECT_EQ(error_of([&] { Log{path("absent/log")}; }),
            path("absent/log") + ": cannot be written: No such file or directory");
  EXPECT_EQ(error_of([&] { Log{folder_.path()}; }),
            folder_.path() + ": cannot be written: Is a directory");
}

TEST_F(LogTest, TouchesNothingButLogs) {
  const std::string end = ": is no tuning log: name a log, or a file that does not exist yet";
  for (const char* device : {"/dev/zero", "/dev/full"}) {
    EXPECT_EQ(error_of([&] { Log{device}; }), device + end);
    EXPECT_EQ(error_of([&] { read_log(device); }), device + end);
  }
  const std::string good = log_line(sample(1));
  Log(path("good")).append(sample(1));
  for (const std::string other : {"\x89PNG\r\n\x1a\n", "{}\n", "{\n  \"log\": 1\n}\n", "x"}) {
    testing::write_bytes(log(), other);
    EXPECT_EQ(error_of([&] { Log{log()}; }), log() + end);
    EXPECT_EQ(error_of([&] { read_log(log()); }), log() + end);
    EXPECT_EQ(error_of([&] { merge_logs(std::vector{path("good")}, log()); }), log() + end);
    EXPECT_EQ(testing::read_bytes(log()), other);
  }
  // A crash may leave any part of the first line.
  for (std::size_t size = 0; size < good.size(); ++size) {
    testing::write_bytes(log(), good.substr(0, size));
    EXPECT_EQ(error_of([&] { Log(log()).append(sample(2)); }), "no error") << size;
    EXPECT_EQ(read_log(log()).measurements.back(), sample(2)) << size;
  }
}

// Runs `body` in a process of its own; true if it returned true.
template <class Body>
bool in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    bool is_good = false;
    try {
      is_good = body();
    } catch (...) {
    }
    ::_exit(is_good ? 0 : 1);
  }
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

TEST_F(LogTest, SaysThatAFileIsReadOnly) {
  Log(log()).append(sample(1));
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
  std::filesystem::permissions(log(), std::filesystem::perms(0444));
  EXPECT_TRUE(in_child([&] {
    // The superuser may write everything: somebody else then.
    if (::geteuid() == 0 && ::seteuid(65534) != 0) return false;
    return error_of([&] { Log{log()}; }) == log() + ": cannot be written: Permission denied" &&
           read_log(log()).measurements.size() == 1;
  }));
}

TEST_F(LogTest, AFullDiskTearsNoLine) {
  // A limit on the size of files ends a write in its middle, as a full disk does.
  const std::string line = log_line(sample(1));
  EXPECT_TRUE(in_child([&] {
    const rlimit limit{line.size() * 5 / 2, line.size() * 5 / 2};
    if (::signal(SIGXFSZ, SIG_IGN) == SIG_ERR || ::setrlimit(RLIMIT_FSIZE, &limit) != 0)
      return false;
    Log file(log());
    file.append(sample(1));
    const std::string error = error_of([&] {
      file.append(std::vector{sample(2), sample(3), sample(4)});
    });
    return error == log() +
                        ": cannot be written: File too large; 1 of 3 measurements were appended, "
                        "and all before them are kept";
  }));
  EXPECT_EQ(testing::read_bytes(log()), line + log_line(sample(2)));
}

TEST_F(LogTest, LosesOnlyTheLineBeingWrittenWhenKilled) {
  std::mt19937 random(5);
  int done = 0;
  for (int round = 0; round < 50; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        Log file(log());
        for (int i = done;; ++i) {
          Measurement m = sample(i);
          if (i % 8 == 0) m.features.assign(3000, 0.125f);  // several pages
          file.append(m);
          if (::write(ends[1], "x", 1) != 1) ::_exit(1);
        }
      } catch (...) {
        ::_exit(1);
      }
    }
    ::close(ends[1]);
    // After a line at least, so that it is killed at work.
    char done_lines[4096];
    ASSERT_EQ(::read(ends[0], done_lines, 1), 1);
    ++done;
    ::usleep(random() % 3000);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    for (ssize_t count; (count = ::read(ends[0], done_lines, sizeof done_lines)) > 0;)
      done += static_cast<int>(count);
    ::close(ends[0]);
    const LogContents read = read_log(log());
    const int lines = static_cast<int>(read.measurements.size());
    ASSERT_GE(lines, done) << "round " << round;
    ASSERT_LE(lines, done + 1);  // killed between the line and its word of it
    ASSERT_LE(read.damaged, round + 1);
    for (int i = 0; i < lines; ++i)
      ASSERT_EQ(read.measurements[static_cast<std::size_t>(i)].schedule, sample(i).schedule);
    done = lines;
  }
  EXPECT_GE(done, 50);
}

TEST_F(LogTest, ManyProcessesAppendAtATime) {
  constexpr int kProcesses = 6, kLines = 60;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        Log file(log());
        for (int i = 0; i < kLines; ++i) {
          Measurement m = sample(p * kLines + i);
          m.features.assign(2000, 0.1f);  // longer than a page
          file.append(m);
          // One of them keeps putting another file in its place.
          if (p == 0 && i % 10 == 9) merge_logs(std::vector{log()}, log());
        }
        ::_exit(0);
      } catch (...) {
        ::_exit(1);
      }
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const LogContents read = read_log(log());
  EXPECT_EQ(read.damaged, 0);
  std::vector<std::string> found, wanted;
  for (const Measurement& m : read.measurements) found.push_back(m.schedule);
  for (int i = 0; i < kProcesses * kLines; ++i) wanted.push_back(sample(i).schedule);
  std::sort(found.begin(), found.end());
  std::sort(wanted.begin(), wanted.end());
  EXPECT_EQ(found, wanted);
}

TEST_F(LogTest, HostileBytes) {
  std::mt19937_64 random(9);
  const std::string seed = log_line(sample(1)) + log_line(failure("no")) + log_line(sample(2));
  for (int i = 0; i < 8000; ++i) {
    std::string text = seed;
    for (std::size_t k = 0, changes = 1 + random() % 4; k < changes; ++k) {
      const std::size_t at = random() % text.size(), length = 1 + random() % 16;
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), length));
          break;
        default:
          text.replace(at, 1, std::to_string(static_cast<std::int64_t>(random())));
      }
      if (text.empty()) text = "\n";
    }
    const auto bytes = testing::bytes_of(text);
    ASSERT_NO_THROW(fuzzing::log(bytes)) << text;
  }
}

}  // namespace
}  // namespace tensor
