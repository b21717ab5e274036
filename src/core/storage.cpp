#include "src/core/storage.h"

#include <mutex>
#include <vector>

#include "src/core/memory.h"
#include "src/core/needs_values.h"

namespace tensor::detail {

std::shared_ptr<Storage> allocate(std::int64_t bytes) {
  const std::shared_ptr<void> memory = allocate_block(static_cast<std::size_t>(bytes));
  if (!memory)
    fail("memory", "cannot allocate ", bytes,
         " bytes for a tensor: the machine has not that much free");
  auto storage = std::make_shared<Storage>();
  storage->data = static_cast<std::byte*>(memory.get());
  storage->owner = memory;
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
  const TensorImpl& result = impl(x);
  if (!result.recorder) return;
  TextWriter text;
  text << where << ": asks for the values of a traced tensor (" << result.type
       << "), which exist only when the compiled function runs: " << mend;
  throw NeedsValues(text.str());
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
