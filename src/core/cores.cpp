#include "src/core/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>

#include "tensor/text.h"

namespace tensor {
namespace {

namespace fs = std::filesystem;

// The quota of one folder is 0 where there is none. Version 2 has "200000 100000" or "max 100000"
// in one file, version 1 the two numbers in two, the first one -1 for none.
double quota_in(const fs::path& folder) {
  double quota = 0, period = 0;
  Classic<std::ifstream> both(folder / "cpu.max"), first(folder / "cpu.cfs_quota_us"),
      second(folder / "cpu.cfs_period_us");
  if (!(both >> quota >> period) && !(first >> quota && second >> period)) return 0;
  return quota > 0 && period > 0 ? quota / period : 0;
}

// A group is bound by all that it is part of, too. In a container the path may be one of the host,
// of which only the end of the walk is there.
double least_quota(const fs::path& mount, const fs::path& group) {
  double least = 0;
  for (fs::path at = group.relative_path();; at = at.parent_path()) {
    if (const double quota = quota_in(mount / at); quota > 0)
      least = least > 0 ? std::min(least, quota) : quota;
    if (at.empty()) return least;
  }
}

// How many cores a thread may use, by its number; 0: this one. A mask has room for 1024 cores;
// larger machines do not fit.
int affinity(pid_t thread) {
  const int all = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  cpu_set_t mask;
  return sched_getaffinity(thread, sizeof mask, &mask) == 0 ? std::max(1, CPU_COUNT(&mask)) : all;
}

}  // namespace

int quota_of(std::string_view groups, const fs::path& root) {
  double least = 0;
  TextReader lines{std::string(groups)};
  for (std::string line; std::getline(lines, line);) {  // "4:cpu,cpuacct:/group" or "0::/group"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && (',' + controllers + ',').find(",cpu,") == std::string::npos)
      continue;
    for (const fs::path& mount : {root / controllers, root / "cpu", root / "unified"})
      if (const double quota = least_quota(mount, line.substr(second + 1)); quota > 0)
        least = least > 0 ? std::min(least, quota) : quota;
  }
  return static_cast<int>(std::ceil(least));
}

int within_quota(int cores) {
  static const int quota = [] {
    const Classic<std::ifstream> file("/proc/self/cgroup");
    TextWriter groups;
    groups << file.rdbuf();
    return quota_of(groups.str(), "/sys/fs/cgroup");
  }();
  return quota > 0 ? std::min(cores, quota) : cores;
}

int available_cores() { return within_quota(affinity(0)); }

int process_cores() { return within_quota(affinity(getpid())); }

void use_process_cores() {
  cpu_set_t mask;
  if (affinity(getpid()) > affinity(0) && sched_getaffinity(getpid(), sizeof mask, &mask) == 0)
    sched_setaffinity(0, sizeof mask, &mask);
}

}  // namespace tensor
