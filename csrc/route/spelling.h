// Small text functions of the messages: splitting lists and finding the name that was probably meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flagos {

/// The parts of `text` between `separator`, without surrounding blanks; empty parts are left out.
std::vector<std::string> split_words(std::string_view text, char separator);

/// `text` without blanks at both ends.
std::string_view trim(std::string_view text);

/// `text` between single quotes, fit for a message whatever a file held: control characters and bytes that are not
/// UTF-8 are written \xNN.
std::string in_quotes(std::string_view text);

/// Number of single-character edits (insert, delete, replace, swap of neighbours) from `a` to `b`.
size_t edit_distance(std::string_view a, std::string_view b);

/// "; did you mean 'X'?" for the nearest of `names` if it is near enough to be a slip of the finger, else "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& names);

}  // namespace flagos
