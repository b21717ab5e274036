#include "src/kernels/cuda/shared_library.h"

#include <dlfcn.h>

#include "tensor/error.h"

namespace tensor::cuda {

// Never closed: the drivers behind these libraries run threads of their own.
SharedLibrary::SharedLibrary(std::string_view what, const std::vector<std::string>& candidates,
                             std::string_view remedy) {
  std::string tried;
  for (const std::string& candidate : candidates) {
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
  void* address = ::dlsym(handle_, name);
  if (!address) fail(path_, "has no function ", name, ": it is too old, install a newer one");
  return address;
}

}  // namespace tensor::cuda
