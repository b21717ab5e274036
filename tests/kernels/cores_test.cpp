// How many threads compute where nobody says so, and parallel loops in children of this process.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <thread>

#include "src/core/cores.h"
#include "src/core/parallel.h"
#include "tensor/compile.h"
#include "tensor/tensor.h"
#include "tests/temporary_folder.h"

namespace cpu = tensor::cpu;
namespace fs = std::filesystem;
namespace tn = tensor;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

TEST(Cores, AreThoseOfTheAffinityMask) {
  std::thread([] {
    cpu_set_t mask;
    ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
    EXPECT_EQ(tn::available_cores(), 1);
    EXPECT_EQ(tn::threads(), 1);
  }).join();
  EXPECT_GE(tn::available_cores(), tn::threads());
}

TEST(CoresDeathTest, AreNoMoreThanOpenMpsVariablesSay) {
  const std::string style = GTEST_FLAG_GET(death_test_style);
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // begins anew, and reads the variables
  for (const char* name : {"OMP_NUM_THREADS", "OMP_THREAD_LIMIT"}) {
    const char* const before = std::getenv(name);
    const std::string value = before ? before : "";
    for (const char* one : {"1", "1,4"}) {
      ::setenv(name, one, 1);
      EXPECT_EXIT(std::exit(tn::threads() + 2 * cpu::threads_within(7)), testing::ExitedWithCode(3),
                  "")
          << name;
    }
    for (const char* nonsense : {"", "0", "-3", "many"}) {
      ::setenv(name, nonsense, 1);
      const int expected = std::min(tn::available_cores(), tn::threads());
      EXPECT_EXIT(std::exit(tn::threads()), testing::ExitedWithCode(expected), "") << nonsense;
    }
    before ? ::setenv(name, value.c_str(), 1) : ::unsetenv(name);
  }
  GTEST_FLAG_SET(death_test_style, style);
}

TEST(Cores, AreNoMoreThanTheQuotaOfTheControlGroup) {
  const tn::check::TemporaryFolder folder;
  const auto write = [&](const std::string& file, const std::string& text) {
    const fs::path path = folder / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  };
  const auto quota = [&](const std::string& groups) { return tn::quota_of(groups, folder / ""); };
  const std::string second = "0::/pod/box\n";
  EXPECT_EQ(quota(second), 0);
  write("pod/box/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(second), 0);
  write("pod/cpu.max", "350000 100000\n");
  EXPECT_EQ(quota(second), 4);  // 3.5 cores
  write("pod/box/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota(second), 1);
  EXPECT_EQ(quota("0::/elsewhere\n"), 0);
  write("cpu.max", "250000 100000\n");  // of a container that sees itself as the root
  EXPECT_EQ(quota("0::/elsewhere\n"), 3);
  const std::string first = "5:memory:/a\n4:cpu,cpuacct:/a/b\n1:name=systemd:/a\n";
  EXPECT_EQ(quota(first), 0);
  write("cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
  write("cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(first), 0);
  write("cpu,cpuacct/a/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(quota(first), 2);
  for (const char* nonsense : {"", "0", "0:", "::", "4:cpu", "\n\n", "4:cpu,:/../../..\n"})
    EXPECT_GE(quota(nonsense), 0);
}

// The exit status of a child that does this, -1 where it has to be ended.
int in_a_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Tensors network(const Tensors& in) {
  const Tensor weight = tn::Generator(1).normal({64, 64}),
               filters = tn::Generator(2).normal({8, 1, 3, 3});
  const Tensor image = tn::conv2d(in[0].reshape({1, 1, 64, 64}), filters, {}, {.padding = 1});
  return {tn::softmax(tn::matmul(in[0], weight) + tn::sum(image, {0, 1}), -1)};
}

// Threads do not survive fork(): the child has a pool of its own, and oneDNN others.
TEST(Fork, ChildrenOfAProcessThatHasComputedCompute) {
  const Tensor x = tn::Generator(3).normal({64, 64});
  const Tensor expected = network({x})[0];
  const tn::Executable two = tn::compile(network, Tensors{x}, {.threads = 2});
  const auto is_right = [&](const Tensor& got) { return tn::allclose(got, expected, 1e-4, 1e-5); };
  ASSERT_TRUE(is_right(two({x})[0]));
  EXPECT_EQ(in_a_child([&] { return is_right(two({x})[0]) && is_right(two({x})[0]) ? 7 : 1; }), 7);
  EXPECT_EQ(in_a_child([&] {
              const tn::Executable fresh = tn::compile(network, Tensors{x}, {.threads = 2});
              bool is_well = is_right(fresh({x})[0]) && is_right(network({x})[0]);
              for (const tn::GroupCheck& check : tn::verify(two, {x})) is_well &= check.error < 10;
              return is_well ? 7 : 1;
            }),
            7);
  EXPECT_EQ(in_a_child([&] {  // a child's child, and another thread of it
              two({x});
              return in_a_child([&] {
                bool is_well = false;
                std::thread([&] { is_well = is_right(two({x})[0]); }).join();
                return is_well && is_right(two({x})[0]) ? 7 : 1;
              });
            }),
            7);
  EXPECT_EQ(in_a_child([] {
              try {
                cpu::parallel_for(2, 8, [](std::int64_t task, int) {
                  if (task == 5) throw tn::UserError("from a task");
                });
              } catch (const tn::UserError& error) {
                return error.what() == std::string("from a task") ? 7 : 2;
              }
              return 1;
            }),
            7);
  EXPECT_TRUE(is_right(two({x})[0]));
}

}  // namespace
