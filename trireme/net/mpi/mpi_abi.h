/* The functions of libtrireme_mpi.so: all that Trireme asks of an MPI, so that one build of Trireme
 * runs under any. The library alone is compiled against mpi.h and opened at run time; the two sides
 * share this file (C, no MPI types).
 *
 * Functions are called by one thread at a time (MPI_THREAD_SERIALIZED) and do not block, but for
 * start() and open(), which return when all processes have called them. Those that may fail return
 * -1 and leave a sentence in error(). */
#ifndef TRIREME_NET_MPI_ABI_H
#define TRIREME_NET_MPI_ABI_H

#include <stddef.h>

#define TRIREME_MPI_ABI 3
/* The largest message: a frame's head and a chunk. */
#define TRIREME_MPI_BYTES ((size_t)(24 + (128 << 10)))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TriremeMpiGroup TriremeMpiGroup;

/* Of reduce(). */
enum TriremeMpiType { kTriremeF64, kTriremeF32, kTriremeI64, kTriremeI32, kTriremeU8 };
enum TriremeMpiReduction { kTriremeSum, kTriremeMin, kTriremeMax, kTriremeProduct };

typedef struct TriremeMpi {
  int abi;
  /* "Open MPI v4.1.4, ..." */
  const char* (*library)(void);
  const char* (*error)(void);
  /* Starts MPI unless the program has; what it started it ends when the process exits: with a
   * code other than 0, by abort(). */
  int (*start)(void);
  /* A group of its own over `communicator` (an MPI_Comm*; null: the world), of its first `size`
   * ranks (0: all; null for the others). Collective over the communicator. */
  TriremeMpiGroup* (*open)(const void* communicator, int size);
  int (*rank)(const TriremeMpiGroup* group);
  int (*size)(const TriremeMpiGroup* group);
  /* Begins to gather `bytes` of every rank at `all`; gathered() is 1 when they are there. */
  int (*gather)(TriremeMpiGroup* group, const void* mine, size_t bytes, void* all);
  int (*gathered)(TriremeMpiGroup* group);
  /* Begins MPI's all-reduce of `count` elements in place, one at a time; reduced() is 1 when it has
   * ended. */
  int (*reduce)(TriremeMpiGroup* group, void* inout, int count, enum TriremeMpiType type,
                enum TriremeMpiReduction reduction);
  int (*reduced)(TriremeMpiGroup* group);
  /* Sends head and body as one message: 1; or takes nothing: 0. */
  int (*send)(TriremeMpiGroup* group, int peer, const void* head, size_t head_bytes,
              const void* body, size_t body_bytes);
  /* How many messages are still on their way out. */
  int (*unsent)(TriremeMpiGroup* group);
  /* The next message of some peer: 1; it stays until release(). */
  int (*receive)(TriremeMpiGroup* group, int* peer, const void** bytes, size_t* size);
  int (*release)(TriremeMpiGroup* group, int peer);
  /* Ends the group here; `clean`: nothing more comes from any peer. */
  void (*close)(TriremeMpiGroup* group, int clean);
  /* Ends all processes of the job, this one with them, with `code`; may be called by any thread. */
  void (*abort)(int code);
} TriremeMpi;

/* The one symbol that the library exports. */
const TriremeMpi* trireme_mpi(void);

#ifdef __cplusplus
}
#endif

#endif
