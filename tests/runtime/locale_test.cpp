// What reports and traces say does not depend on the program's locale.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "src/trace/trace.h"
#include "tensor/compile.h"
#include "tensor/json.h"
#include "tensor/tensor.h"
#include "tensor/text.h"
#include "tests/locale.h"
#include "tests/temporary_folder.h"

namespace tn = tensor;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

Tensors product(const Tensors& in) { return {tn::gelu(tn::matmul(in[0], in[1])) * 1234.5}; }

std::string graph_text() {
  std::ostringstream text;  // with the program's locale
  text << tn::trace(product, {{{1024, 64}, tn::f32}, {{64, 2000}, tn::f32}});
  return text.str();
}

TEST(Locale, GraphsReportsAndTraces) {
  const std::string usual = graph_text();
  const tn::check::TemporaryFolder folder;
  const tn::check::ForeignLocale foreign;
  EXPECT_EQ(graph_text(), usual);
  const Tensors inputs = {tn::ones({1024, 64}), tn::ones({64, 2000})};
  const tn::Executable run = tn::compile(product, inputs);
  run.profile(folder / "trace.json", inputs);
  const tn::Json events = tn::Json::load(folder / "trace.json")["traceEvents"];
  ASSERT_GE(events.size(), 1u);
  EXPECT_GT(events[0]["dur"].number(), 0);
  std::ostringstream report;
  report << 1234.5 << '\n';  // the stream keeps its locale
  run.report(report, inputs, 1);
  report << 1234.5;
  EXPECT_TRUE(report.str().starts_with("1.234,5\n"));
  EXPECT_TRUE(report.str().ends_with("1.234,5"));
  const std::string text = report.str().substr(8, report.str().size() - 15);
  for (std::size_t i = 1; i + 1 < text.size(); ++i)
    if (text[i] == ',') {
      EXPECT_FALSE(tn::is_digit(text[i - 1]) && tn::is_digit(text[i + 1])) << text;
    }
}

}  // namespace
