// The algorithms that ship, one file each; docs/algorithms.md states their steps and bytes.
#pragma once

#include "trireme/comm/rounds/program.h"

namespace trireme::inline v0::comm {

void ring(Algorithm& a);                     // all_reduce: reduce-scatter, then all-gather
void naive(Algorithm& a);                    // all_reduce: every buffer to every rank
void all_pairs(Algorithm& a);                // all_reduce: slices to their owners and back
void central(Algorithm& a);                  // all_reduce: to one root and back
void tree(Algorithm& a);                     // all_reduce: up and down one tree
void double_tree(Algorithm& a);              // all_reduce: two trees, half of the buffer each
void halving_doubling(Algorithm& a);         // all_reduce: exchanges at distance 1, 2, 4, ...
void hierarchical(Algorithm& a);             // all_reduce: within hosts, across, back
void tree_reduce(Algorithm& a);              // reduce to a.root
void pairwise_reduce(Algorithm& a);          // reduce to a.root: reduce-scatter, then gather
void central_gather(Algorithm& a);           // gather(v) to a.root
void central_scatter(Algorithm& a);          // scatter(v) from a.root
void pairwise_all_to_all(Algorithm& a);      // all_to_all(v) in n-1 rounds
void naive_all_to_all(Algorithm& a);         // all_to_all(v) in one round
void binomial_broadcast(Algorithm& a);       // broadcast from a.root
void chain_broadcast(Algorithm& a);          // broadcast from a.root in pieces, rank to rank
void pairwise_all_gather(Algorithm& a);      // all_gather(v): every piece to every rank
void pairwise_reduce_scatter(Algorithm& a);  // reduce_scatter: all pieces r to rank r

}  // namespace trireme::inline v0::comm
