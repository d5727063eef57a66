#include "trireme/base/error.h"

#include <cxxabi.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <new>
#include <system_error>
#include <typeinfo>
#include <utility>
#include <vector>

#include "trireme/base/joined.h"

namespace trireme::inline v0 {
namespace {

std::string where(const ErrorContext& context) {
  std::vector<std::string> place;
  if (context.rank >= 0) {
    place.push_back("rank " + std::to_string(context.rank) +
                    (context.host.empty() ? "" : " on host " + context.host));
  } else if (!context.host.empty()) {
    place.push_back("host " + context.host);
  }
  std::string operation = context.operation;
  if (!context.label.empty()) operation += (operation.empty() ? "" : " ") + context.label;
  if (!operation.empty()) place.push_back(std::move(operation));
  if (context.peer >= 0) place.push_back("peer " + std::to_string(context.peer));
  if (context.step >= 0) place.push_back("step " + std::to_string(context.step));
  return joined(place);
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

// True if the system ran out of something; any other code is a fault of the program.
bool says_too_little(const std::error_code& code) {
  constexpr int kCodes[] = {EAGAIN, ENOMEM, EMFILE, ENFILE, ENOSPC, EDQUOT, EFBIG, ENOBUFS};
  return (code.category() == std::generic_category() ||
          code.category() == std::system_category()) &&
         std::find(std::begin(kCodes), std::end(kCodes), code.value()) != std::end(kCodes);
}

ResourceError refused_by_system(const std::system_error& error) {
  return ResourceError(
      std::string("the system refused a resource: ") + error.what(),
      {.advice = "Check the limits on processes, memory, descriptors and files (ulimit -a)."});
}

ErrorReport report_of(const Error& error) {
  return {error.exit_code(), error.what(), error.context()};
}

ErrorReport report_of_foreign(const std::exception& error) {
  const std::string_view text = error.what();
  ErrorReport report;
  report.sentence = "threw " + demangled(typeid(error)) + ": ";
  report.sentence += text.substr(0, text.find("\nException raised from "));  // LibTorch's stack
  return report;
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
    report = report_of(error);
  } catch (const std::bad_alloc&) {
    report = report_of(ResourceError(
        "memory ran out",
        {.advice = "Free some, or raise its limit (ulimit -v, the control group's)."}));
  } catch (const std::system_error& error) {
    report = says_too_little(error.code()) ? report_of(refused_by_system(error))
                                           : report_of_foreign(error);
  } catch (const std::exception& error) {
    report = report_of_foreign(error);
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

std::exception_ptr make_error(ExitCode code, std::string message, ErrorContext context) noexcept {
  try {
    throw_error(code, std::move(message), std::move(context));
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace trireme::inline v0
