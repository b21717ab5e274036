// --tune and --tune-log of the programs, on this machine's cores.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <regex>
#include <thread>

#include "models/common/tuning.h"
#include "tests/models/cli_testing.h"

namespace {

using cli::Cli;
using cli::Outcome;
using cli::source;
using cli::Words;

namespace fs = std::filesystem;

class Tune : public Cli {
 protected:
  std::string log() { return path("tuned.jsonl"); }
  std::size_t lines() {
    std::ifstream file(log());
    std::size_t count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }
  Outcome vit(Words more) {
    more.insert(more.begin(), source("examples/images/digits/digit-8.png"));
    return shipped("vit", more);
  }
};

// Long enough on any machine: the first measurements of all groups reach the goal.
Words first_measurements(const std::string& log) {
  return {"--tune", "1h", "--tune-goal", "10s", "--tune-log", log};
}

// Ends with the answer of the plan that was not tuned. Another schedule adds up in another order,
// so the last digit of a printed number may be rounded the other way; all else is the same.
void expect_ends_with_answer(const std::string& out, const std::string& answer) {
  const std::size_t start = out.rfind(answer.substr(0, answer.find('\n') + 1));  // the file's name
  ASSERT_NE(start, std::string::npos) << out << answer;
  const std::string got = out.substr(start);
  const std::regex number(R"(\d+(?:\.(\d+))?)");
  EXPECT_EQ(std::regex_replace(got, number, "#"), std::regex_replace(answer, number, "#")) << out;
  std::sregex_iterator a(got.begin(), got.end(), number), b(answer.begin(), answer.end(), number);
  for (; a != std::sregex_iterator() && b != std::sregex_iterator(); ++a, ++b)
    EXPECT_LE(std::abs(std::stod(a->str()) - std::stod(b->str())),
              1.01 * std::pow(10, -static_cast<double>(b->str(1).size())))
        << got << answer;
}

TEST_F(Tune, MeasuresThenRunsTheTunedModel) {
  const Outcome plain = vit({"--quiet"});
  ASSERT_EQ(plain.code, 0) << plain.err;
  const Outcome tuned = vit(first_measurements(log()));
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_EQ(tuned.err, "");
  for (const char* part : {"tuned for ", "groups  before us   after us", "matmul",
                           "all groups: ", "log: ", "whole model: "})
    EXPECT_NE(tuned.out.find(part), std::string::npos) << part << " in\n" << tuned.out;
  expect_ends_with_answer(tuned.out, plain.out);
  const std::size_t measured = lines();
  EXPECT_GT(measured, 4u);
  // The log alone: the same answers, and nothing is measured.
  const Outcome later = vit({"--quiet", "--tune-log", log()});
  EXPECT_TRUE(tuned.out.ends_with(later.out)) << tuned.out << later.out;
  EXPECT_EQ(lines(), measured);
  // With --json the table goes to the other stream.
  const Outcome json = vit({"--json", "--tune", "200ms", "--tune-log", log()});
  EXPECT_EQ(json.code, 0);
  EXPECT_TRUE(json.out.starts_with("[\n")) << json.out;
  EXPECT_NE(json.err.find("all groups: "), std::string::npos) << json.err;
  EXPECT_GE(lines(), measured);
}

// What is reached at once costs no more than the first measurements, and from a log nothing.
TEST_F(Tune, EndsWhenItsGoalIsReached) {
  const Words to_the_goal = first_measurements(log());
  const Outcome tuned = vit(to_the_goal);
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_NE(tuned.out.find("the goal of 1e+07 us is reached"), std::string::npos) << tuned.out;
  const std::size_t measured = lines();
  EXPECT_GT(measured, 0u);
  EXPECT_EQ(vit(to_the_goal).code, 0);
  EXPECT_EQ(lines(), measured);
}

TEST_F(Tune, TheOtherProgramsDoToo) {
  for (const char* program : {"detr", "setr"}) {
    const std::string image = source("examples/images/scenes/scene-1.png");
    const Outcome plain = shipped(program, {image, "--quiet"});
    Words words = first_measurements(log());
    words.insert(words.begin(), image);
    const Outcome tuned = shipped(program, words);
    EXPECT_EQ(tuned.code, 0) << tuned.err;
    EXPECT_NE(tuned.out.find("whole model: "), std::string::npos) << tuned.out;
    expect_ends_with_answer(tuned.out, plain.out);
  }
  EXPECT_GT(lines(), 0u);
}

TEST_F(Tune, OptionsThatMakeNoSenseAreRefused) {
  const std::string image = source("examples/images/digits/digit-8.png");
  const auto refused = [&](Words more, const std::string& what) {
    const Outcome got = vit(std::move(more));
    EXPECT_EQ(got.code, 1) << what;
    EXPECT_EQ(got.out, "");
    EXPECT_NE(got.err.find(what), std::string::npos) << got.err;
  };
  for (const char* time :
       {"60", "s", "-3s", "0s", "1d", "3 s", "25h", "nan", "1e3s", "infs", "5ss"})
    refused({"--tune", time}, std::string("--tune: got \"") + time + "\", need a time up to 24h");
  refused({"--tune", "3s", "--tune-goal", "fast"}, "--tune-goal: got \"fast\", need a time");
  refused({"--tune-goal", "3ms"}, "--tune-goal: ends --tune early: need --tune");
  refused({"--tune", "3s", "--eager"}, "--tune: is for compiled models");
  refused({"--tune-log", log(), "--eager"}, "--tune-log: is for compiled models");
  refused({"--tune", "3s", "--info"}, "--tune: needs a run");
  refused({"--tune-log", log()}, log());  // is not there
  refused({"--tune", "1s", "--tune-log", "/dev/null/log"},
          "/dev/null/log: the folder cannot be made: Not a directory: name another log");
  fs::copy_file(image, path("victim.png"));
  const std::string before = tensor::testing::read_bytes(image);
  for (const std::string& victim : {path("victim.png"), std::string("/dev/zero")}) {
    refused({"--tune-log", victim}, victim + ": is no tuning log");
    refused({"--tune", "1s", "--tune-log", victim}, victim + ": is no tuning log");
  }
  EXPECT_EQ(tensor::testing::read_bytes(path("victim.png")), before);
  ASSERT_EQ(vit({"--quiet", "--plan", path("plan")}).code, 0);
  refused({"--tune", "1s", "--plan", path("plan")}, "--tune: has nothing to do: the plan ");
}

TEST_F(Tune, SaysThatTheFolderOfItsOwnLogCannotBeMade) {
  const char* const before = std::getenv("TENSOR_CACHE_DIR");
  const std::string old = before ? before : "";
  std::ofstream(path("file")) << "x";
  setenv("TENSOR_CACHE_DIR", path("file/cache").c_str(), 1);
  const Outcome got = vit({"--tune", "1s"});
  before ? setenv("TENSOR_CACHE_DIR", old.c_str(), 1) : unsetenv("TENSOR_CACHE_DIR");
  EXPECT_EQ(got.code, 1);
  EXPECT_EQ(got.out, "");
  EXPECT_EQ(got.err, "vit: " + path("file/cache/tuned.jsonl") +
                         ": the folder cannot be made: Not a directory: name another log "
                         "(--tune-log), or for the default one a folder with TENSOR_CACHE_DIR\n");
}

TEST_F(Tune, ATunedPlanIsKept) {
  const Outcome tuned =
      vit({"--quiet", "--tune", "1s", "--tune-log", log(), "--plan", path("plan.safetensors")});
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  const Outcome later = vit({"--quiet", "--plan", path("plan.safetensors")});
  EXPECT_EQ(later.code, 0) << later.err;
  EXPECT_EQ(later.out, tuned.out);
}

// As a terminal's Ctrl-C: tuning ends, what was measured is kept and used, the image is classified.
TEST_F(Tune, CtrlCEndsTuningAndNothingElse) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGINT, SIG_DFL);  // jobs in the background of a shell ignore it
    const Outcome got = vit({"--tune", "10m", "--tune-log", log()});
    std::ofstream(path("out")) << got.out << got.err;
    _exit(got.code);
  }
  for (int i = 0; i < 600 && (!fs::exists(log()) || lines() == 0); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  kill(child, SIGINT);
  int status = -1;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  std::ifstream file(path("out"));
  const std::string out((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(WEXITSTATUS(status), 0) << out;
  EXPECT_NE(out.find("digit-8.png"), std::string::npos) << out;
  EXPECT_NE(out.find("all groups: "), std::string::npos) << out;
  EXPECT_GT(lines(), 0u);
}

TEST(Duration, HasAUnit) {
  EXPECT_EQ(models::parse_duration("--tune", "300ms"), 0.3);
  EXPECT_EQ(models::parse_duration("--tune", "60s"), 60);
  EXPECT_EQ(models::parse_duration("--tune", "2.5m"), 150);
  EXPECT_EQ(models::parse_duration("--tune", "24h"), 86400);
}

}  // namespace
