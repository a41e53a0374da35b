// Splitting, trimming and nearest spellings.
#include "route/spelling.h"

#include <algorithm>
#include <array>

namespace flagos {
namespace {

// Length of the UTF-8 sequence at the start of `text`, or 0 if there is none: overlong forms, surrogates and numbers
// above U+10FFFF are none (RFC 3629).
size_t utf8_length(std::string_view text) {
  const auto byte = [text](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto continues = [&byte](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  if (byte(0) < 0x80U) {
    return 1;
  }
  if (byte(0) >= 0xC2U && byte(0) <= 0xDFU) {
    return continues(1) ? 2 : 0;
  }
  if (byte(0) >= 0xE0U && byte(0) <= 0xEFU) {
    const bool overlong = byte(0) == 0xE0U && byte(1) < 0xA0U;
    const bool surrogate = byte(0) == 0xEDU && byte(1) > 0x9FU;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (byte(0) >= 0xF0U && byte(0) <= 0xF4U) {
    const bool overlong = byte(0) == 0xF0U && byte(1) < 0x90U;
    const bool above = byte(0) == 0xF4U && byte(1) > 0x8FU;
    return continues(1) && continues(2) && continues(3) && !overlong && !above ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n\f\v";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string> split_words(std::string_view text, char separator) {
  std::vector<std::string> words;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(separator, start), text.size());
    if (const std::string_view word = trim(text.substr(start, end - start)); !word.empty()) {
      words.emplace_back(word);
    }
    start = end + 1;
  }
  return words;
}

std::string in_quotes(std::string_view text) {
  constexpr std::array<char, 16> kDigits = {'0', '1', '2', '3', '4', '5', '6', '7',
                                            '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'};
  std::string result = "'";
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text.front());
    const size_t length = first < 0x20U || first == 0x7FU ? 0 : utf8_length(text);
    if (length == 0) {
      result += {'\\', 'x', kDigits[first >> 4U], kDigits[first & 0xFU]};
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return result + "'";
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({change, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& names) {
  size_t best = std::max<size_t>(2, word.size() / 3) + 1;
  const std::string* nearest = nullptr;
  for (const std::string& name : names) {
    const size_t longer = std::max(name.size(), word.size());
    if (longer - std::min(name.size(), word.size()) >= best) {
      continue;  // the difference in length alone is too far
    }
    if (const size_t distance = edit_distance(word, name); distance < best) {
      best = distance;
      nearest = &name;
    }
  }
  return nearest == nullptr ? "" : "; did you mean '" + *nearest + "'?";
}

}  // namespace flagos
