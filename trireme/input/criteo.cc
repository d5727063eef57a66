#include "trireme/input/criteo.h"

#include <ATen/Functions.h>

#include <array>
#include <cmath>
#include <fstream>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/parse_number.h"
#include "trireme/base/refuse.h"
#include "trireme/kernel/philox.h"

namespace trireme::inline v0::input {
namespace {

constexpr std::size_t kColumns = 2 + kCriteoNumbers + kCriteoCategories;

[[noreturn]] void refuse_clicks(const std::string& what) {
  refuse("data", what,
         "data.path takes Criteo's click log as CSV: Id, Label, I1 to I13, C1 to C26.");
}

using Cells = std::array<std::string_view, kColumns>;

class CriteoLine {
 public:
  CriteoLine(const std::string& path, std::size_t number, const std::string& text)
      : path_(path), number_(number) {
    std::string_view rest = text;
    if (rest.ends_with('\r')) rest.remove_suffix(1);
    for (std::size_t column = 0; column < kColumns; ++column) {
      const std::size_t comma = rest.find(',');
      if ((comma == rest.npos) != (column + 1 == kColumns))
        refuse("it has " + std::string(comma == rest.npos ? "fewer" : "more") + " than " +
               std::to_string(kColumns) + " columns");
      cells_[column] = rest.substr(0, comma);
      rest.remove_prefix(comma == rest.npos ? rest.size() : comma + 1);
    }
  }
  std::int64_t label() const {
    if (cells_[1] != "0" && cells_[1] != "1")
      refuse("its label is \"" + std::string(cells_[1]) + "\", not 0 or 1");
    return cells_[1] == "1" ? 1 : 0;
  }
  float number(std::int64_t i) const {
    const std::string_view cell = cells_[static_cast<std::size_t>(2 + i)];
    if (cell.empty()) return 0;
    const auto value = parse_number<std::int64_t>(cell);
    if (!value)
      refuse("I" + std::to_string(i + 1) + " is \"" + std::string(cell) +
             "\", which is not an integer");
    return *value > 0 ? static_cast<float>(std::log1p(static_cast<double>(*value))) : 0;
  }
  std::int64_t category(std::int64_t i, std::int64_t rows) const {
    const std::string_view cell = cells_[static_cast<std::size_t>(2 + kCriteoNumbers + i)];
    const auto hash = kernel::stream_of(cell) % static_cast<std::uint64_t>(rows);
    return i * rows + static_cast<std::int64_t>(hash);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    refuse_clicks(path_ + ", line " + std::to_string(number_) + ": " + what);
  }
  const std::string& path_;
  const std::size_t number_;
  Cells cells_;
};

// Keeps the values where they are: a click log may be larger than the memory for two copies.
template <class T>
at::Tensor tensor_of(std::vector<T> values, at::IntArrayRef sizes) {
  const auto kept = std::make_shared<std::vector<T>>(std::move(values));
  return at::from_blob(
      kept->data(), sizes, [kept](void*) {}, c10::CppTypeToScalarType<T>::value);
}

}  // namespace

Fields read_criteo(const std::string& path, std::int64_t rows) {
  if (rows < 1 || rows > (std::int64_t{1} << 40))
    refuse_clicks("data.rows = " + std::to_string(rows) + ": categories need 1 to 2^40 rows");
  if (path.empty()) refuse_clicks("no click log was given");
  std::ifstream file(path);
  std::string text;
  if (!std::getline(file, text)) refuse_clicks(path + " cannot be read, or is empty");
  if (!text.starts_with("Id,Label,I1,")) refuse_clicks(path + " begins with other column names");
  std::vector<float> numbers;
  std::vector<std::int64_t> categories, targets;
  for (std::size_t number = 2; std::getline(file, text); ++number) {
    const CriteoLine line(path, number, text);
    targets.push_back(line.label());
    for (std::int64_t i = 0; i < kCriteoNumbers; ++i) numbers.push_back(line.number(i));
    for (std::int64_t i = 0; i < kCriteoCategories; ++i)
      categories.push_back(line.category(i, rows));
  }
  if (file.bad()) refuse_clicks(path + " cannot be read to its end");
  const auto count = static_cast<std::int64_t>(targets.size());
  if (count < 2) refuse_clicks(path + " has fewer than two samples");
  return {{"numbers", tensor_of(std::move(numbers), {count, kCriteoNumbers})},
          {"categories", tensor_of(std::move(categories), {count, kCriteoCategories})},
          {"targets", tensor_of(std::move(targets), {count})}};
}

}  // namespace trireme::inline v0::input
