#include <cctype>

#include "trireme/base/joined.h"
#include "trireme/cli/help/described.h"

namespace trireme::inline v0::cli {
namespace {

// Escapes text for troff: no line begins with a control character, and hyphens stay hyphens.
std::string in_roff(const std::string& text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    begins = c == '\n';
  }
  return out;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string value_of(const DescribedOption& option) {
  return option.value.empty() ? "" : " \\fI" + in_roff(option.value) + "\\fR";
}

void add_options(const std::vector<DescribedOption>& options, std::string& out) {
  for (const DescribedOption& option : options) {
    out += ".TP\n";
    const bool positional = !option.names.front().starts_with('-');
    const auto bold = [](const std::string& name) { return "\\fB" + in_roff(name) + "\\fR"; };
    out += (positional ? "\\fI" + in_roff(option.names.front()) + "\\fR"
                       : joined(option.names, bold) + value_of(option)) +
           "\n" + in_roff(option.about);
    if (!option.fallback.empty()) out += " (default: " + in_roff(option.fallback) + ")";
    out += "\n";
  }
}

// Adds "Example:\n  trireme train ..." without formatting.
void add_footer(const std::string& footer, std::string& out) {
  if (footer.empty()) return;
  out += ".PP\n.nf\n" + in_roff(footer) + "\n.fi\n";
}

void add_command(const DescribedCommand& command, const std::string& path, std::string& out) {
  std::string line = path + " " + command.name;
  out += ".SS \"" + in_roff(line) + "\"\n" + in_roff(command.about) + ".\n";
  add_options(command.positionals, out);
  add_options(command.options, out);
  add_footer(command.footer, out);
  for (const DescribedCommand& below : command.commands) add_command(below, line, out);
}

constexpr const char* kDate = "2026-11-22";  // of the words below

constexpr const char* kEnd = R"(.SH EXIT STATUS
.TP
.B 0
Everything was done.
.TP
.B 2
The command line or the configuration is wrong; nothing was started.
.TP
.B 20
The program itself failed.
.TP
.B 130, 143
Stopped by Ctrl\-C or SIGTERM, after a checkpoint.
.PP
Every error is a sentence that ends with what to do; all codes stand in docs/errors.md of the
sources.
.SH ENVIRONMENT
.TP
.B TRIREME_TABLE_KEY
Every key of the configuration: TRIREME_TRAIN_STEPS is train.steps. It overrides the value in the
configuration file; \fB\-\-set\fR overrides it.
.TP
.B TRIREME_TUNING
The table of measured collectives that \fBbench comm \-\-tune\fR writes.
.TP
.B NO_COLOR
If set, the progress line has no colour. With TERM=dumb progress is printed as plain lines.
.SH FILES
.TP
.I runs/NAME
A run: config.toml, events.jsonl, loss.svg, tensorboard/ and checkpoint/.
)";

}  // namespace

std::string man_page(const DescribedCommand& program) {
  std::string out = ".\\\" Written by `" + program.name + " completion man`.\n.TH " +
                    upper(program.name) + " 1 \"" + kDate + "\" \"" + program.name +
                    "\" \"User Commands\"\n" + ".SH NAME\n" + program.name + " \\- " +
                    in_roff(program.about) + "\n" + ".SH SYNOPSIS\n.B " + program.name +
                    "\n\\fICOMMAND\\fR [\\fIARGUMENTS\\fR]\n.PP\n.B " + program.name +
                    "\n\\fICOMMAND\\fR \\fB\\-\\-help\\fR\n.SH OPTIONS\n";
  add_options(program.options, out);
  add_footer(program.footer, out);
  out += ".SH COMMANDS\n";
  for (const DescribedCommand& one : program.commands) add_command(one, program.name, out);
  return out + kEnd;
}

}  // namespace trireme::inline v0::cli
