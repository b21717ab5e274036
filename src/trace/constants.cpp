#include "src/trace/constants.h"

#include <bit>

#include "src/core/key.h"
#include "src/trace/content.h"
#include "src/trace/derived.h"

namespace tensor {

Constants::~Constants() {
  stop_watching();
  let_go();
}

ValueId Constants::value_of(Graph& graph, const Tensor& x, const std::string& where) {
  const std::lock_guard lock(mutex_);
  const detail::TensorImpl& impl = detail::impl(x);
  const detail::Storage& storage = *impl.storage;
  Key place;
  place << storage.device.is_cuda() << storage.device.index() << impl.type << impl.strides;
  storage.late ? place << &storage << impl.offset : place << impl.first();
  const auto [known, is_new] = known_.try_emplace(place.take(), held_.size());
  if (!is_new) {
    const Held& held = held_[known->second];
    const bool is_same = !held.has_hash || hash_of_elements(x) == held.hash;
    if (held.is_current && is_same) return held.id;
    if (held.is_current && held.is_shared) refuse(held.value, where);
    known->second = held_.size();
  }
  return add(graph, x, where);
}

ValueId Constants::add(Graph& graph, const Tensor& x, const std::string& where) {
  constexpr std::int64_t kSmall = 1 << 20;
  detail::Storage& storage = *detail::impl(x).storage;
  const bool was_written = storage.written_at > begin_,  // and may be again, in this call or later
      is_in_reach = !storage.device.is_cuda();
  Held held;
  held.given = x;
  held.value = is_in_reach ? x : derived(graph, "downloaded", {x}, [&] { return x.to(Device()); });
  held.has_hash = storage.is_exposed && is_in_reach;
  held.is_shared = is_in_reach && !was_written && !(storage.is_exposed && x.nbytes() <= kSmall);
  if (held.has_hash) held.hash = hash_of_elements(held.value);
  if (!held.is_shared && is_in_reach) held.value = copy_of_elements(held.value);
  held.id = graph.add_constant(held.value, where);
  std::vector<std::size_t>& watched = watched_[&storage];
  if (watched.empty()) ++storage.watchers;
  watched.push_back(held_.size());
  held_.push_back(std::move(held));
  return held_.back().id;
}

void Constants::before_write(const detail::Storage& storage, bool) {
  const std::lock_guard lock(mutex_);
  const auto found = watched_.find(&storage);
  if (found == watched_.end()) return;
  for (const std::size_t i : found->second) {
    Held& held = held_[i];
    held.is_current = false;
    if (!held.is_shared) continue;
    // What has changed already is left for finish() to refuse: nothing is thrown here.
    if (held.has_hash && hash_of_elements(held.value) != held.hash) continue;
    held.value = copy_of_elements(held.value);
    held.is_shared = false;
  }
  --detail::impl(held_[found->second.front()].given).storage->watchers;
  watched_.erase(found);
}

void Constants::refuse(const Tensor& x, const std::string& where) {
  fail("trace", "the constant ", where, where.empty() ? "(" : " (", x.type(), ") was written into ",
       "after its first use, while the function was traced, where it is not seen: through a ",
       "pointer or reference of mutable_data(), at() or DLPack from before, or in the memory that ",
       "from_memory() was given. Assign with x(...) = value, ask for a new pointer before each ",
       "write, or use a copy()");
}

void Constants::finish(Graph& graph) {
  const std::lock_guard lock(mutex_);
  std::map<std::shared_ptr<detail::Storage>, std::uint64_t> versions;
  for (const Held& held : held_) {
    const bool is_watched_by_hash = held.is_shared && held.has_hash;
    if (is_watched_by_hash && hash_of_elements(held.value) != held.hash)
      refuse(held.value, graph[held.id].where);
    graph.set_constant(held.id, held.value);
    if (!is_watched_by_hash || !graph.derived()) continue;
    std::uint64_t& version = versions[detail::impl(held.value).storage];
    version = std::rotl(version, 1) ^ held.hash;
  }
  for (const auto& [storage, version] : versions) graph.derived()->see(storage, version);
  let_go();
}

void Constants::let_go() {
  for (const auto& [storage, places] : watched_)
    --detail::impl(held_[places.front()].given).storage->watchers;
  watched_.clear();
  known_.clear();
  held_.clear();
}

}  // namespace tensor
