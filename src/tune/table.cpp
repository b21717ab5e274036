#include "src/tune/table.h"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "tensor/version.h"

namespace tensor {
namespace {

// "0.10.1" as numbers, so that it comes after "0.9.2".
std::vector<int> parts_of(const std::string& version) {
  std::vector<int> parts;
  for (std::size_t begin = 0; begin < version.size();) {
    const std::size_t end = std::min(version.find('.', begin), version.size());
    int part = 0;  // also of what is no number
    std::from_chars(version.data() + begin, version.data() + end, part);
    parts.push_back(part);
    begin = end + 1;
  }
  return parts;
}

// The newest is the greatest: with the kernels that will run, then by the version.
using Age = std::pair<bool, std::vector<int>>;

Age age_of(const Measurement& m, const std::string& kernels) {
  return {kernels.empty() || m.kernels == kernels, parts_of(m.version)};
}

// Of the newest times of each problem and device. An error alone makes no other record old: then
// nothing would be left.
class Ages {
 public:
  Ages(std::span<const Measurement> measurements, const std::string& kernels) : kernels_(kernels) {
    for (const Measurement& m : measurements) {
      if (m.microseconds.empty()) continue;
      Age& newest = newest_[{m.problem, m.device}];
      newest = std::max(newest, age_of(m, kernels));
    }
  }
  bool is_newest(const Measurement& m) const {
    const auto newest = newest_.find({m.problem, m.device});
    return newest == newest_.end() || age_of(m, kernels_) >= newest->second;
  }

 private:
  const std::string kernels_;
  std::map<std::pair<std::string, std::string>, Age> newest_;
};

struct ScheduleRecords {
  std::vector<double> microseconds;
  bool is_faulty = false;
};

// The newest is the greatest; of equally old ones that of the fastest model, then the first in
// alphabetical order.
struct Chosen {
  Age age;
  std::string time;
  double model_us = 0;
  std::string family, schedule;

