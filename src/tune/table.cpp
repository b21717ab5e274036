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
  for (const Measurement& m : measurements) {
    Records& records = all[{m.problem, m.device, m.family, m.schedule}];
    const std::vector<int> version = parts_of(m.version);
    if (version < records.version) continue;
    if (version > records.version) records = {version, {}, false};
    records.microseconds.insert(records.microseconds.end(), m.microseconds.begin(),
                                m.microseconds.end());
    records.is_faulty |= !m.error.empty();
  }
  for (auto& [key, records] : all) {
    if (records.is_faulty) continue;
    const auto& [problem, device, family, schedule] = key;
    const double time = median(std::move(records.microseconds));
    const auto [entry, is_new] = best_.try_emplace({problem, device});
    if (is_new || time < entry->second.microseconds)
      entry->second = {device, family, schedule, time};
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
