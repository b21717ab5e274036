// The command line of the programs, main() of those about logs and tuning, and texts as JSON has
// them.
#pragma once

#include <algorithm>
#include <charconv>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/error.h"
#include "tensor/tensor.h"

namespace bench {

/// Prints `help` if that is asked for; otherwise runs the program, and tells of an error.
template <class Run>
int run_main(int argc, char** argv, const char* help, const Run& run) {
  if (argc == 2 && argv[1] == std::string_view("--help")) {
    std::cout << help;
    return 0;
  }
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}

/// What takes an option's value.
using OptionSetters = std::map<std::string, std::function<void(const std::string& value)>>;

/// Gives each option of the command line its value: "--name=" has what follows, "--name" stands
/// alone. Returned are the other arguments. UserError with `help` on an option that is not known.
inline std::vector<std::string> take_options(int argc, char** argv, const OptionSetters& known,
                                             const char* help) {
  std::vector<std::string> others;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const std::string name = text.substr(0, text.find('=') + 1);
    const auto option = known.find(name.empty() ? text : name);
    if (option != known.end())
      option->second(text.substr(name.size()));
    else if (text.starts_with("--"))
      tensor::fail("the command line", "got ", text, "\n", help);
    else
      others.push_back(text);
  }
  return others;
}

/// UserError where the text of an option is no number of at least `least`.
template <class T>
T number(std::string_view option, std::string_view text, T least = 0) {
  T value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end || value < least)
    tensor::fail(option, "got \"", text, "\", need a number of ", least, " or more");
  return value;
}

/// The text as JSON has it, a space for what does not print.
inline std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + '"';
}

/// The largest difference of two results, relative to the largest number of each.
inline double difference(const std::vector<tensor::Tensor>& a,
                         const std::vector<tensor::Tensor>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto x = a[i].astype(tensor::f64), y = b[i].astype(tensor::f64);
    worst = std::max(worst, tensor::max(tensor::abs(x - y)).item<double>() /
                                tensor::max(tensor::abs(y)).item<double>());
  }
  return worst;
}

}  // namespace bench
