#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "src/core/storage.h"
#include "tensor/io.h"

namespace tensor {

void forget_pages(const Tensor& x) {
  const detail::TensorImpl& t = detail::placed(x, "forget_pages");
  if (!t.storage->in_file || x.size() == 0) return;
  std::int64_t reach = 1;  // elements from the first to the last
  for (int axis = 0; axis < t.type.shape.rank(); ++axis) {
    if (t.strides[axis] < 0) return;
    reach += t.strides[axis] * (t.type.shape[axis] - 1);
  }
  // Whole pages only: the first and the last may hold a neighbour's elements too.
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(t.first()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(t.first()) +
                    static_cast<std::uintptr_t>(reach * item_size(t.type.dtype))) /
                   page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace tensor
