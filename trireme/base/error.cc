#include "trireme/base/error.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <typeinfo>
#include <utility>

namespace trireme {
inline namespace v0 {
namespace {

void append(std::string& place, const std::string& part) {
  if (part.empty()) return;
  if (!place.empty()) place += ", ";
  place += part;
}

std::string where(const ErrorContext& context) {
  std::string place;
  if (context.rank >= 0) {
    append(place, "rank " + std::to_string(context.rank) +
                      (context.host.empty() ? "" : " on host " + context.host));
  } else if (!context.host.empty()) {
    append(place, "host " + context.host);
  }
  std::string operation = context.operation;
  if (!context.label.empty()) operation += (operation.empty() ? "" : " ") + context.label;
  append(place, operation);
  if (context.peer >= 0) append(place, "peer " + std::to_string(context.peer));
  if (context.step >= 0) append(place, "step " + std::to_string(context.step));
  return place;
}

std::string sentence(const std::string& message, const ErrorContext& context) {
  std::string text = message;
  while (!text.empty() && text.back() == '.') text.pop_back();
  if (const std::string place = where(context); !place.empty()) text += " (" + place + ")";
  text += '.';
  if (!context.advice.empty()) text += ' ' + context.advice;
  return text;
}

std::string demangled(const std::type_info& type) {
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : type.name();
}

}  // namespace

Error::Error(ExitCode code, std::string message, ErrorContext context)
    : code_(code),
      message_(std::move(message)),
      context_(std::move(context)),
      what_(sentence(message_, context_)) {}

ErrorReport describe(const std::exception_ptr& pointer) noexcept {
  ErrorReport report;
  try {
    if (!pointer) {
      report.sentence = "ended without an exception.";
      return report;
    }
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    report = {error.exit_code(), error.what(), error.context()};
  } catch (const std::exception& error) {
    report.sentence = "threw " + demangled(typeid(error)) + ": " + error.what();
  } catch (...) {
    report.sentence = "threw an exception that is not a std::exception";
  }
  return report;
}

void throw_error(ExitCode code, std::string message, ErrorContext context) {
  switch (code) {
    case ExitCode::Usage:
      throw ConfigError(std::move(message), std::move(context));
    case ExitCode::Checkpoint:
      throw CheckpointError(std::move(message), std::move(context));
    case ExitCode::Mismatch:
      throw MismatchError(std::move(message), std::move(context));
    case ExitCode::Timeout:
      throw TimeoutError(std::move(message), std::move(context));
    case ExitCode::StepRefused:
      throw StepRefused(std::move(message), std::move(context));
    case ExitCode::UnevenInput:
      throw UnevenInput(std::move(message), std::move(context));
    default:
      break;
  }
  const int number = static_cast<int>(code);
  if (number >= 10 && number < 20) throw RefusedError(code, std::move(message), std::move(context));
  if (number == 130 || number == 143) {
    throw StopRequested(code, std::move(message), std::move(context));
  }
  if (number >= 160 && number < 170) throw PeerLost(code, std::move(message), std::move(context));
  if (number >= 170 && number < 180) {
    throw ResourceError(code, std::move(message), std::move(context));
  }
  throw Error(code, std::move(message), std::move(context));
}

}  // namespace v0
}  // namespace trireme
