#include "src/core/storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <vector>

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

void Late::make(Storage& storage) {
  std::call_once(once_, [&] {
    const std::shared_ptr<Storage> made = make_();
    storage.owner = made;
    storage.data = made->bytes();
    make_ = nullptr;  // and what it was made of
  });
}

// ---- Who is told of writes

namespace {

std::atomic<std::uint64_t> writes = 0;
std::atomic<int> clock_users = 0;

// Never destroyed: tensors that are global variables are written until the process ends.
struct Watchers {
  std::mutex mutex;
  std::vector<Watcher*> all;
};
Watchers& watchers() {
  static auto& result = *new Watchers;
  return result;
}

}  // namespace

std::uint64_t write_clock() { return writes.load(std::memory_order_relaxed); }

void Watcher::start_watching() {
  const std::lock_guard lock(watchers().mutex);
  watchers().all.push_back(this);
  clock_users += needs_clock_;
}

void Watcher::stop_watching() {
  const std::lock_guard lock(watchers().mutex);
  if (std::erase(watchers().all, this) > 0) clock_users -= needs_clock_;
}

namespace {

void tell(Storage& storage, bool is_certain) {
  if (clock_users.load(std::memory_order_relaxed) > 0)
    storage.written_at.store(writes.fetch_add(1, std::memory_order_relaxed) + 1,
                             std::memory_order_relaxed);
  if (storage.watchers.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(watchers().mutex);
  for (Watcher* watcher : watchers().all) watcher->before_write(storage, is_certain);
}

}  // namespace

// What was made of constants is not that any more.
void about_to_write(Storage& storage) {
  tell(storage, true);
  if (storage.origin) storage.is_exposed.store(true, std::memory_order_relaxed);
}

void about_to_expose(Storage& storage) {
  tell(storage, false);
  if (!storage.is_exposed.load(std::memory_order_relaxed))
    storage.is_exposed.store(true, std::memory_order_relaxed);
}

const TensorImpl& impl(const Tensor& x) {
  if (!x.defined())
    fail("tensor", "this tensor is undefined (default constructed): give it a value first");
  return *x.impl();
}

void require_values(const Tensor& x, std::string_view where, std::string_view mend) {
  if (const TensorImpl& result = impl(x); result.recorder)
    fail(where, "asks for the values of a traced tensor (", result.type,
         "), which exist only when the compiled function runs: ", mend);
}

const TensorImpl& placed(const Tensor& x, std::string_view where) {
  require_values(x, where);
  return impl(x);
}

const TensorImpl& stored(const Tensor& x, std::string_view where) {
  const TensorImpl& result = placed(x, where);
  if (const Device& device = result.storage->device; device.is_cuda())
    fail("tensor", "the elements of this tensor (", result.type, ") lie on ", device,
         ", where they cannot be reached from here: bring them with to(\"cpu\")");
  return result;
}

Tensor make_tensor(TensorImpl impl) {
  return Tensor(std::make_shared<TensorImpl>(std::move(impl)));
}

}  // namespace tensor::detail
