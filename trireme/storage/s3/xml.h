// The XML that S3's answers need: the texts of elements by name, without attributes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::inline v0::storage::s3 {

/// The content of every element `name` in document order, with its inner elements and entities.
std::vector<std::string> elements(std::string_view xml, std::string_view name);
/// The text of the first element `name`, with its entities replaced; empty if there is none.
std::string text_of(std::string_view xml, std::string_view name);
/// `text` with &amp; &lt; &gt; &quot; &apos; and &#N; replaced by their characters.
std::string without_entities(std::string_view text);

}  // namespace trireme::inline v0::storage::s3
