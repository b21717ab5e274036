// DETR behind the shared command line.
#pragma once

#include <string>
#include <vector>

#include "models/common/cli.h"
#include "models/detr/detector.h"
#include "models/detr/detr_processing.h"

namespace models::detr {

class DetrProgram : public Program {
 public:
  std::string name() const override { return "detr"; }
  std::string description() const override;
  std::string examples() const override;
  std::vector<std::string> standard_models() const override;
  Shows shows() const override { return Shows::boxes; }
  void add_options(CLI::App& app) override;

  void open(const std::string& checkpoint) override;
  void make(const std::string& model) override;
  void bucket(std::int64_t pixels) override;
  std::vector<tensor::nn::Parameter> parameters() override { return detector_.parameters(); }
  Info info() override;

  std::int64_t steps() const override { return detector_.steps; }
  std::vector<std::string> inputs() const override;
  tensor::Shape usual_shape() const override;
  tensor::nn::StateDict blank(const InputSize& size) const override;
  void check(const tensor::nn::StateDict& inputs) const override;
  tensor::nn::StateDict run(const tensor::nn::StateDict& inputs,
                            const Observer& observe) const override;
  ImageResult look(const tensor::Tensor& image, bool with_picture,
                   const Forward& forward) const override;

 private:
  std::vector<Object> find(const tensor::Tensor& image, const Forward& forward) const;
  BestObjects best(const tensor::Tensor& logits, const tensor::Tensor& boxes) const;

  Detector detector_;
  std::string title_;
  double threshold_ = 0.5;
  std::int64_t encoder_layers_ = -1;  // -1: not given
};

/// A copy of the image with a box, its label and its score for each finding.
tensor::Tensor draw_findings(const tensor::Tensor& image, const std::vector<Finding>& findings);

}  // namespace models::detr
