// What programs print beside images: counts, reports, progress; and the texts and numbers of
// options.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "models/common/info.h"
#include "models/common/progress.h"
#include "models/common/report.h"
#include "models/common/text.h"
#include "models/common/validators.h"
#include "tensor/json.h"

namespace {

TEST(Information, CountsMultiplyAdds) {
  EXPECT_EQ(models::linear_macs(2, 3, 5), 30);
  EXPECT_EQ(models::conv2d_macs({8, 3, 2, 2}, 4, 5), 8 * 3 * 2 * 2 * 4 * 5);
  EXPECT_EQ(models::attention_macs(3, 5, 8), 2 * 3 * 5 * 8);
}

TEST(Report, SaysWhenNothingWasFound) {
  std::ostringstream out;
  models::print_findings(out, {});
  EXPECT_EQ(out.str(), "  nothing found\n");
}

TEST(Report, TellsTheWorstAndTheFirstWrongGroup) {
  const auto printed = [](const std::vector<tensor::GroupCheck>& checks, bool good) {
    std::ostringstream out;
    EXPECT_EQ(models::print_checks(out, checks), good);
    return out.str();
  };
  const tensor::GroupCheck fine{"matmul, add", "layers.0.fc1", "fast", 1e-6, 2e-5},
      near{"softmax", "", "rows", 9e-7, 1e-6}, bad{"gelu", "layers.1.fc2", "odd", 0.5, 1e-6},
      worse{"exp", "head", "odder", 2, 1e-6};
  EXPECT_EQ(printed({fine, near}, true),
            "verify: 2 groups against the reference operators, 0 out of bound\n"
            "  worst  error 9.0e-07  bound 1.0e-06  softmax [rows]\n");
  EXPECT_EQ(printed({fine, bad, worse}, false),
            "verify: 3 groups against the reference operators, 2 out of bound\n"
            "  worst  error 2.0e+00  bound 1.0e-06  exp @ head [odder]\n"
            "  first  error 5.0e-01  bound 1.0e-06  gelu @ layers.1.fc2 [odd]\n");
  EXPECT_EQ(printed({}, true),
            "verify: 0 groups against the reference operators, 0 out of bound\n");
}

TEST(Report, PrintsNumbersThatReadBack) {
  std::ostringstream out;
  const float score = 0.1f;
  models::print_findings_json(out, {{"a", 0, score, {}}, {"b", 1, std::nan(""), {}}}, "score");
  const tensor::Json parsed = tensor::Json::parse(out.str(), "out");
  EXPECT_EQ(static_cast<float>(parsed[0]["score"].number()), score);
  EXPECT_FALSE(parsed[1].has("score"));  // null
}

TEST(Validators, TakeNumbersAlone) {
  const models::Validator count = models::whole_number(1, 8), share = models::number(0, 1);
  for (const char* good : {"1", "8", "08"}) EXPECT_EQ(count(good), "") << good;
  for (const std::string bad :
       {"", "0", "9", "-1", "+1", "1.0", "1 ", "0x1", "99999999999999999999"})
    EXPECT_EQ(count(bad), "got \"" + bad + "\", need a whole number from 1 to 8");
  EXPECT_EQ(models::whole_number(2)("9223372036854775807"), "");
  EXPECT_EQ(models::whole_number(2)("1"), "got \"1\", need a whole number of at least 2");
  for (const char* good : {"0", "1", "0.5", ".5", "5e-1"}) EXPECT_EQ(share(good), "") << good;
  for (const std::string bad : {"", "1.1", "-0.1", "nan", "inf", "half", "0.5x"})
    EXPECT_EQ(share(bad), "got \"" + bad + "\", need a number from 0 to 1");
}

TEST(Text, EscapesForJson) {
  const std::string texts[] = {"plain",
                               "quote \" and \\",
                               "line\nbreak",
                               "tab\t",
                               "\x01\x1f",
                               "caf\xC3\xA9",
                               "\xE2\x82\xAC \xF0\x9F\x98\x80"};
  for (const std::string& text : texts)
    EXPECT_EQ(tensor::Json::parse(models::json_text(text), "text").text(), text);
  const std::string broken[] = {"\xFF",
                                "\xC3",
                                "\xC0\x80",
                                "\xE0\x80\x80",
                                "\xED\xA0\x80",
                                "\xF0\x80\x80\x80",
                                "\xF4\x90\x80\x80",
                                "\xF5\x80\x80\x80"};
  for (const std::string& text : broken)
    EXPECT_EQ(tensor::Json::parse(models::json_text(text), "text").text().substr(0, 3),
              "\xEF\xBF\xBD");
}

TEST(Text, FitsOnALine) {
  EXPECT_EQ(models::one_line("2 problems:\n  a\n  b"), "2 problems: a; b");
  EXPECT_EQ(models::one_line("a\x1b[31mb\x7f"), "a?[31mb?");
}

TEST(Progress, DrawsABarThatFits) {
  using models::progress_line;
  EXPECT_EQ(progress_line("layers", 6, 12, 5, 60, false),
            "layers [#################..................] 6/12  5 s left");
  EXPECT_EQ(progress_line("layers", 12, 12, 5, 40, false),
            "layers [########################] 12/12");
  EXPECT_EQ(progress_line("layers", 1, 100, 5, 24, false), "layers 1/100");
  EXPECT_EQ(progress_line("layers", 1, 100, 5, 60, false),
            "layers [...........................] 1/100  8 min 15 s left");
  EXPECT_EQ(progress_line("x", 5000, 10000, 1, 30, false), "x [#####.....] 50 %  1 s left");
  EXPECT_EQ(progress_line("x", 1, 2, 1, 30, true), "x [\x1b[32m#####\x1b[0m......] 1/2  1 s left");
  for (int columns = 1; columns < 100; ++columns)
    for (int done = 0; done <= 7; ++done)
      EXPECT_LT(progress_line("images", done, 7, 3, columns, false).size(), std::size_t(columns));
}

TEST(Progress, IsSilentWhereNobodyLooks) {
  testing::internal::CaptureStderr();
  {
    models::Progress progress("images", 3, false);  // the test's stderr is no terminal
    for (int i = 0; i < 5; ++i) progress.step();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
