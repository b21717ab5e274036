// docs/onnx.md lists the operators of the table, with the opsets from which they are known.
#include "src/onnx/operators.h"
#include "tests/headers.h"
#include "tests/io/io_testing.h"

namespace tensor::testing {
namespace {

TEST(OnnxTable, TheDocumentationListsIt) {
  const std::string page = read_bytes(TENSOR_TEST_DATA "/../../docs/onnx.md");
  std::map<std::string, std::int64_t> listed, known;
  std::istringstream lines(page.substr(page.find("## Operators")));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ") || line.starts_with("| |")) continue;
    const std::size_t first = line.find('|', 2) + 1;
    std::istringstream entries(line.substr(first, line.rfind('|') - first));
    for (std::string entry; std::getline(entries, entry, ',');) {
      std::istringstream words(entry);
      std::string name;
      std::int64_t since = 1;
      words >> name >> since;
      listed.emplace(name, words ? since : 1);
    }
  }
  for (const auto& [name, row] : onnx::operator_table()) known.emplace(name, row->since);
  EXPECT_EQ(listed, known);
}

}  // namespace
}  // namespace tensor::testing
