#include "src/tune/table.h"

#include <algorithm>
#include <charconv>
#include <tuple>

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

struct Records {
  std::vector<int> version;
  std::vector<double> microseconds;
  bool is_faulty = false;
  double median = 0;  // 0: cannot be used
};

// The newest is the greatest; of equally old ones that of the fastest model, then the first in
// alphabetical order.
struct Chosen {
  std::vector<int> version;
  std::string time;
  double model_us = 0;
  std::string family, schedule;

  bool operator<(const Chosen& o) const {
    return std::tie(version, time, o.model_us, o.family, o.schedule) <
           std::tie(o.version, o.time, model_us, family, schedule);
  }
};

}  // namespace

double median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  const double upper = *middle;
  if (times.size() % 2 == 1) return upper;
  return (*std::max_element(times.begin(), middle) + upper) / 2;
}

Table::Table(std::span<const Measurement> measurements) {
  // In the order of problem, device, family and schedule, which breaks ties.
  std::map<std::tuple<std::string, std::string, std::string, std::string>, Records> all;
  std::map<std::pair<std::string, std::string>, Chosen> choices;
  for (const Measurement& m : measurements) {
    const std::vector<int> version = parts_of(m.version);
    if (!m.model_microseconds.empty()) {
      Chosen one{version, m.time, median(m.model_microseconds), m.family, m.schedule};
      const auto [at, is_new] = choices.try_emplace({m.problem, m.device}, one);
      if (!is_new) at->second = std::max(at->second, one);
      continue;
    }
    Records& records = all[{m.problem, m.device, m.family, m.schedule}];
    if (version < records.version) continue;
    if (version > records.version) records = {version, {}, false};
    records.microseconds.insert(records.microseconds.end(), m.microseconds.begin(),
                                m.microseconds.end());
    records.is_faulty |= !m.error.empty();
  }
  for (auto& [key, records] : all) {
    const auto& [problem, device, family, schedule] = key;
    if (records.is_faulty || records.microseconds.empty()) continue;
    const double time = records.median = median(std::move(records.microseconds));
    const auto [entry, is_new] = best_.try_emplace({problem, device});
    if (is_new || time < entry->second.microseconds)
      entry->second = {device, family, schedule, time};
  }
  for (const auto& [key, chosen] : choices) {
    const auto& [problem, device] = key;
    const auto known = all.find({problem, device, chosen.family, chosen.schedule});
    if (known == all.end() || known->second.median == 0) continue;
    Entry& entry = best_.at(key);
    if (known->second.median <= kChosen * entry.microseconds)
      std::tie(entry.family, entry.schedule) = std::tie(chosen.family, chosen.schedule);
  }
}

const Table::Entry* Table::find(const std::string& device, const std::string& problem) const {
  const auto found = best_.find({problem, device});
  return found == best_.end() ? nullptr : &found->second;
}

std::vector<Table::Entry> Table::hints(const std::string& device,
                                       const std::string& problem) const {
  std::vector<Entry> entries;
  for (auto at = best_.lower_bound({problem, ""}); at != best_.end() && at->first.first == problem;
       ++at)
    if (at->second.device != device) entries.push_back(at->second);
  return entries;
}

}  // namespace tensor
