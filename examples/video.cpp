// Finds objects in a video or a camera's pictures, and draws their boxes.
//   video CHECKPOINT VIDEO|CAMERA [OUT.avi] [--device cuda]
// CAMERA is a number, 0 the first. Without OUT.avi the frames are shown until a key is pressed.
#include <models/common/draw.h>
#include <models/service/model.h>
#include <tensor/opencv.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <iostream>
#include <opencv2/highgui.hpp>
#include <opencv2/imgproc.hpp>
#include <opencv2/videoio.hpp>
#include <string>
#include <vector>

using models::Finding;
using models::service::Model;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

cv::VideoCapture open_video(const std::string& name) {
  const bool is_camera =
      !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
  cv::VideoCapture video;
  if (is_camera ? !video.open(std::stoi(name)) : !video.open(name))
    tensor::fail(name, "is no video that OpenCV can read, and no camera");
  return video;
}

void draw(cv::Mat& frame, const Finding& finding) {
  const auto [red, green, blue] = models::palette(finding.id);
  const cv::Scalar color(blue, green, red);
  const auto [left, top, right, bottom] = finding.box.value();
  const cv::Point corner(static_cast<int>(std::lround(left)), static_cast<int>(std::lround(top)));
  const cv::Point other(static_cast<int>(std::lround(right)),
                        static_cast<int>(std::lround(bottom)));
  cv::rectangle(frame, corner, other, color, 2);
  cv::putText(frame, finding.label, corner + cv::Point(4, 18), cv::FONT_HERSHEY_SIMPLEX, 0.6, color,
              2);
}

// Where annotated frames go: a file, or a window if it has no name.
class Screen {
 public:
  Screen(std::string file, double rate) : file_(std::move(file)), rate_(rate > 0 ? rate : 25) {}

  // Whether there is to be another.
  bool show(const cv::Mat& frame) {
    if (file_.empty()) return cv::imshow("video", frame), cv::waitKey(1) < 0;
    if (!writer_.isOpened() &&
        !writer_.open(file_, cv::VideoWriter::fourcc('M', 'J', 'P', 'G'), rate_, frame.size()))
      tensor::fail(file_, "cannot be written");
    return writer_.write(frame), true;
  }

 private:
  std::string file_;
  double rate_;
  cv::VideoWriter writer_;
};

void run(Model& model, cv::VideoCapture& video, Screen& screen) {
  int frames = 0;
  double first = 0;
  auto start = Clock::now();
  for (cv::Mat frame; video.read(frame);) {
    const models::service::Seen seen = model.look(tensor::image_from_mat(frame));
    if (seen.error) std::rethrow_exception(seen.error);
    std::cout << "frame " << ++frames << ":";
    for (const Finding& finding : seen.result.findings) {
      std::cout << " " << finding.label;
      draw(frame, finding);
    }
    std::cout << std::endl;
    if (!screen.show(frame)) break;
    if (frames == 1) {  // for which the model is compiled
      first = seconds_since(start);
      start = Clock::now();
    }
  }
  if (frames == 0) tensor::fail("the video", "has no frames");
  std::cout << "the first frame took " << first << " s";
  if (frames > 1) std::cout << ", then " << (frames - 1) / seconds_since(start) << " a second";
  std::cout << "\n";
}

int main(int argc, char** argv) try {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  models::service::OpenOptions options;
  if (const auto device = std::ranges::find(arguments, "--device"); arguments.end() - device >= 2) {
    options.set("device", device[1]);
    arguments.erase(device, device + 2);
  }
  if (arguments.size() < 2 || arguments.size() > 3) {
    std::cerr << "usage: video CHECKPOINT VIDEO|CAMERA [OUT.avi] [--device cuda]\n";
    return 1;
  }
  const auto model = Model::open(arguments[0], options);
  if (!model->program() || model->program()->shows() != models::Shows::boxes)
    tensor::fail(arguments[0], "is no checkpoint of DETR, which alone gives boxes");
  cv::VideoCapture video = open_video(arguments[1]);
  Screen screen(arguments.size() == 3 ? arguments[2] : "", video.get(cv::CAP_PROP_FPS));
  run(*model, video, screen);
} catch (const std::exception& error) {
  std::cerr << "video: " << error.what() << "\n";
  return 1;
}
