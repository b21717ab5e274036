#include "src/core/shared_library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "tensor/error.h"

namespace tensor {
namespace {

std::map<std::string, SharedLibrary::Find>& stand_ins() {
  static std::map<std::string, SharedLibrary::Find> table;
  return table;
}

// A file in memory with the bytes of another one, open; -1 where there is none.
int file_like(const char* path) {
  const int from = ::open(path, O_RDONLY | O_CLOEXEC), to = ::memfd_create("library", MFD_CLOEXEC);
  struct stat about {};
  bool is_whole = from >= 0 && to >= 0 && ::fstat(from, &about) == 0;
  for (off_t done = 0; is_whole && done < about.st_size;)
    is_whole = ::sendfile(to, from, &done, static_cast<std::size_t>(about.st_size - done)) > 0;
  if (from >= 0) ::close(from);
  if (is_whole || to < 0) return to;
  ::close(to);
  return -1;
}

}  // namespace

void SharedLibrary::stand_in(const std::string& name, Find find) {
  stand_ins()[name] = std::move(find);
}

// Never closed: the drivers behind these libraries run threads of their own.
SharedLibrary::SharedLibrary(std::string_view what, const std::vector<std::string>& candidates,
                             std::string_view remedy) {
  std::string tried;
  for (const std::string& candidate : candidates) {
    if (const auto found = stand_ins().find(candidate); found != stand_ins().end()) {
      if (!found->second) {
        tried += std::string(tried.empty() ? "" : "; ") + candidate + ": is absent";
        continue;
      }
      path_ = candidate;
      stand_in_ = found->second;
      return;
    }
    handle_ = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_) {
      path_ = candidate;
      return;
    }
    const char* reason = ::dlerror();
    tried += std::string(tried.empty() ? "" : "; ") + (reason ? reason : candidate);
  }
  fail(what, "cannot be opened (", tried, "): ", remedy);
}

// The loader takes a file of another number for another library, whatever it says its name is.
SharedLibrary SharedLibrary::copy(std::string_view what, std::string_view remedy) const {
  if (stand_in_) return SharedLibrary(what, {"copy of " + path_}, remedy);
  link_map* loaded = nullptr;
  const int file =
      ::dlinfo(handle_, RTLD_DI_LINKMAP, &loaded) == 0 ? file_like(loaded->l_name) : -1;
  SharedLibrary result;
  result.path_ = path_;
  if (file >= 0) {
    const std::string path = "/proc/self/fd/" + std::to_string(file);
    result.handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ::close(file);
  }
  if (!result.handle_) fail(what, "cannot be opened a second time: ", remedy);
  return result;
}

void* SharedLibrary::find(const char* name) const {
  return stand_in_ ? stand_in_(name) : ::dlsym(handle_, name);
}

void* SharedLibrary::symbol(const char* name) const {
  void* address = find(name);
  if (!address) fail(path_, "has no function ", name, ": it is too old, install a newer one");
  return address;
}

}  // namespace tensor
