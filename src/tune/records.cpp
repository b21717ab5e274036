#include "src/tune/records.h"

#include <ctime>
#include <tuple>
#include <utility>

#include "src/tune/problem.h"
#include "tensor/version.h"

namespace tensor {
namespace {

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace

Records::Records(std::vector<Measurement> known, const detail::Target& target, Log& log)
    : known_(newest(std::move(known), target.kernels)), target_(target), log_(log) {}

bool Records::is_own(const Measurement& m) const {
  return m.device == target_.tuned_as && is_current(m, target_.kernels);
}

std::shared_ptr<const Table> Records::table() const {
  return known_.empty() ? nullptr : std::make_shared<const Table>(known_, target_.kernels);
}

Measurement Records::stamped(Measurement m) const {
  std::tie(m.family, m.schedule) = Problem::parted(m.schedule);
  m.device = target_.tuned_as;
  m.driver = target_.driver;
  m.version = version(), m.kernels = target_.kernels;
  m.time = now();
  return m;
}

void Records::write(Measurement measurement) { log_.append(stamped(std::move(measurement))); }

void Records::learn(std::vector<Measurement> measurements) {
  for (Measurement& m : measurements) known_.push_back(stamped(std::move(m)));
}

void Records::choose(Measurement choice) {
  choice = stamped(std::move(choice));
  log_.append(choice);
  known_.push_back(std::move(choice));
}

}  // namespace tensor
