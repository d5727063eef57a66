/* The functions of libtrireme_mpi.so: everything that Trireme needs from an MPI. One build of
 * Trireme runs with any MPI, because only this library is compiled with mpi.h, and Trireme opens
 * it at run time. Both sides share this file (C, no MPI types).
 *
 * Functions must be called by one thread at a time (MPI_THREAD_SERIALIZED). They do not block,
 * except start() and open(), which return when all processes have called them. On failure,
 * functions that return a status return -1, and error() returns the reason. */
#ifndef TRIREME_NET_MPI_ABI_H
#define TRIREME_NET_MPI_ABI_H

#include <stddef.h>

#define TRIREME_MPI_ABI 4
/* The largest message: eight frames, each with a head and 16 KiB. */
#define TRIREME_MPI_BYTES ((size_t)(8 * (24 + (16 << 10))))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TriremeMpiGroup TriremeMpiGroup;

/* Arguments of reduce(). */
enum TriremeMpiType { kTriremeF64, kTriremeF32, kTriremeI64, kTriremeI32, kTriremeU8 };
enum TriremeMpiReduction { kTriremeSum, kTriremeMin, kTriremeMax, kTriremeProduct };

typedef struct TriremeMpi {
  int abi;
  /* "Open MPI v4.1.4, ..." */
  const char* (*library)(void);
  const char* (*error)(void);
  /* Starts MPI unless the program has started it. If it started MPI, it ends MPI when the
   * process exits; after an exit code other than 0 it calls abort(). */
  int (*start)(void);
  /* Makes a group with its own communicator from `communicator` (an MPI_Comm*; null: the world).
   * The group has the first `size` ranks (0: all); others get null. Collective. */
  TriremeMpiGroup* (*open)(const void* communicator, int size);
  int (*rank)(const TriremeMpiGroup* group);
  int (*size)(const TriremeMpiGroup* group);
  /* Begins to gather `bytes` bytes per rank into `all`; gathered() is 1 when done. */
  int (*gather)(TriremeMpiGroup* group, const void* mine, size_t bytes, void* all);
  int (*gathered)(TriremeMpiGroup* group);
  /* Begins an in-place MPI all-reduce of `count` elements; one at a time. reduced() is 1 when
   * done. */
  int (*reduce)(TriremeMpiGroup* group, void* inout, int count, enum TriremeMpiType type,
                enum TriremeMpiReduction reduction);
  int (*reduced)(TriremeMpiGroup* group);
  /* Adds head and body, a frame, to the open message for `peer` and returns 1, or takes nothing and
   * returns 0. An open message is sent by flush(), or before a frame that does not fit. */
  int (*send)(TriremeMpiGroup* group, int peer, const void* head, size_t head_bytes,
              const void* body, size_t body_bytes);
  int (*flush)(TriremeMpiGroup* group);
  /* The number of messages that have not left yet, including open ones. */
  int (*unsent)(TriremeMpiGroup* group);
  /* Returns 1 and the next message from any peer, valid until release(); 0 if there is none. */
  int (*receive)(TriremeMpiGroup* group, int* peer, const void** bytes, size_t* size);
  int (*release)(TriremeMpiGroup* group, int peer);
  /* Closes the group on this rank. `clean`: no peer will send anything more. */
  void (*close)(TriremeMpiGroup* group, int clean);
  /* Ends all processes of the job, including this one, with `code`. Any thread may call it. */
  void (*abort)(int code);
} TriremeMpi;

/* The library's only exported symbol. */
const TriremeMpi* trireme_mpi(void);

#ifdef __cplusplus
}
#endif

#endif
