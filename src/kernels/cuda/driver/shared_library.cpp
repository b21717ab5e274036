#include "src/kernels/cuda/driver/shared_library.h"

#include <dlfcn.h>

#include <map>

#include "tensor/error.h"

namespace tensor::cuda {
namespace {

std::map<std::string, SharedLibrary::Find>& stand_ins() {
  static std::map<std::string, SharedLibrary::Find> table;
  return table;
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

void* SharedLibrary::symbol(const char* name) const {
  void* address = stand_in_ ? stand_in_(name) : ::dlsym(handle_, name);
  if (!address) fail(path_, "has no function ", name, ": it is too old, install a newer one");
  return address;
}

}  // namespace tensor::cuda
