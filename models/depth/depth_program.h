// The depth of pictures behind the shared command line.
#pragma once

#include <string>
#include <vector>

#include "models/common/cli.h"
#include "models/common/vision_model.h"

namespace models::depth {

class DepthProgram : public Program {
 public:
  std::string name() const override { return "depth"; }
  std::string description() const override;
  std::string examples() const override;
  std::vector<std::string> standard_models() const override;
  std::string score_name() const override { return "depth"; }
  Shows shows() const override { return Shows::depth; }
  Color color(std::int64_t id) const override;

  void open(const std::string& checkpoint) override;
  void make(const std::string& model) override;
  void give_features() override { gives_features_ = true; }
  std::vector<tensor::nn::Parameter> parameters() override { return model_.parameters(); }
  Info info() override { return model_.info(title_); }

  std::int64_t steps() const override { return model_.steps; }
  tensor::Shape usual_shape() const override;
  tensor::nn::StateDict run(const tensor::nn::StateDict& inputs,
                            const Observer& observe) const override;
  ImageResult look(const tensor::Tensor& image, bool with_picture,
                   const Forward& forward) const override;

 private:
  /// f32 [H, W], of every pixel of the image.
  tensor::Tensor depth_of(const tensor::Tensor& image, const Forward& forward) const;

  VisionModel model_;
  std::string title_;
  bool gives_features_ = false;
};

/// u8 [H, W]: 255 where it is nearest, 0 where it is farthest.
tensor::Tensor nearness_levels(const tensor::Tensor& depth, bool is_nearness);
/// A picture of them, u8 [H, W, 3], from dark blue, far away, to yellow.
tensor::Tensor draw_depth(const tensor::Tensor& levels);

}  // namespace models::depth
