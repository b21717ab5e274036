// Escaping and joining.
#include "models/common/text.h"

#include <algorithm>
#include <iomanip>

#include "tensor/text.h"

namespace models {

namespace {

/// The length of the UTF-8 sequence at the start of `text`, 0 if it is none.
std::size_t utf8_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  // Overlong forms, surrogates and numbers over U+10FFFF (RFC 3629).
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
      (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F))
    return 0;
  return length;
}

}  // namespace

std::string json_text(std::string_view text) {
  tensor::TextWriter out;
  out << '"';
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (length == 0)
      out << "\xEF\xBF\xBD";
    else if (byte == '"' || byte == '\\')
      out << '\\' << text[0];
    else if (byte == '\n')
      out << "\\n";
    else if (byte < 0x20)
      out << "\\u" << std::hex << std::setw(4) << std::setfill('0') << int{byte};
    else
      out << text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  out << '"';
  return out.str();
}

std::string one_line(std::string_view text) {
  std::string line;
  for (const char letter : text) {
    if (letter == '\n') {
      line += line.ends_with(':') ? "" : ";";
    } else {
      const bool control = static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F;
      const bool doubled = letter == ' ' && line.ends_with(' ');
      if (!doubled) line += control ? '?' : letter;
    }
  }
  return line;
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), tensor::lower_case);
  return text;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

}  // namespace models
