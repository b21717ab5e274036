// CostModel by XGBoost's C interface, or without it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "src/tune/cost_model.h"
#include "src/tune/cost_model_file.h"
#include "tensor/error.h"

#ifdef TENSOR_WITH_XGBOOST
#include <xgboost/c_api.h>
#endif

namespace tensor {

#ifdef TENSOR_WITH_XGBOOST
namespace {

// How trees grow, rounds of which take 0.1 to 0.5 s for a few hundred to a few thousand samples.
struct Growth {
  int rounds;
  // Sums of weights, which are below 1, are what XGBoost calls weights of children.
  const char *rate, *depth, *shrinkage, *least_weights;
};
// Upon a loaded model they only correct: a few samples must not unlearn what many have taught. What
// it had learned from, learned again beside the new samples, led to as many trials in ten times the
// time.
constexpr Growth kAnew = {60, "0.15", "6", "0.5", "0.3"}, kUpon = {40, "0.05", "4", "2", "1"};
constexpr std::size_t kLeastSamples = 8;
// A sample's weight at least, so that something is learned of failures as well.
constexpr float kLeastWeight = 0.1f;

void check(int status) {
  if (status != 0) fail("cost model", XGBGetLastError());
}

// Rows of features, as XGBoost wants them.
class Matrix {
 public:
  Matrix(std::span<const float> values, std::size_t rows, std::size_t columns) {
    check(XGDMatrixCreateFromMat(values.data(), rows, columns,
                                 std::numeric_limits<float>::quiet_NaN(), &handle_));
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  ~Matrix() { XGDMatrixFree(handle_); }

  void set(const char* field, const std::vector<float>& values) {
    check(XGDMatrixSetFloatInfo(handle_, field, values.data(), values.size()));
  }
  DMatrixHandle get() const { return handle_; }

 private:
  DMatrixHandle handle_ = nullptr;
};

}  // namespace

class Booster {
 public:
  // With a matrix it is for matrices of as many columns, else load() has to follow.
  explicit Booster(std::uint64_t seed, const Matrix* matrix = nullptr) {
    const DMatrixHandle handle = matrix ? matrix->get() : nullptr;
    check(XGBoosterCreate(&handle, matrix ? 1 : 0, &handle_));
    set("seed", std::to_string(seed % 0x7fffffff));
  }
  Booster(const Booster&) = delete;
  Booster& operator=(const Booster&) = delete;
  ~Booster() { XGBoosterFree(handle_); }

  void set(const char* name, const std::string& value) {
    check(XGBoosterSetParam(handle_, name, value.c_str()));
  }
  BoosterHandle get() const { return handle_; }

  void load(std::string_view bytes) {
    check(XGBoosterLoadModelFromBuffer(handle_, bytes.data(), bytes.size()));
  }
  std::string save() const {
    bst_ulong size = 0;
    const char* bytes = nullptr;
    check(XGBoosterSaveModelToBuffer(handle_, R"({"format":"ubj"})", &size, &bytes));
    return {bytes, static_cast<std::size_t>(size)};
  }
  std::size_t columns() const {
    bst_ulong columns = 0;
    check(XGBoosterGetNumFeature(handle_, &columns));
    return static_cast<std::size_t>(columns);
  }

