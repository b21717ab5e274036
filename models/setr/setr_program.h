// SETR behind the shared command line.
#pragma once

#include <string>
#include <vector>

#include "models/common/cli.h"
#include "models/common/draw.h"
#include "models/common/vision_model.h"
#include "models/setr/setr_inference.h"

namespace models::setr {

class SetrProgram : public Program {
 public:
  std::string name() const override { return "setr"; }
  std::string description() const override;
  std::string examples() const override;
  std::vector<std::string> standard_models() const override;
  std::string score_name() const override { return "share"; }
  Shows shows() const override { return Shows::classes; }
  Color color(std::int64_t id) const override {
    return model_.colors.at(static_cast<std::size_t>(id));
  }
  std::string labels_path() const override { return labels_path_; }
  void add_options(CLI::App& app) override;

  void open(const std::string& checkpoint) override;
  void make(const std::string& model) override;
  std::vector<tensor::nn::Parameter> parameters() override;
  Info info() override;

  std::int64_t steps() const override { return model_.steps; }
  tensor::Shape usual_shape() const override;
  tensor::nn::StateDict blank(const InputSize& size) const override;
  tensor::nn::StateDict run(const tensor::nn::StateDict& inputs,
                            const Observer& observe) const override;
  std::int64_t passes(const tensor::Tensor& image) const override;
  ImageResult look(const tensor::Tensor& image, bool with_picture,
                   const Forward& forward) const override;

 private:
  LoadSettings load_settings() const;
  void check_options() const;
  /// The size of the logits of an image of this size.
  Size map_of(Size size) const;
  /// Where the network sees the image resized to `size`, on a map of its logits.
  std::vector<Window> windows(Size size) const;
  /// The class of every pixel.
  tensor::Tensor labels(const tensor::Tensor& image, const Forward& forward) const;

  VisionModel model_;
  std::string title_;
  std::string scale_;  // "LONG,SHORT", or empty: the default
  bool whole_ = false, slide_ = false;
  std::string labels_path_;
};

/// Half the grey image, half the colours of its classes, and a legend of those in `findings`.
tensor::Tensor draw_classes(const tensor::Tensor& image, const tensor::Tensor& labels,
                            const std::vector<Finding>& findings, const std::vector<Color>& colors);

}  // namespace models::setr
