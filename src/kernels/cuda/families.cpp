// The table of kernel families, the cost function made from it, and the names of kernels.
#include "src/kernels/cuda/families.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>

#include "src/kernels/cuda/device_headers.h"
#include "tensor/error.h"

namespace tensor::cuda {

std::span<const Family> cuda_families() {
  static const std::vector<Family> table = {
      kAttentionSm90, kAttentionMma, kGemmSm90, kGemmMma, kGemmPlain, kConv, kPointwise,
      kCopy,          kImage,        kRow,      kReduce,  kScan,      kHost};
  return table;
}

CostFn cuda_cost(const Machine& machine) {
  return [machine](const Graph& graph, const Group& group) {
    GroupCost best;
    const auto families = cuda_families();
    for (std::size_t i = 0; i < families.size(); ++i)
      if (const auto time = families[i].estimate(graph, group, machine);
          time && *time < best.microseconds)
        best = {static_cast<int>(i), *time};
    return best;
  };
}

namespace {

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }

// Names that end in the number of a value ("v12", "x12_1", "r12") with numbers in the order of
// their appearance instead: so that the blocks of a model share their kernels.
std::string with_numbers_in_order(const std::string& text) {
  constexpr std::string_view kPrefixes[] = {"v", "x", "r", "w", "bias"};
  std::map<std::string, std::string, std::less<>> order;
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    if (is_letter(text[i]) || is_digit(text[i]))
      while (end < text.size() && (is_letter(text[end]) || is_digit(text[end]))) ++end;
    const std::string_view word = std::string_view(text).substr(i, end - i);
    i = end;
    const std::size_t letters =
        static_cast<std::size_t>(std::find_if(word.begin(), word.end(), is_digit) - word.begin());
    const bool is_value = std::find(std::begin(kPrefixes), std::end(kPrefixes),
                                    word.substr(0, letters)) != std::end(kPrefixes) &&
                          letters < word.size() &&
                          std::none_of(word.begin() + static_cast<std::ptrdiff_t>(letters),
                                       word.end(), [](char c) { return !is_digit(c) && c != '_'; });
    if (!is_value) {
      result += word;
      continue;
    }
    const auto [place, is_new] =
        order.try_emplace(std::string(word.substr(letters)), std::to_string(order.size()));
    result += std::string(word.substr(0, letters)) + place->second;
  }
  return result;
}

}  // namespace

void name_kernel(Call& call, const Machine& machine, const std::string& what) {
  call.source.text = with_numbers_in_order(call.source.text);
  constexpr std::string_view kPlaceholder = "KERNEL";
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : call.source.text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", hash);
  std::string architecture = machine.device.architecture();
  std::erase(architecture, '_');
  call.entry = architecture + "_" + what + "__" + digits;
  std::size_t at = call.source.text.find(kPlaceholder);
  if (at == std::string::npos)
    internal_error("name_kernel", "the text of ", call.entry, " has no ", kPlaceholder);
  for (; at != std::string::npos; at = call.source.text.find(kPlaceholder, at))
    call.source.text.replace(at, kPlaceholder.size(), call.entry);
  call.source.name = call.entry + ".cu";
  call.source.headers = device_headers();
  call.source.options = {"-default-device"};
}

}  // namespace tensor::cuda
