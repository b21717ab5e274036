// The kernel cache: what is damaged, foreign or in the way costs time, never a wrong kernel.
#include "src/kernels/cuda/driver/kernel_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "tensor/error.h"
#include "tests/temporary_folder.h"

namespace tensor::cuda {
namespace {

namespace fs = std::filesystem;

class KernelCacheFolder : public ::testing::Test {
 protected:
  fs::path entry() const {
    for (const auto& item : fs::directory_iterator(folder_))
      if (item.path().extension() == ".kernel") return item.path();
    return {};
  }

  const check::TemporaryFolder temporary_;
  const std::string& folder_ = temporary_.path();
};

/// What a key's code is in these tests: bytes that follow from the key, of a length that does too.
Cubin expected(const std::string& key) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(key)));
  Cubin cubin;
  cubin.code.resize(1000 + random() % 60000);
  for (std::byte& b : cubin.code) b = static_cast<std::byte>(random());
  cubin.log = "log of " + key;
  return cubin;
}

bool operator==(const Cubin& a, const Cubin& b) { return a.code == b.code && a.log == b.log; }

/// The entry, and whether it had to be made.
std::pair<Cubin, bool> get(KernelCache& cache, const std::string& key) {
  bool made = false;
  Cubin cubin = cache.get(key, [&] {
    made = true;
    return expected(key);
  });
  return {std::move(cubin), made};
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST_F(KernelCacheFolder, KeepsWhatWasMade) {
  {
    KernelCache cache(folder_);
    EXPECT_TRUE(get(cache, "a").second);
    EXPECT_FALSE(get(cache, "a").second);
    EXPECT_TRUE(get(cache, "b").second);
    EXPECT_EQ(cache.trouble(), "");
  }
  KernelCache later(folder_);
  const auto [cubin, made] = get(later, "a");
  EXPECT_FALSE(made);
  EXPECT_TRUE(cubin == expected("a"));
}

TEST_F(KernelCacheFolder, EveryDamageIsMended) {
  KernelCache cache(folder_);
  get(cache, "key");
  const fs::path path = entry();
  const std::string good = read(path);
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    std::string bad = good;
    if (trial % 3 == 0) {
      bad.resize(random() % good.size());
    } else if (trial % 3 == 1) {
      // The lengths in the header as often as all the rest.
      bad[random() % (trial % 2 == 0 ? 32 : good.size())] ^= static_cast<char>(1 << random() % 8);
    } else {
      bad += static_cast<char>(random());
    }
    write(path, bad);
    const auto [cubin, made] = get(cache, "key");
    EXPECT_TRUE(made) << trial;
    EXPECT_TRUE(cubin == expected("key")) << trial;
    EXPECT_EQ(read(path), good) << trial;
  }
}

TEST_F(KernelCacheFolder, AnEntryOfAnotherKeyIsNotTaken) {
  KernelCache cache(folder_);
  get(cache, "a");
  const fs::path a = entry();
  const std::string text_of_a = read(a);
  fs::remove(a);
  get(cache, "b");
  write(entry(), text_of_a);  // as if both keys had one hash
  const auto [cubin, made] = get(cache, "b");
  EXPECT_TRUE(made);
  EXPECT_TRUE(cubin == expected("b"));
}

TEST_F(KernelCacheFolder, AnEntryThatIsRefusedIsMadeAnewOnce) {
  KernelCache cache(folder_);
  const auto other = [] { return expected("what a driver refuses"); };
  const Cubin refused = cache.get("key", other);
  int made = 0;
  const auto make = [&] { return ++made, expected("key"); };
  EXPECT_TRUE(cache.get("key", make, &refused) == expected("key"));
  // Others that were refused the old one find the new one.
  EXPECT_TRUE(cache.get("key", make, &refused) == expected("key"));
  EXPECT_EQ(made, 1);
  EXPECT_FALSE(get(cache, "key").second);
}

TEST_F(KernelCacheFolder, AFolderThatOthersCanWriteIsNotUsed) {
  ::chmod(folder_.c_str(), 0770);
  KernelCache cache(folder_);
  EXPECT_EQ(cache.trouble(), folder_ + " can be written by others: run chmod 700 on it");
  EXPECT_TRUE(get(cache, "a").second);
  EXPECT_TRUE(get(cache, "a").second);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(KernelCacheFolder, WorksWithoutAFolder) {
  write(folder_ + "/file", "");
  KernelCache file(folder_ + "/file");
  EXPECT_EQ(file.trouble(), folder_ + "/file is not a folder");
  EXPECT_TRUE(get(file, "a").second);
  KernelCache below(folder_ + "/file/cache");
  EXPECT_NE(below.trouble(), "");
  EXPECT_TRUE(get(below, "a").second);
}

TEST_F(KernelCacheFolder, MakesItsFolderForTheOwnerAlone) {
  const std::string folder = folder_ + "/some/where";
  KernelCache cache(folder);
  get(cache, "a");
  struct stat status {};
  ASSERT_EQ(::stat(folder.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(KernelCacheFolder, AFullDiskCostsTheCacheOnly) {
  // In a child process, since a limit on the size of files holds for a whole process.
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    KernelCache cache(folder_);
    const bool good = get(cache, "a").first == expected("a") && !cache.trouble().empty() &&
                      get(cache, "a").first == expected("a");
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(entry(), fs::path());
}

TEST_F(KernelCacheFolder, DropsTheLeastRecentlyUsed) {
  constexpr std::int64_t kMost = 400'000;
  KernelCache cache(folder_, kMost);
  for (int i = 0; i < 60; ++i) {
    get(cache, "key " + std::to_string(i));
    EXPECT_FALSE(get(cache, "key 0").second) << i;  // in use
    std::int64_t bytes = 0;
    for (const auto& item : fs::directory_iterator(folder_))
      bytes += static_cast<std::int64_t>(item.file_size());
    EXPECT_LE(bytes, kMost);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // times of files tell them apart
  }
  EXPECT_TRUE(get(cache, "key 1").second);
}

TEST_F(KernelCacheFolder, SixtyFourProcessesAndRandomKills) {
  constexpr int kProcesses = 64, kKeys = 200, kKills = 200;
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    KernelCache cache(folder_);
    for (int i = 0; i < 2 * kKeys; ++i) {
      const std::string key = "key " + std::to_string(random() % kKeys);
      if (!(get(cache, key).first == expected(key))) ::_exit(1);
    }
    ::_exit(0);
  };
  std::mt19937 random(64);
  std::vector<pid_t> running;
  unsigned seed = 0;
  int killed = 0, wrong = 0;
  const auto start = [&] {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) work(seed);
    running.push_back(child);
    ++seed;
  };
  while (std::ssize(running) < kProcesses) start();
  while (!running.empty()) {
    int status = 0;
    if (killed < kKills) {
      // Any of them, in the middle of whatever it does; another one takes its place.
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
      ::kill(running[random() % running.size()], SIGKILL);
      ++killed;
    }
    const pid_t done = ::waitpid(-1, &status, 0);
    running.erase(std::find(running.begin(), running.end(), done));
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
      start();
    else
      wrong += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  }
  EXPECT_EQ(wrong, 0);
  KernelCache cache(folder_);
  for (int i = 0; i < kKeys; ++i) {
    const std::string key = "key " + std::to_string(i);
    EXPECT_TRUE(get(cache, key).first == expected(key)) << key;
    EXPECT_FALSE(get(cache, key).second) << key;
  }
}

}  // namespace
}  // namespace tensor::cuda
