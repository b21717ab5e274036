// CostModel: which schedules are fast, learned from those that were measured (GTCO, section IV-E):
// gradient-boosted trees (XGBoost) over features. Without XGBoost in the build nothing is learned
// and the analytic model ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/tune/log.h"

namespace tensor {

/// A measured schedule to learn from.
struct Sample {
  std::string task;             // times are compared with others of the same task only
  std::vector<float> features;  // the last is the analytic model's: level 0's time over this one's
  double microseconds = 0;      // infinity where the kernel failed
};

/// Samples of all measurements that have features; the task is the problem on its device, with the
/// same kernels, and of a schedule measured several times the median counts.
std::vector<Sample> samples_of(std::span<const Measurement> measurements);

class CostModel {
 public:
  /// Whether this build can learn.
  static bool can_learn();

  explicit CostModel(std::uint64_t seed = 0);
  CostModel(CostModel&&) noexcept;
  CostModel& operator=(CostModel&&) noexcept;
  ~CostModel();

  /// Learns from these samples and nothing else but the model that was loaded, if any: the same
  /// samples in the same order, seed and loaded model make the same model. Those with another
  /// number of features than the last sample are left out, and nothing is learned of too few.
  ///
  /// A sample's label y is its throughput relative to the best of its task (0 of a failed one). The
  /// loss is the squared error weighted by y (equation 4): what is slow need not be known well.
  void train(std::span<const Sample> samples);
  bool is_trained() const;  ///< or loaded

  /// A score for each vector of features, more for the faster: about the throughput relative to the
  /// best of the task. By the analytic model alone (the last feature) as long as nothing has been
  /// learned, or of another number of features.
  std::vector<double> predict(std::span<const std::vector<float>> features) const;

  /// What has been learned, as the bytes of a file. UserError, with `name`, when nothing has.
  std::string to_bytes(const std::string& name) const;
  /// A model to start from, called `name` in messages. UserError when it is damaged, of another
  /// format, has learned from features that are not this version's (kFeaturesVersion), or
  /// from others than `columns` of them; and in a build that cannot learn.
  static CostModel from_bytes(std::string_view bytes, const std::string& name,
                              std::uint64_t seed = 0, std::size_t columns = feature_columns());
  /// Writes to_bytes() to a file. UserError also on a full disk.
  void save(const std::string& path) const;
  /// from_bytes() of a file. UserError also when there is none.
  static CostModel load(const std::string& path, std::uint64_t seed = 0,
                        std::size_t columns = feature_columns());

  /// What tune() starts from: for a device of which the library has a model (src/tune/shipped) that
  /// one, else one that has learned nothing; so in a build that cannot learn.
  static CostModel shipped(const std::string& device, std::uint64_t seed = 0);
  /// How many features Search gives of a schedule: feature_names() and the analytic model's.
  static std::size_t feature_columns();

 private:
  struct Trees;
  std::unique_ptr<Trees> trees_;
};

/// The cost models that are part of the library: "nvidia-h200.model" and the bytes of the file.
std::span<const std::pair<std::string_view, std::string_view>> shipped_models();

/// Spearman's rank correlation, from -1 to 1, equal values sharing their ranks; 0 where either
/// side is constant.
double rank_correlation(std::span<const double> one, std::span<const double> other);
/// Which share of the `count` fastest schedules is among the `count` of the highest score.
double top_recall(std::span<const double> scores, std::span<const double> microseconds,
                  std::size_t count = 8);

}  // namespace tensor
