// The whole of tuning, with real kernels in a child of its own, ended at any moment.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "src/tune/log.h"
#include "tensor/tensor.h"
#include "tensor/tune.h"
#include "tests/seed.h"
#include "tests/temporary_folder.h"

namespace tensor {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds, std::chrono::steady_clock;
using Tensors = std::vector<Tensor>;

class Kill : public ::testing::Test {
 protected:
  // Another model in each round, so that there is always something to measure.
  TuneSummary tune_round(int round) const {
    Tensors weights;
    for (int i = 0; i < 8; ++i)
      weights.push_back(Generator(1).normal({32 + 8 * i, 16 + round}, 0, 0.1));
    const TensorFunction f = [=](const Tensors& in) -> Tensors {
      Tensors results;
      for (const Tensor& w : weights) results.push_back(softmax(relu(linear(in[0], w)), -1));
      return results;
    };
    return tune(f, {{{24, 16 + round}, f32}}, {.threads = 2, .tune_logs = no_logs_},
                {.seconds = 0, .log = path_});
  }
  // Orphans come to this process, which waits for all of a group.
  void SetUp() override { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  void TearDown() override { prctl(PR_SET_CHILD_SUBREAPER, 0); }
  static bool is_gone(pid_t group) {
    while (waitpid(-group, nullptr, WNOHANG) > 0) continue;
    return waitpid(-group, nullptr, WNOHANG) == -1;
  }

  const std::vector<std::string> no_logs_;
  const check::TemporaryFolder folder_;
  const std::string path_ = folder_ / "log.jsonl";
};

// No line is lost but the one that is being written, the log can be read after each, and nobody
// goes on measuring.
TEST_F(Kill, AtAnyMomentCostsOneLine) {
  constexpr int kKills = 25;
  std::mt19937 random(static_cast<unsigned>(check::seed()));
  std::size_t before = 0;
  int grown = 0;
  milliseconds whole{0};  // of a round that nobody ends
  for (int round = 0; round <= kKills; ++round) {
    const auto begin = steady_clock::now();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      setpgid(0, 0);
      try {
        tune_round(round);
      } catch (...) {
        _exit(1);
      }
      _exit(0);
    }
    setpgid(child, child);
    int status = 0;
    if (round == 0) {
      waitpid(child, &status, 0);
      ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
      whole = std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin);
    } else {
      const auto most = static_cast<unsigned>(whole.count() + 1);
      std::this_thread::sleep_for(milliseconds(random() % most));
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      for (int i = 0; i < 5000 && !is_gone(child); ++i)
        std::this_thread::sleep_for(milliseconds(1));
      EXPECT_TRUE(is_gone(child)) << "its child goes on without it";
    }
    if (!fs::exists(path_)) continue;
    const LogContents contents = read_log(path_);
    EXPECT_GE(contents.measurements.size(), before);
    EXPECT_LE(contents.damaged, round);
    grown += contents.measurements.size() > before;
    before = contents.measurements.size();
  }
  EXPECT_GT(grown, 5);
  // What is in the log is not measured again. Something else may be, as the log has more to learn
  // from than the first round had.
  const auto key = [](const Measurement& m) { return m.problem + m.family + m.schedule; };
  std::set<std::string> known;
  for (const Measurement& m : read_log(path_).measurements) known.insert(key(m));
  tune_round(0);
  const std::vector<Measurement> all = read_log(path_).measurements;
  for (std::size_t i = before; i < all.size(); ++i)
    EXPECT_EQ(known.count(key(all[i])), 0) << key(all[i]);
}

}  // namespace
}  // namespace tensor
