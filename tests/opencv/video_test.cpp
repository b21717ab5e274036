// examples/video on a video of our own pictures: what it finds in every frame, and that it draws
// it.
#include <gtest/gtest.h>
#include <stdio.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <opencv2/imgproc.hpp>
#include <opencv2/videoio.hpp>

#include "models/service/model.h"
#include "tensor/opencv.h"
#include "tensor/tensor.h"
#include "tests/temporary_folder.h"

namespace tn = tensor;

namespace {

using models::Finding;
using models::service::Model;

const std::string kSource = TENSOR_TEST_DATA "/../../";
const std::string kScenes = kSource + "models/detr/pretrained/scenes";

/// The three scenes, a second each.
void write_scenes(const std::string& path) {
  cv::VideoWriter video;
  for (int i = 1; i <= 3; ++i) {
    const std::string name = "examples/images/scenes/scene-" + std::to_string(i) + ".png";
    tn::Tensor bgr =
        tn::load_image(kSource + name)(tn::ellipsis, tn::slice(tn::none, tn::none, -1)).copy();
    const cv::Mat frame = tn::to_mat(bgr);
    if (i == 1) video.open(path, cv::VideoWriter::fourcc('M', 'J', 'P', 'G'), 1, frame.size());
    video.write(frame);
  }
  ASSERT_TRUE(video.isOpened());
}

std::vector<cv::Mat> frames_of(const std::string& path) {
  std::vector<cv::Mat> frames;
  cv::VideoCapture video(path);
  for (cv::Mat frame; video.read(frame);) frames.push_back(frame.clone());
  return frames;
}

/// What the program prints, errors too, and its exit status.
std::pair<std::string, int> run_video(const std::string& arguments) {
  FILE* const pipe = popen((std::string(TENSOR_VIDEO) + " " + arguments + " 2>&1").c_str(), "r");
  std::string text;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) text += static_cast<char>(c);
  return {text, WEXITSTATUS(pclose(pipe))};
}

/// How many elements along the sides of a box differ by more than JPEG alone makes of them.
int painted(const cv::Mat& before, const cv::Mat& after, const std::array<double, 4>& box) {
  cv::Mat sides(before.size(), CV_8U, cv::Scalar(0)), difference;
  const auto at = [](double x) { return static_cast<int>(std::lround(x)); };
  cv::rectangle(sides, {at(box[0]), at(box[1])}, {at(box[2]), at(box[3])}, cv::Scalar(255));
  cv::absdiff(before, after, difference);
  int count = 0;
  for (int y = 0; y < sides.rows; ++y)
    for (int x = 0; x < sides.cols; ++x)
      if (sides.at<std::uint8_t>(y, x)) {
        const auto& channels = difference.at<cv::Vec3b>(y, x);
        count += std::max({channels[0], channels[1], channels[2]}) > 48;
      }
  return count;
}

TEST(Video, DrawsWhatItFindsInEveryFrame) {
  const tn::check::TemporaryFolder folder;
  const std::string in = folder / "in.avi", out = folder / "out.avi";
  write_scenes(in);
  const auto [text, status] = run_video(kScenes + " " + in + " " + out);
  ASSERT_EQ(status, 0) << text;

  const std::vector<cv::Mat> before = frames_of(in), after = frames_of(out);
  ASSERT_EQ(before.size(), 3U);
  ASSERT_EQ(after.size(), 3U);
  const auto model = Model::open(kScenes);
  std::string expected;
  for (std::size_t i = 0; i < before.size(); ++i) {
    expected += "frame " + std::to_string(i + 1) + ":";
    const std::vector<Finding> findings =
        model->look(tn::image_from_mat(before[i])).result.findings;
    EXPECT_GE(findings.size(), 3U);
    for (const Finding& finding : findings) {
      expected += " " + finding.label;
      EXPECT_GT(painted(before[i], after[i], *finding.box), 20) << finding.label;
    }
    expected += "\n";
  }
  EXPECT_EQ(text.substr(0, expected.size()), expected);
  EXPECT_NE(text.find(" a second\n"), std::string::npos) << text;
}

TEST(Video, SaysWhatIsWrong) {
  const std::string digits = kSource + "models/vit/pretrained/digits";
  EXPECT_EQ(run_video("").first,
            "usage: video CHECKPOINT VIDEO|CAMERA [OUT.avi] [--device cuda]\n");
  const auto [text, status] = run_video(digits + " in.avi");
  EXPECT_EQ(text, "video: " + digits + ": is no checkpoint of DETR, which alone gives boxes\n");
  EXPECT_EQ(status, 1);
  EXPECT_NE(
      run_video(kScenes + " nowhere.avi out.avi")
          .first.find("video: nowhere.avi: is no video that OpenCV can read, and no camera\n"),
      std::string::npos);
}

}  // namespace