  bool operator<(const Chosen& o) const {
    return std::tie(age, time, o.model_us, o.family, o.schedule) <
           std::tie(o.age, o.time, model_us, family, schedule);
  }
};

template <class A, class B>
bool names_same(const A& a, const B& b) {
  return a.family == b.family && a.schedule == b.schedule;
}

// The end of a list that begins at `begin`, its numbers but 1 replaced, and their product.
std::size_t add_extents(std::string_view problem, std::size_t begin, std::string& text,
                        double& product) {
  std::size_t at = begin;
  while (at < problem.size() && problem[at] != ')' && problem[at] != ']') {
    const std::size_t digits =
        std::min(problem.find_first_not_of("0123456789", at), problem.size());
    if (digits == at) {
      text += problem[at++];
      continue;
    }
    std::int64_t extent = 0;
    std::from_chars(problem.data() + at, problem.data() + digits, extent);
    product *= static_cast<double>(extent);
    text += extent == 1 ? "1" : "?";
    at = digits;
  }
  return at;
}

}  // namespace

// Operands are written "%0 = f16(1, 197, 768)", constants and operators otherwise; of operators,
// views alone have lists of extents.
Sizeless sizeless(std::string_view problem) {
  constexpr std::string_view kEquals = " = ";
  Sizeless size;
  while (!problem.empty()) {
    const std::size_t end = std::min(problem.find(';'), problem.size());
    const std::string_view line = problem.substr(0, end);
    const std::size_t equals = line.find(kEquals), open = line.find('(');
    std::size_t copied = 0;
    double elements = 1;
    const auto replace = [&](std::size_t begin) {
      size.text += line.substr(copied, begin - copied);
      copied = add_extents(line, begin, size.text, elements);
    };
    if (equals != line.npos && open != line.npos && !line.substr(equals).starts_with(" = constant"))
      if (open + 1 < line.size() && line[open + 1] >= '0' && line[open + 1] <= '9') {
        replace(open + 1);
        size.elements += elements;
      }
    for (const std::string_view list : {"shape=[", "extent=["})
      if (const std::size_t begin = line.find(list); begin != line.npos && begin >= copied)
        replace(begin + list.size());
    size.text += line.substr(copied);
    if (end < problem.size()) size.text += ';';
    problem.remove_prefix(std::min(end + 1, problem.size()));
  }
  return size;
}

bool is_current(const Measurement& m, const std::string& kernels) {
  return m.kernels == kernels && m.version == version();
}

std::vector<Measurement> newest(std::vector<Measurement> measurements, const std::string& kernels) {
  const Ages ages(measurements, kernels);
  std::erase_if(measurements, [&](const Measurement& m) {
    return m.model_microseconds.empty() && !ages.is_newest(m);
  });
  return measurements;
}

Table::Table(std::span<const Measurement> measurements, const std::string& kernels) {
  const Ages ages(measurements, kernels);
  // In the order of problem, device, family and schedule, which breaks ties.
  std::map<std::tuple<std::string, std::string, std::string, std::string>, ScheduleRecords> all;
  std::map<std::pair<std::string, std::string>, Chosen> choices;
  for (const Measurement& m : measurements) {
    if (!m.model_microseconds.empty()) {
      Chosen one{age_of(m, kernels), m.time, median(m.model_microseconds), m.family, m.schedule};
      const auto [at, is_new] = choices.try_emplace({m.problem, m.device}, one);
      if (!is_new) at->second = std::max(at->second, one);
      continue;
    }
    if (!ages.is_newest(m)) continue;
    ScheduleRecords& records = all[{m.problem, m.device, m.family, m.schedule}];
    records.microseconds.insert(records.microseconds.end(), m.microseconds.begin(),
                                m.microseconds.end());
    records.is_faulty |= !m.error.empty();
  }
  for (const auto& [key, one] : choices)
    choices_[key] = {key.second, one.family, one.schedule, one.model_us};
  for (auto& [key, records] : all) {
    const auto& [problem, device, family, schedule] = key;
    Known& known = known_[{problem, device}];
    if (records.is_faulty)
      known.failed.push_back({device, family, schedule});
    else if (!records.microseconds.empty())
      known.ranked.push_back({device, family, schedule, median(std::move(records.microseconds))});
  }
  for (auto& [key, known] : known_) {
    std::stable_sort(known.ranked.begin(), known.ranked.end(), [](const Entry& a, const Entry& b) {
      return a.microseconds < b.microseconds;
    });
    const auto choice = choices_.find(key);
    if (choice == choices_.end()) continue;
    for (std::size_t i = 0; i < known.ranked.size(); ++i)
      if (names_same(known.ranked[i], choice->second)) known.chosen = i;
  }
  for (const auto& [key, best] : entries()) {
    const Sizeless size = sizeless(key.first);
    sizes_[{size.text, key.second}].emplace(size.elements, best);
  }
}

std::optional<Table::Entry> Table::neighbour(const std::string& device,
                                             const std::string& problem) const {
  constexpr double kNear = 1.2;  // times as many elements
  const Sizeless size = sizeless(problem);
  const auto found = sizes_.find({size.text, device});
  if (found == sizes_.end()) return std::nullopt;
  const auto& sizes = found->second;
  const auto above = sizes.lower_bound(size.elements);
  const bool has_above = above != sizes.end(), has_below = above != sizes.begin();
  const auto below = has_below ? std::prev(above) : above;
  if (has_above && has_below && names_same(above->second, below->second)) return above->second;
  const double up = has_above ? above->first / size.elements : kNear,
               down = has_below ? size.elements / below->first : kNear;
  if (std::min(up, down) >= kNear) return std::nullopt;
  return up < down ? above->second : below->second;
}

std::optional<Table::Entry> Table::find(const std::string& device, const std::string& problem,
                                        const Filter& is_usable) const {
  const auto known = known_.find({problem, device});
  if (known == known_.end()) return std::nullopt;
  const auto& [ranked, chosen, failed] = known->second;
  const auto fastest = std::find_if(ranked.begin(), ranked.end(), is_usable);
  if (fastest == ranked.end()) return std::nullopt;
  Entry best = *fastest;
  const auto choice = ranked.begin() + static_cast<std::ptrdiff_t>(chosen);
  if (choice > fastest && choice->microseconds <= kChosen * best.microseconds && is_usable(*choice))
    std::tie(best.family, best.schedule) = std::tie(choice->family, choice->schedule);
  return best;
}

std::optional<Table::Entry> Table::choice(const std::string& device,
                                          const std::string& problem) const {
  const auto chosen = choices_.find({problem, device});
  if (chosen == choices_.end()) return std::nullopt;
  return chosen->second;
}

bool Table::has_choice(const std::string& begin) const {
  const auto first = choices_.lower_bound({begin, ""});
  return first != choices_.end() && first->first.first.starts_with(begin);
}

bool Table::has_failed(const std::string& device, const std::string& problem,
                       const Entry& entry) const {
  const auto known = known_.find({problem, device});
  if (known == known_.end()) return false;
  const auto& failed = known->second.failed;
  return std::any_of(failed.begin(), failed.end(),
                     [&](const Entry& one) { return names_same(one, entry); });
}

bool Table::has_failures(const std::string& device, const std::string& problem) const {
  const auto known = known_.find({problem, device});
  return known != known_.end() && !known->second.failed.empty();
}

std::vector<Table::Entry> Table::hints(const std::string& device,
                                       const std::string& problem) const {
  std::vector<Entry> entries;
  for (auto at = known_.lower_bound({problem, ""});
       at != known_.end() && at->first.first == problem; ++at) {
    const std::string& other = at->first.second;
    if (other == device) continue;
    if (const auto best = find(other, problem)) entries.push_back(*best);
  }
  return entries;
}

std::map<std::pair<std::string, std::string>, Table::Entry> Table::entries() const {
  std::map<std::pair<std::string, std::string>, Entry> all;
  for (const auto& [key, known] : known_)
    if (const auto best = find(key.second, key.first)) all.emplace(key, *best);
  return all;
}

}  // namespace tensor
