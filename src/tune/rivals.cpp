#include "src/tune/rivals.h"

#include <algorithm>
#include <cstdint>

#include "src/tune/table.h"

namespace tensor {
namespace {

// In how many numbers they differ; more than any where the structure does.
std::size_t difference(const Schedule& a, const Schedule& b) {
  if (a.sketch != b.sketch || a.values.size() != b.values.size()) return SIZE_MAX;
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) count += a.values[i] != b.values[i];
  return count;
}

}  // namespace

std::vector<Schedule> rivals_of(const Schedule& incumbent, const Search& search, std::size_t most) {
  constexpr double kNear = 1.05;  // times the fastest one's time
  const Schedule& level0 = search.space().chosen;
  std::vector<Schedule> list = {incumbent};
  for (const Search::Best& one : search.within(Table::kChosen))
    if (one.schedule == level0 && !(level0 == incumbent)) list.push_back(level0);
  const std::vector<Search::Best> near = search.within(kNear);
  while (list.size() <= most) {
    const Schedule* next = nullptr;
    std::size_t furthest = 0;
    for (const Search::Best& one : near) {
      std::size_t least = SIZE_MAX;
      for (const Schedule& taken : list) least = std::min(least, difference(one.schedule, taken));
      if (least > furthest) furthest = least, next = &one.schedule;
    }
    if (!next) break;
    list.push_back(*next);
  }
  list.erase(list.begin());
  return list;
}

}  // namespace tensor
