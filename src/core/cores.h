// How many cores this process may use, whatever the machine has.
#pragma once

#include <filesystem>
#include <string_view>

namespace tensor {

/// The calling thread's affinity mask, and no more than the quota of its control groups. At
/// least 1.
int available_cores();

/// The same of the thread that the process began with.
int process_cores();
/// Lets this thread run on all of that one's cores, if they are more.
void use_process_cores();

/// So many cores, but no more than that quota.
int within_quota(int cores);

/// The smallest quota of the control groups that a text as in /proc/self/cgroup names, in cores and
/// rounded up; 0 where there is none. `root` is where they are mounted, of version 1 or 2.
int quota_of(std::string_view groups, const std::filesystem::path& root);

}  // namespace tensor
