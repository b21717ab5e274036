#include "src/core/storage.h"

#include <sys/mman.h>

#include <cstdlib>

namespace tensor::detail {

// Memory of at least a huge page is aligned to such, and asks for them: rows that lie far apart
// would need an entry of the address cache each, and the prefetcher stops at the end of a page.
std::shared_ptr<Storage> allocate(std::int64_t bytes) {
  constexpr std::size_t kAlignment = 64, kHugePage = 2 << 20;
  const std::size_t rounded =
      (static_cast<std::size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
  const bool is_large = rounded >= kHugePage;
  // Not aligned_alloc, which need not take sizes that are no multiple of the alignment.
  void* memory = nullptr;
  if (posix_memalign(&memory, is_large ? kHugePage : kAlignment,
                     rounded == 0 ? kAlignment : rounded))
    fail("memory", "cannot allocate ", bytes,
         " bytes for a tensor: the machine has not that much free");
  // Whole ones only: what follows may be another block's. Without them all works as well.
  if (is_large) madvise(memory, rounded / kHugePage * kHugePage, MADV_HUGEPAGE);
  auto storage = std::make_shared<Storage>();
  storage->owner =
      std::shared_ptr<const void>(memory, [](const void* p) { std::free(const_cast<void*>(p)); });
  storage->data = static_cast<std::byte*>(memory);
  return storage;
}

const TensorImpl& impl(const Tensor& x) {
  if (!x.defined())
    fail("tensor", "this tensor is undefined (default constructed): give it a value first");
  return *x.impl();
}

const TensorImpl& placed(const Tensor& x) {
  const TensorImpl& result = impl(x);
  if (result.recorder)
    fail("trace", "the values of a traced tensor (", result.type,
         ") are asked for, but exist only when the compiled "
         "function runs: keep item(), data(), printing and boolean masks out of functions that are "
         "traced");
  return result;
}

const TensorImpl& stored(const Tensor& x) {
  const TensorImpl& result = placed(x);
  if (const Device& device = result.storage->device; device.is_cuda())
    fail("tensor", "the elements of this tensor (", result.type, ") lie on ", device,
         ", where they cannot be reached from here: bring them with to(\"cpu\")");
  return result;
}

Tensor make_tensor(TensorImpl impl) {
  return Tensor(std::make_shared<TensorImpl>(std::move(impl)));
}

}  // namespace tensor::detail