 private:
  BoosterHandle handle_ = nullptr;
};

namespace {

std::vector<float> flat(std::span<const std::vector<float>> rows, std::size_t columns) {
  std::vector<float> values;
  for (const std::vector<float>& row : rows) {
    if (row.size() != columns) internal_error("cost model", "rows of different lengths");
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

// The analytic model's throughput, from which trees go on.
std::vector<float> margins(std::span<const std::vector<float>> rows) {
  std::vector<float> result;
  for (const std::vector<float>& row : rows) result.push_back(row.back());
  return result;
}

}  // namespace

struct CostModel::Trees {
  std::uint64_t seed = 0;
  std::string start;  // the loaded model
  std::string model;  // what has been learned; the loaded model before that
  std::unique_ptr<Booster> booster;
  std::size_t columns = 0;

  void use(std::string bytes) {
    auto next = std::make_unique<Booster>(seed);
    next->set("nthread", "1");
    next->load(bytes);
    columns = next->columns();
    booster = std::move(next);
    model = std::move(bytes);
  }
};

bool CostModel::can_learn() { return true; }

void CostModel::train(std::span<const Sample> samples) {
  std::map<std::string_view, double> best;
  std::vector<const Sample*> kept;
  for (const Sample& s : samples) {
    if (s.features.empty() || s.features.size() != samples.back().features.size()) continue;
    kept.push_back(&s);
    const auto [at, is_new] = best.try_emplace(s.task, s.microseconds);
    at->second = std::min(at->second, s.microseconds);
  }
  if (kept.size() < kLeastSamples) return;
  std::vector<std::vector<float>> rows;
  std::vector<float> labels, weights;
  for (const Sample* s : kept) {
    rows.push_back(s->features);
    const bool has_failed = std::isinf(s->microseconds);
    labels.push_back(has_failed ? 0 : static_cast<float>(best[s->task] / s->microseconds));
    weights.push_back(std::max(labels.back(), kLeastWeight));
  }
  const std::size_t columns = rows.front().size();
  Matrix matrix(flat(rows, columns), rows.size(), columns);
  matrix.set("label", labels);
  matrix.set("weight", weights);
  matrix.set("base_margin", margins(rows));
  Booster booster(trees_->seed);
  bool continues = false;
  if (!trees_->start.empty()) {
    booster.load(trees_->start);
    continues = booster.columns() == columns;
  }
  Booster fresh(trees_->seed, &matrix);
  Booster& learner = continues ? booster : fresh;
  const Growth& growth = continues ? kUpon : kAnew;
  for (const auto& [name, value] : {std::pair("objective", "reg:squarederror"),
                                    {"base_score", "0"},
                                    {"nthread", "1"},
                                    {"tree_method", "exact"},
                                    {"max_depth", growth.depth},
                                    {"eta", growth.rate},
                                    {"min_child_weight", growth.least_weights},
                                    {"lambda", growth.shrinkage},
                                    {"colsample_bynode", "0.7"},
                                    {"verbosity", "0"}})
    learner.set(name, value);
  for (int i = 0; i < growth.rounds; ++i)
    check(XGBoosterUpdateOneIter(learner.get(), i, matrix.get()));
  trees_->use(learner.save());
}

bool CostModel::is_trained() const { return trees_->booster != nullptr; }

std::vector<double> CostModel::predict(std::span<const std::vector<float>> features) const {
  if (features.empty()) return {};
  const std::vector<float> analytic = margins(features);
  const std::size_t columns = features.front().size();
  if (!is_trained() || trees_->columns != columns) return {analytic.begin(), analytic.end()};
  Matrix matrix(flat(features, columns), features.size(), columns);
  matrix.set("base_margin", analytic);
  bst_ulong dimensions = 0;
  const bst_ulong* shape = nullptr;
  const float* scores = nullptr;
  check(XGBoosterPredictFromDMatrix(
      trees_->booster->get(), matrix.get(),
      R"({"type":0,"training":false,"iteration_begin":0,"iteration_end":0,"strict_shape":false})",
      &shape, &dimensions, &scores));
  return {scores, scores + features.size()};
}

std::string CostModel::to_bytes(const std::string& name) const {
  if (!is_trained()) fail(name, "cannot be written: the cost model has learned nothing yet");
  return with_header(trees_->model, trees_->columns);
}

CostModel CostModel::from_bytes(std::string_view bytes, const std::string& name, std::uint64_t seed,
                                std::size_t columns) {
  CostModel model(seed);
  model.trees_->use(std::string(without_header(bytes, name, columns)));
  model.trees_->start = model.trees_->model;
  return model;
}

#else

struct CostModel::Trees {
  std::uint64_t seed = 0;
};

bool CostModel::can_learn() { return false; }
void CostModel::train(std::span<const Sample>) {}
bool CostModel::is_trained() const { return false; }

std::vector<double> CostModel::predict(std::span<const std::vector<float>> features) const {
  std::vector<double> scores;
  for (const std::vector<float>& row : features) scores.push_back(row.back());
  return scores;
}

std::string CostModel::to_bytes(const std::string& name) const {
  fail(name, "cannot be written: this build learns no cost model, need one with XGBoost");
}

CostModel CostModel::from_bytes(std::string_view, const std::string& name, std::uint64_t,
                                std::size_t) {
  fail(name, "cannot be used: this build has no cost model, need one with XGBoost");
}

#endif

CostModel::CostModel(std::uint64_t seed) : trees_(std::make_unique<Trees>()) {
  trees_->seed = seed;
}
CostModel::CostModel(CostModel&&) noexcept = default;
CostModel& CostModel::operator=(CostModel&&) noexcept = default;
CostModel::~CostModel() = default;

}  // namespace tensor
