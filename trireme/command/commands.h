// commands(argc, argv): `show`, `verify` and what else of the command `trireme` needs no LibTorch,
// for a program of one's own, which then knows the algorithms that it registered.
//
//     int main(int argc, char** argv) { return trireme::commands(argc, argv); }
#pragma once

namespace trireme {
inline namespace v0 {

/// Runs the command that argv names; returns the exit code (0 done, 2 wrong usage).
int commands(int argc, char** argv);

}  // namespace v0
}  // namespace trireme
