// Running snippets of the documentation and comparing what they print.
#include "tests/docs/snippets.h"
#include "tests/temporary_folder.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>

namespace docs {

namespace fs = std::filesystem;

namespace {

/// The current folder while it lives: an empty one, but for models/ and examples/.
class Workplace {
 public:
  Workplace() : before_(fs::current_path()) {
    for (const char* link : {"models", "examples"})
      fs::create_symlink(fs::path(DOCS_SOURCE) / link, folder_ / link);
    fs::current_path(folder_.path());
  }
  ~Workplace() { fs::current_path(before_); }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

 private:
  const fs::path before_;
  const tensor::check::TemporaryFolder folder_;
};

}  // namespace

Output printed(const std::function<void()>& code) {
  const Workplace workplace;
  std::ostringstream out;
  std::streambuf* before = std::cout.rdbuf(out.rdbuf());
  Output result;
  try {
    code();
  } catch (const std::exception& error) {
    out << "threw: " << error.what() << "\n";
    result.good = false;
  }
  std::cout.rdbuf(before);
  result.text = out.str();
  return result;
}

Output shell(const std::string& commands) {
  const Workplace workplace;
  std::ofstream("commands.sh") << commands;
  Output result;
  FILE* pipe =
      popen("PATH=\"" DOCS_PROGRAMS ":$PATH\" bash -euo pipefail commands.sh 2>&1 </dev/null", "r");
  if (!pipe) return {"cannot start a shell", false};
  char bytes[4096];
  for (std::size_t n; (n = fread(bytes, 1, sizeof bytes, pipe)) > 0;) result.text.append(bytes, n);
  const int status = pclose(pipe);
  result.good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return result;
}

void expect_success(const Output& got) { EXPECT_TRUE(got.good) << got.text; }

void expect_equal(const Output& got, const std::string& want) {
  expect_success(got);
  EXPECT_EQ(got.text, want);
}

void expect_like(const Output& got, const std::string& want) {
  expect_success(got);
  const auto shape = [](const std::string& text) {
    const std::string numbers = std::regex_replace(text, std::regex("[0-9][0-9.,]*"), "0");
    const std::string rules = std::regex_replace(numbers, std::regex("-{2,}"), "--");
    return std::regex_replace(rules, std::regex(" +"), " ");
  };
  EXPECT_EQ(shape(got.text), shape(want)) << "which is, with its numbers:\n" << got.text;
}

void expect_quoted(const std::string& file, const std::string& lines) {
  std::ifstream in(fs::path(DOCS_SOURCE) / file);
  ASSERT_TRUE(in) << file;
  std::ostringstream text;
  text << "\n" << in.rdbuf();
  EXPECT_NE(text.str().find("\n" + lines), std::string::npos) << "not in " << file << ":\n"
                                                              << lines;
}

namespace {

/// The sources, in which literals that follow each other are one.
const std::string& all_literals() {
  static const std::string all = [] {
    std::ostringstream files;
    for (const char* folder : {"src", "models", "tests"})
      for (const auto& entry : fs::recursive_directory_iterator(fs::path(DOCS_SOURCE) / folder))
        if (const auto kind = entry.path().extension(); kind == ".cpp" || kind == ".txt")
          files << std::ifstream(entry.path()).rdbuf();
    const std::string text = files.str();
    std::string joined;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const std::size_t next = text[i] == '"' ? text.find_first_not_of(" \n", i + 1) : i;
      if (next > i + 1 && next != std::string::npos && text[next] == '"')
        i = next;
      else
        joined += text[i];
    }
    return joined;
  }();
  return all;
}

/// Literals escape their quotes.
bool is_literal(std::string text) {
  for (std::size_t i = 0; (i = text.find('"', i)) != std::string::npos; i += 2)
    text.insert(i, 1, '\\');
  return all_literals().find(text) != std::string::npos;
}

}  // namespace

void expect_thrown(const std::string& text) {
  const std::string ellipsis = "…";
  for (std::size_t begin = 0, end; begin < text.size(); begin = end + ellipsis.size()) {
    end = std::min(text.find(ellipsis, begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    // What stands before the first colon is an argument of its own.
    const std::size_t colon = part.find(": ");
    EXPECT_TRUE(is_literal(part) ||
                (colon != std::string::npos && is_literal(part.substr(colon + 2))))
        << "no source has \"" << part << '"';
  }
}

std::string on_one_line(const std::string& text) {
  std::string line;
  for (const char letter : text) {
    const bool space = letter == ' ' || letter == '\n';
    if (space && (line.empty() || line.back() == ' ' || line.back() == '[')) continue;
    if (letter == ']' && line.ends_with(' ')) line.pop_back();
    line += space ? ' ' : letter;
  }
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

}  // namespace docs
