#include "src/io/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "tensor/error.h"

namespace tensor {
namespace {

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A name of a descriptor that this process has open, as /proc/self/fd/1 is.
bool is_descriptor(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return folder == "/proc/self/fd" || folder == "/dev/fd";
}

// Where symbolic links lead: they are written through, not replaced. /dev/stdout leads to
// /proc/self/fd/1 and not on.
std::string followed(std::string path) {
  constexpr int kMostLinks = 40;  // as in Linux
  std::error_code none;
  for (int i = 0; i < kMostLinks && !is_descriptor(path); ++i) {
    const std::filesystem::path target = std::filesystem::read_symlink(path, none);
    if (none) break;  // no link
    path = (std::filesystem::path(path).parent_path() / target).string();
  }
  return path;
}

// No two calls of any process share a name, and O_EXCL refuses one that is left over.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter = 0;
  return path + ".tmp-" + std::to_string(::getpid()) + '-' + std::to_string(counter++);
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path), target_(followed(path)) {
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (!exists && errno == ELOOP) fail_with(errno);
  if (exists && S_ISDIR(status.st_mode))
    fail(path, "cannot be written: it is a folder, need the name of a file");
  if (exists && is_descriptor(target_))
    descriptor_ = ::dup(std::atoi(target_.c_str() + target_.rfind('/') + 1));
  else if (exists && !S_ISREG(status.st_mode))
    descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  else
    open_temporary(exists ? std::optional(status.st_mode & 0777) : std::nullopt);
  if (descriptor_ < 0) fail_with(errno);
}

void AtomicFile::open_temporary(std::optional<unsigned> mode) {
  const std::string folder = folder_of(target_);
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0)
    fail(path_, "cannot be written: the folder ", folder, ": ", std::strerror(errno));
  do {
    temporary_ = temporary_name(target_);
    descriptor_ =
        ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode.value_or(0666));
  } while (descriptor_ < 0 && errno == EEXIST);
  // A mode that is kept is not for the umask to narrow.
  if (descriptor_ >= 0 && mode) ::fchmod(descriptor_, *mode);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (temporary_.empty()) {
    if (::close(std::exchange(descriptor_, -1)) != 0) fail_with(errno);
    return;
  }
  if (::fsync(descriptor_) != 0 || std::rename(temporary_.c_str(), target_.c_str()) != 0)
    fail_with(errno);
  end_commit();
}

bool AtomicFile::commit_as_new() {
  if (temporary_.empty()) fail_with(EEXIST);
  if (::fsync(descriptor_) != 0) fail_with(errno);
  if (::link(temporary_.c_str(), target_.c_str()) != 0) {
    if (errno == EEXIST) return false;  // the destructor removes the temporary file
    const bool has_links = errno != EPERM && errno != EOPNOTSUPP;
    if (has_links || std::rename(temporary_.c_str(), target_.c_str()) != 0) fail_with(errno);
  } else {
    ::unlink(temporary_.c_str());
  }
  end_commit();
  return true;
}

void AtomicFile::end_commit() {
  ::close(descriptor_);
  descriptor_ = -1;
  // The new name is in the folder, which has to reach the disk too; some file systems cannot do
  // that.
  const int folder = ::open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
}

void AtomicFile::fail_with(int error) const {
  fail(path_, "cannot be written: ", std::strerror(error));
}

Turn::Turn(const std::string& path) {
  // A lock is the file's, and whoever has it replaces the file: the one that waited for it looks
  // whether it is still the file of that name.
  for (;;) {
    constexpr int kHow = O_CLOEXEC | O_NONBLOCK;
    descriptor_ = ::open(path.c_str(), O_RDWR | kHow);  // as NFS wants it
    if (descriptor_ < 0 && errno != ENOENT) descriptor_ = ::open(path.c_str(), O_RDONLY | kHow);
    if (descriptor_ < 0 && errno == ENOENT) return;
    if (descriptor_ < 0) fail(path, "cannot be opened: ", std::strerror(errno));
    int error = 0;
    do error = ::flock(descriptor_, LOCK_EX) == 0 ? 0 : errno;
    while (error == EINTR);
    struct stat ours {
    }, there{};
    const bool is_still_there = error == 0 && ::fstat(descriptor_, &ours) == 0 &&
                                ::stat(path.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
                                ours.st_ino == there.st_ino;
    if (is_still_there) return;
    ::close(std::exchange(descriptor_, -1));
    if (error != 0)
      fail(path, "cannot be locked against others who write it: ", std::strerror(error),
           ": keep it on a file system that has locks");
  }
}

Turn::~Turn() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace tensor
