// Derived constants: tensors that a pure function makes of constants (folded and scaled weights,
// casts, the forms that kernels want), each of which is in memory once for all executables that
// share them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/core/storage.h"
#include "src/trace/graph.h"

namespace tensor {

/// What the elements of a storage are made of. A storage of derived elements keeps its origin, and
/// that what it was made of: so what was made of something that is no longer there is found again
/// when that is made anew, and nothing has to be kept for being recognised.
struct detail::Origin {
  Origin() = default;
  Origin(const Origin&) = delete;
  Origin& operator=(const Origin&) = delete;
  ~Origin();

  std::vector<std::shared_ptr<const Origin>> from;
  // What was made, once it was, and its storage while that is there; change under the owner's lock.
  mutable std::optional<detail::TensorImpl> made;
  mutable std::weak_ptr<detail::Storage> storage;
};

/// Knows derived constants as long as they are there, and keeps none of them. Any number of threads
/// may use it.
///
/// Small constants are known by their elements, since functions make them anew whenever they are
/// traced; large ones, and those of files and devices, by their storage as long as nobody writes
/// into it, or may do so unseen. An exposed storage is known in the version that Constants saw.
/// Large ones that a function makes anew whenever it is traced are not known again.
class DerivedConstants : private detail::Watcher {
 public:
  DerivedConstants() { start_watching(); }
  virtual ~DerivedConstants();

  /// Something that is, or is to be, made of constants.
  class Derivation {
   public:
    /// nullopt where it is not there.
    std::optional<Tensor> known() const;
    /// Where it was made before and is gone, a tensor of elements that are made anew if somebody
    /// looks at them. nullopt where what they are made of may be written unseen.
    std::optional<Tensor> later(std::function<Tensor()> make) const;
    /// What `make` returns in a storage of its own, for somebody who may write into it: the first
    /// time made at once, and then only if somebody looks at it.
    Tensor lend(std::function<Tensor()> make) const;
    /// Tells what was made: afterwards all take it, or what another thread made in the meantime.
    Tensor keep(const Tensor& made) const;

   private:
    friend class DerivedConstants;
    bool may_change_unseen() const;
    DerivedConstants* all_ = nullptr;  // null: a source is unknown, nothing can be shared
    std::shared_ptr<const detail::Origin> origin_;
    std::vector<Tensor> from_;
  };
  /// `what` says all that the result depends on besides the constants.
  Derivation derivation(std::string_view what, const std::vector<Tensor>& from);

  /// The elements of an exposed storage are of this version: another one is other elements.
  void see(const std::shared_ptr<detail::Storage>& storage, std::uint64_t version);
  /// Forgets what is no longer there, once an eighth has come to what was there; or everything.
  void tidy();
  void forget();

 private:
  using OriginPtr = std::shared_ptr<const detail::Origin>;
  // A constant that is not derived itself.
  struct Leaf {
    std::weak_ptr<const detail::Origin> origin;
    std::weak_ptr<detail::Storage> storage;
    std::uint64_t version = 0;
    Tensor content;  // of small ones
    // Of small ones, where their elements lie, so that these need not be looked at again.
    std::optional<detail::TensorImpl> place = std::nullopt;
  };
  using Leaves = std::unordered_multimap<std::uint64_t, Leaf>;

  void before_write(const detail::Storage& storage, bool is_certain) override;
  OriginPtr origin_of(const Tensor& x, bool& is_by_content);
  void make_late(const std::shared_ptr<detail::Storage>& storage, OriginPtr origin,
                 std::function<Tensor()> make);
  OriginPtr origin_by_content(const Tensor& x);
  OriginPtr origin_by_storage(const std::shared_ptr<detail::Storage>& storage);
  OriginPtr add_leaf(std::uint64_t key, Leaf leaf);
  Leaves::iterator erase(Leaves::iterator leaf);

  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<const detail::Origin>> derived_;
  Leaves leaves_;
  struct Version {
    std::weak_ptr<detail::Storage> storage;
    std::uint64_t version = 0;
  };
  std::unordered_map<const detail::Storage*, Version> versions_;
  std::size_t tidied_ = 0;                            // entries that were there after tidy()
  std::vector<std::weak_ptr<detail::Storage>> late_;  // whose elements may not be there
};

/// What `make` returns, or returned when it was called for this before.
template <class Make>
Tensor derived(const Graph& graph, std::string_view what, const std::vector<Tensor>& from,
               const Make& make) {
  if (!graph.derived()) return make();
  const auto derivation = graph.derived()->derivation(what, from);
  if (const auto known = derivation.known()) return *known;
  return derivation.keep(make());
}

/// The same of what a later pass or a device is likely to have made something of already, so that
/// nobody looks at it: made at once the first time, and then only if somebody does. `make` holds
/// all that it needs.
template <class Make>
Tensor derived_for_others(const Graph& graph, std::string_view what,
                          const std::vector<Tensor>& from, Make make) {
  if (!graph.derived()) return make();
  const auto derivation = graph.derived()->derivation(what, from);
  if (const auto known = derivation.known()) return *known;
  if (const auto later = derivation.later(make)) return *later;
  return derivation.keep(make());
}

}  // namespace tensor
