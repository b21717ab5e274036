// tensor/opencv.h with Debian's OpenCV: the same memory on both sides, whatever the matrix.
#include "tensor/opencv.h"

#include <gtest/gtest.h>

#include "tensor/tensor.h"
#include "tests/error_of.h"

namespace tn = tensor;

namespace {

using tn::check::error_of;

cv::Mat picture() {
  cv::Mat mat(2, 3, CV_8UC3);
  for (int i = 0; i < 18; ++i) mat.data[i] = static_cast<unsigned char>(i);
  return mat;
}

TEST(OpenCv, SharesTheMemoryOfAMatrix) {
  tn::Tensor x;
  {
    cv::Mat mat = picture();
    x = tn::from_mat(mat);
    mat.data[4] = 77;
  }  // the tensor keeps it
  EXPECT_EQ(x.shape(), tn::Shape({2, 3, 3}));
  EXPECT_EQ(x.item<int>(0, 1, 1), 77);
  EXPECT_EQ(x.item<int>(1, 0, 0), 9);
}

TEST(OpenCv, TurnsBgrIntoRgb) {
  const tn::Tensor x = tn::image_from_mat(picture());
  EXPECT_EQ(x.item<int>(0, 0, 0), 2);
  EXPECT_EQ(x.item<int>(1, 2, 2), 15);
}

TEST(OpenCv, TakesPartsOfMatrices) {
  const cv::Mat mat = picture();
  const tn::Tensor x = tn::from_mat(mat(cv::Rect(1, 0, 2, 2)));
  EXPECT_EQ(x.shape(), tn::Shape({2, 2, 3}));
  EXPECT_EQ(x.item<int>(1, 0, 0), 12);
}

TEST(OpenCv, TakesEveryTypeThatBothHave) {
  for (const auto& [depth, dtype] : tn::detail::kMatDepths) {
    cv::Mat mat(3, 4, depth, cv::Scalar(0));
    tn::Tensor x = tn::from_mat(mat);
    EXPECT_EQ(x.type(), (tn::TensorType{{3, 4}, dtype}));
    const cv::Mat back = tn::to_mat(x);
    EXPECT_EQ(back.type(), mat.type());
    EXPECT_EQ(back.data, mat.data);
  }
}

TEST(OpenCv, GivesAMatrixOverATensor) {
  tn::Tensor x = tn::zeros({4, 5, 3}, tn::f32);
  cv::Mat mat = tn::to_mat(x);
  mat.at<cv::Vec3f>(2, 1)[0] = 6;
  EXPECT_EQ(x.item(2, 1, 0), 6);
}

TEST(OpenCv, SaysWhatIsWrong) {
  EXPECT_EQ(error_of([] { tn::from_mat(cv::Mat()); }),
            "from_mat: got an empty cv::Mat: was the picture read?");
  EXPECT_EQ(error_of([] { tn::from_mat(cv::Mat(1, 1, CV_16U)); }),
            "from_mat: got a cv::Mat of depth CV_16U, need 8 bits, signed integers or floating "
            "numbers: convertTo() one of these");
  EXPECT_EQ(error_of([] { tn::image_from_mat(cv::Mat(1, 1, CV_8U)); }),
            "image_from_mat: got u8(1, 1), need u8(rows, columns, 3): cvtColor() it to BGR");
  tn::Tensor rgb = tn::image_from_mat(picture()), cube = tn::zeros({1, 1, 1, 1}),
             whole = tn::zeros({1, 1}, tn::i64), wide = tn::zeros({1, 1, 600});
  EXPECT_EQ(error_of([&] { tn::to_mat(rgb); }),
            "to_mat: got elements that do not lie in a row: copy() the tensor first");
  EXPECT_EQ(error_of([&] { tn::to_mat(cube); }),
            "to_mat: got f32(1, 1, 1, 1), need (rows, columns) or (rows, columns, channels)");
  EXPECT_EQ(error_of([&] { tn::to_mat(whole); }),
            "to_mat: got i64, which OpenCV does not have: astype() another");
  EXPECT_EQ(error_of([&] { tn::to_mat(wide); }), "to_mat: got 600 channels, need 1 to 512");
}

}  // namespace
