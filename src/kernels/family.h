// Families: a kind of kernel each, whatever the device. A family is asked once about a problem and
// answers with all that it can do for it.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/kernels/schedule.h"
#include "src/trace/fuse.h"
#include "src/trace/isolate.h"

namespace tensor {

/// A family's answer about a problem that it takes: how long it thinks it takes, how the kernel is
/// built, what may be tried.
template <class Built>
struct Implementation {
  double microseconds = 0;
  /// Builds any group that poses the problem which was considered (problem_key): the same numbers
  /// of values, other constants. With the group's schedule, where that is one of the space;
  /// otherwise with the chosen one.
  std::function<Built(const Isolated& alone)> build;
  /// Null where there is one way only.
  std::function<Space()> space = nullptr;
};

template <class Machine, class Built>
struct Family {
  std::string_view name;
  /// nullopt when the family cannot run the group.
  std::optional<Implementation<Built>> (*consider)(const Isolated& alone, const Machine& machine);
};

/// An answer as fusion, tuning and reports see it.
struct Offer {
  int family = -1;  // its place in the table
  std::string_view name;
  double microseconds = 0;

  /// What may be tried, made when first asked for; nullptr where there is one way only.
  const Space* space() const;

  struct LazySpace {
    std::function<Space()> make;
    std::once_flag made;
    std::optional<Space> space;
  };
  std::shared_ptr<LazySpace> lazy = nullptr;
};

/// The first of those that take the least time, nullptr if there is none.
const Offer* cheapest(std::span<const Offer> offers);

/// All of an isolated group that families may look at: its operators, types and layouts, the values
/// of single numbers and the range of indices. Groups of one key share their kernels.
std::string problem_key(const Isolated& alone);

/// What the families of a device offer. Any number of threads may ask.
class Offers {
 public:
  virtual ~Offers() = default;
  /// What the families offer that take the group, in the order of their table.
  virtual std::vector<Offer> of(const Isolated& alone) = 0;
  virtual int families() const = 0;
  virtual std::string_view name(int family) const = 0;
  /// The names of the kernels that the group's schedule takes and that are compiled first: equal
  /// ones are one kernel. None where kernels are there already.
  virtual std::vector<std::string> kernels(const LaidOutGraph&, const Group&) { return {}; }
  /// Answers that are no longer needed take no memory.
  virtual void forget() = 0;

  /// The cheapest offer as a cost.
  GroupCost cost(const LaidOutGraph& laid, const Group& group);
};

/// Their costs, as fusion asks for them.
CostFn cost_of(std::shared_ptr<Offers> offers);

/// The plan with the schedule of every group that its kernel will have: what it asks for, where
/// that is one of its family's space, otherwise the one that the family takes of itself.
FusionPlan scheduled(const LaidOutGraph& laid, FusionPlan plan, Offers& offers);

/// The families of a table on a machine.
template <class Machine, class Built>
class Families final : public Offers {
 public:
  using Row = Family<Machine, Built>;
  Families(std::span<const Row> table, Machine machine)
      : table_(table), machine_(std::move(machine)) {}

  std::vector<Offer> of(const Isolated& alone) override { return answers(alone)->offers; }
  int families() const override { return static_cast<int>(table_.size()); }
  std::string_view name(int family) const override {
    return table_[static_cast<std::size_t>(family)].name;
  }
  std::vector<std::string> kernels(const LaidOutGraph& laid, const Group& group) override {
    std::vector<std::string> names;
    if constexpr (requires(Built built) { built.calls.front().entry; })
      for (const auto& call : build(laid, group).calls) names.push_back(call.entry);
    return names;
  }
  void forget() override {
    const std::lock_guard lock(mutex_);
    known_.clear();
    built_.clear();
  }

  /// Builds a group of a plan by its family, as if nothing else were in its graph. Where nobody has
  /// asked about the problem, only that family is asked. Descriptions, which know no constants and
  /// can be copied, are made once for all groups of a problem that run alike.
  Built build(const LaidOutGraph& laid, const Group& group) {
    const Isolated alone = isolate(laid, group);
    const std::string key = problem_key(alone);
    if constexpr (!std::is_copy_constructible_v<Built>)
      return built(alone, key);
    else {
      const auto way = std::tuple(key, group.family, group.schedule);
      {
        const std::lock_guard lock(mutex_);
        if (const auto known = built_.find(way); known != built_.end()) return known->second;
      }
      Built made = built(alone, key);
      const std::lock_guard lock(mutex_);
      return built_.try_emplace(way, std::move(made)).first->second;
    }
  }

 private:
  struct Known {
    std::vector<Offer> offers;
    std::vector<Implementation<Built>> answers;  // one for each offer
  };

  Built built(const Isolated& alone, const std::string& key) {
    const int family = alone.group.family;
    if (const auto known = recalled(key)) {
      for (std::size_t i = 0; i < known->offers.size(); ++i)
        if (known->offers[i].family == family) return known->answers[i].build(alone);
    } else {
      const auto& row = table_[static_cast<std::size_t>(family)];
      if (const auto answer = row.consider(alone, machine_)) return answer->build(alone);
    }
    internal_error("build", "the family ", name(family), " does not take ",
                   problem_text(alone.laid.graph, alone.group));
  }

  // nullptr where nobody has asked about the problem of this key.
  std::shared_ptr<const Known> recalled(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto known = known_.find(key);
    return known == known_.end() ? nullptr : known->second;
  }

  std::shared_ptr<const Known> answers(const Isolated& alone) {
    const std::string key = problem_key(alone);
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const Known>& known = known_[key];
    if (!known) known = asked(alone);
    return known;
  }

  std::shared_ptr<const Known> asked(const Isolated& alone) {
    auto known = std::make_shared<Known>();
    for (std::size_t i = 0; i < table_.size(); ++i) {
      std::optional<Implementation<Built>> answer = table_[i].consider(alone, machine_);
      if (!answer) continue;
      Offer offer{static_cast<int>(i), table_[i].name, answer->microseconds};
      if (answer->space) {
        offer.lazy = std::make_shared<Offer::LazySpace>();
        offer.lazy->make = answer->space;
      }
      known->offers.push_back(std::move(offer));
      known->answers.push_back(std::move(*answer));
    }
    return known;
  }

  const std::span<const Row> table_;
  const Machine machine_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Known>> known_;  // of problem keys
  std::map<std::tuple<std::string, int, std::string>, Built> built_;     // with family and schedule
};

}  // namespace tensor
