#include "src/trace/derived.h"

#include <algorithm>

#include "src/core/key.h"
#include "src/trace/content.h"

namespace tensor {

using detail::Origin;
using detail::Storage;
using detail::TensorImpl;

namespace {

constexpr std::int64_t kSmall = 1 << 20;  // bytes of a constant that is known by its elements

bool is_same_place(const TensorImpl& a, const TensorImpl& b) {
  return a.type == b.type && a.offset == b.offset && a.strides == b.strides;
}

bool is_same(const std::weak_ptr<Storage>& known, const Storage* storage) {
  return known.lock().get() == storage;
}

}  // namespace

// Chains of origins may be long: they go one after the other, not one inside the other.
Origin::~Origin() {
  static thread_local std::vector<std::shared_ptr<const Origin>>* going = nullptr;
  if (going) {
    going->insert(going->end(), from.begin(), from.end());
    return;
  }
  going = &from;
  while (!from.empty()) {
    const std::shared_ptr<const Origin> last = std::move(from.back());
    from.pop_back();
  }
  going = nullptr;
}

DerivedConstants::~DerivedConstants() {
  stop_watching();
  forget();
}

// ---- What is known

std::optional<Tensor> DerivedConstants::Derivation::known() const {
  if (!origin_) return std::nullopt;
  const std::lock_guard lock(all_->mutex_);
  const auto storage = origin_->storage.lock();
  if (!storage) return std::nullopt;
  TensorImpl made = *origin_->made;
  made.storage = storage;
  return detail::make_tensor(std::move(made));
}

std::optional<Tensor> DerivedConstants::Derivation::later(std::function<Tensor()> make) const {
  if (!origin_ || may_change_unseen()) return std::nullopt;
  const std::lock_guard lock(all_->mutex_);
  if (!origin_->made) return std::nullopt;
  TensorImpl late = *origin_->made;
  late.storage = origin_->storage.lock();
  if (!late.storage) {
    late.storage = std::make_shared<Storage>();
    all_->make_late(late.storage, origin_, std::move(make));
    origin_->storage = late.storage;
  }
  return detail::make_tensor(std::move(late));
}

Tensor DerivedConstants::Derivation::lend(std::function<Tensor()> make) const {
  if (!origin_ || may_change_unseen()) return make();
  std::optional<TensorImpl> before;
  {
    const std::lock_guard lock(all_->mutex_);
    before = origin_->made;
  }
  Tensor lent;
  if (!before) lent = make();
  const std::lock_guard lock(all_->mutex_);
  if (before) {
    before->storage = std::make_shared<Storage>();
    all_->make_late(before->storage, origin_, std::move(make));
    lent = detail::make_tensor(*std::move(before));
  } else {
    TensorImpl made = detail::placed(lent);
    made.storage->origin = origin_;
    made.storage = nullptr;
    if (!origin_->made) origin_->made = std::move(made);
  }
  ++detail::placed(lent).storage->watchers;  // what is made of it is made before it is written
  return lent;
}

bool DerivedConstants::Derivation::may_change_unseen() const {
  return std::any_of(from_.begin(), from_.end(),
                     [](const Tensor& x) { return detail::placed(x).storage->is_exposed.load(); });
}

void DerivedConstants::make_late(const std::shared_ptr<Storage>& storage, OriginPtr origin,
                                 std::function<Tensor()> make) {
  storage->origin = std::move(origin);
  storage->late = std::make_unique<detail::Late>(
      [make = std::move(make)] { return detail::stored(make()).storage; });
  late_.push_back(storage);
}

Tensor DerivedConstants::Derivation::keep(const Tensor& made) const {
  if (!origin_) return made;
  TensorImpl impl = detail::placed(made);
  const std::shared_ptr<Storage> storage = std::move(impl.storage);
  const auto lies_in = [&](const Tensor& x) { return detail::placed(x).storage == storage; };
  // A view has an origin already.
  if (storage->origin || std::any_of(from_.begin(), from_.end(), lies_in)) return made;
  if (const auto earlier = known()) return *earlier;
  const std::lock_guard lock(all_->mutex_);
  storage->origin = origin_;
  origin_->made = std::move(impl);
  origin_->storage = storage;
  return made;
}

DerivedConstants::Derivation DerivedConstants::derivation(std::string_view what,
                                                          const std::vector<Tensor>& from) {
  const std::lock_guard lock(mutex_);
  const auto origin = std::make_shared<Origin>();
  Key key;
  key << what;
  for (const Tensor& x : from) {
    bool is_by_content = false;
    const OriginPtr source = origin_of(x, is_by_content);
    if (!source) return {};
    const TensorImpl& t = detail::placed(x);
    key << source.get() << (is_by_content ? 0 : t.offset) << t.type << t.strides;
    origin->from.push_back(source);
  }
  std::weak_ptr<const Origin>& known = derived_[key.take()];
  Derivation result;
  result.all_ = this;
  result.origin_ = known.lock();
  if (!result.origin_) known = result.origin_ = origin;
  result.from_ = from;
  return result;
}

// ---- Constants that are not derived

DerivedConstants::OriginPtr DerivedConstants::origin_of(const Tensor& x, bool& is_by_content) {
  const std::shared_ptr<Storage>& storage = detail::placed(x).storage;
  if (storage->origin && !storage->is_exposed) return storage->origin;
  is_by_content = x.nbytes() <= kSmall && !storage->in_file && !storage->device.is_cuda();
  return is_by_content ? origin_by_content(x) : origin_by_storage(storage);
}

DerivedConstants::OriginPtr DerivedConstants::origin_by_content(const Tensor& x) {
  const TensorImpl& t = detail::placed(x);
  const bool may_change = t.storage->is_exposed;
  const std::uint64_t place = reinterpret_cast<std::uintptr_t>(t.storage.get());
  if (!may_change) {
    const auto [begin, end] = leaves_.equal_range(place);
    for (auto leaf = begin; leaf != end; ++leaf)
      if (leaf->second.place && is_same(leaf->second.storage, t.storage.get()) &&
          is_same_place(*leaf->second.place, t))
        if (OriginPtr known = leaf->second.origin.lock()) return known;
  }
  const std::uint64_t hash = hash_of_elements(x);
  OriginPtr origin;
  const auto [begin, end] = leaves_.equal_range(hash);
  for (auto leaf = begin; leaf != end && !origin; ++leaf)
    if (leaf->second.content.defined() && has_same_elements(leaf->second.content, x))
      origin = leaf->second.origin.lock();
  if (!origin) {
    const Tensor kept = may_change ? copy_of_elements(x) : x;
    origin = add_leaf(hash, {std::make_shared<Origin>(), detail::placed(kept).storage, 0, kept});
  }
  if (may_change) return origin;
  TensorImpl where = t;
  where.storage = nullptr;
  return add_leaf(place, {origin, t.storage, 0, {}, std::move(where)});
}

DerivedConstants::OriginPtr DerivedConstants::origin_by_storage(
    const std::shared_ptr<Storage>& storage) {
  std::uint64_t version = 0;
  if (storage->is_exposed) {
    const auto seen = versions_.find(storage.get());
    if (seen == versions_.end() || !is_same(seen->second.storage, storage.get())) return nullptr;
    version = seen->second.version;
  }
  const std::uint64_t key = reinterpret_cast<std::uintptr_t>(storage.get()) ^ version;
  const auto [begin, end] = leaves_.equal_range(key);
  for (auto leaf = begin; leaf != end; ++leaf) {
    const Leaf& l = leaf->second;
    if (!l.content.defined() && !l.place && l.version == version &&
        is_same(l.storage, storage.get()))
      if (OriginPtr known = l.origin.lock()) return known;
  }
  return add_leaf(key, {std::make_shared<Origin>(), storage, version, {}});
}

DerivedConstants::OriginPtr DerivedConstants::add_leaf(std::uint64_t key, Leaf leaf) {
  OriginPtr origin = leaf.origin.lock();
  ++leaf.storage.lock()->watchers;
  leaves_.emplace(key, std::move(leaf));
  return origin;
}

DerivedConstants::Leaves::iterator DerivedConstants::erase(Leaves::iterator leaf) {
  if (const auto storage = leaf->second.storage.lock()) --storage->watchers;
  return leaves_.erase(leaf);
}

void DerivedConstants::see(const std::shared_ptr<Storage>& storage, std::uint64_t version) {
  const std::lock_guard lock(mutex_);
  versions_[storage.get()] = {storage, version};
}

// A pointer that is handed out may be written through at any later time. What may be made of the
// elements is made of those that they still are.
void DerivedConstants::before_write(const Storage& storage, bool) {
  const auto is_written = [&](const auto& leaf) { return is_same(leaf.second.storage, &storage); };
  std::vector<std::weak_ptr<Storage>> late;
  {
    const std::lock_guard lock(mutex_);
    if (storage.origin || std::any_of(leaves_.begin(), leaves_.end(), is_written)) late = late_;
  }
  for (const auto& one : late)
    if (const auto there = one.lock()) there->bytes();
  const std::lock_guard lock(mutex_);
  for (auto leaf = leaves_.begin(); leaf != leaves_.end();)
    leaf = is_written(*leaf) ? erase(leaf) : std::next(leaf);
}

void DerivedConstants::forget() {
  const std::lock_guard lock(mutex_);
  for (auto leaf = leaves_.begin(); leaf != leaves_.end();) leaf = erase(leaf);
  derived_.clear();
  versions_.clear();
}

void DerivedConstants::tidy() {
  const std::lock_guard lock(mutex_);
  // Looking at all of them for every size would take longer than finding those of that size.
  if (derived_.size() + leaves_.size() < tidied_ + tidied_ / 8) return;
  std::erase_if(derived_, [](const auto& entry) { return entry.second.expired(); });
  std::erase_if(versions_, [](const auto& entry) { return entry.second.storage.expired(); });
  std::erase_if(late_, [](const auto& storage) { return storage.expired(); });
  for (auto leaf = leaves_.begin(); leaf != leaves_.end();) {
    const bool is_gone = leaf->second.origin.expired() || leaf->second.storage.expired();
    leaf = is_gone ? erase(leaf) : std::next(leaf);
  }
  tidied_ = derived_.size() + leaves_.size();
}

}  // namespace tensor
