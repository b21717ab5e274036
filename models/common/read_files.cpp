#include "models/common/read_files.h"

#include <sys/stat.h>

#include "tensor/error.h"

namespace models {

ReadFiles::ReadFiles(const char* kind, const std::vector<std::string>& files) : kind_(kind) {
  for (const std::string& file : files)
    if (const auto id = identity(file)) ids_.insert(*id);
}

void ReadFiles::refuse_to_overwrite(const std::string& option, const std::string& target,
                                    const std::string& mending) const {
  if (const auto id = identity(target); id && ids_.contains(*id))
    tensor::fail(option, "would overwrite the ", kind_, " ", target, ": name another ", mending);
}

std::optional<ReadFiles::Identity> ReadFiles::identity(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return Identity(status.st_dev, status.st_ino);
}

}  // namespace models
