/* libtrireme_mpi.so: see mpi_abi.h. Compiled by mpicc alone (`make mpi MPICC=...`). */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mpi_abi.h"

enum { kIn = 4, kOut = 8, kTag = 1 };

typedef struct {
  char* bytes;
  MPI_Request request;
} Slot;

typedef struct {
  Slot in[kIn], out[kOut];
  unsigned next_in;         /* slot of the next message */
  unsigned first_out, outs; /* ring of messages that have not left yet */
  size_t open;              /* bytes of the open message, in the slot after them */
} Peer;

struct TriremeMpiGroup {
  MPI_Comm communicator;
  int rank, size;
  Peer* peers;
  MPI_Request gathering, reducing;
  int turn; /* the peer to check first */
};

static char error_text[MPI_MAX_ERROR_STRING + 256];

static const char* error(void) { return error_text; }

/* Returns 0 on success; otherwise stores the error text and returns -1. */
static int check(int code, const char* call) {
  if (code == MPI_SUCCESS) return 0;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  snprintf(error_text, sizeof error_text, "%s failed: %s", call, text);
  return -1;
}

static const char* library(void) {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  if (text[0] == '\0') MPI_Get_library_version(text, &length);
  text[strcspn(text, "\n")] = '\0';
  for (char* tab = text; (tab = strchr(tab, '\t')) != NULL;) *tab = ' ';
  return text;
}

static void abort_all(int code) {
  int running = 0, over = 0;
  MPI_Initialized(&running);
  MPI_Finalized(&over);
  /* MPICH's mpirun discards pending output when the abort reaches it; so wait a moment. */
  const struct timespec moment = {0, 100000000};
  if (running && !over) nanosleep(&moment, NULL);
  if (running && !over) MPI_Abort(MPI_COMM_WORLD, code);
}

static void finish(int status, void* unused) {
  int over = 0;
  (void)unused;
  MPI_Finalized(&over);
  /* After a failure the other ranks may never call MPI_Finalize, and without MPI_Abort some
   * versions of mpirun return another exit code. */
  if (status != 0) abort_all(status);
  if (!over && status == 0) MPI_Finalize();
}

static int start(void) {
  int running = 0, over = 0, level = MPI_THREAD_SINGLE;
  MPI_Finalized(&over);
  if (over) {
    snprintf(error_text, sizeof error_text, "MPI was finalised before");
    return -1;
  }
  MPI_Initialized(&running);
  if (running) {
    MPI_Query_thread(&level);
  } else {
    if (check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread")) {
      return -1;
    }
    on_exit(finish, NULL);
  }
  if (level >= MPI_THREAD_SERIALIZED) return 0;
  snprintf(error_text, sizeof error_text,
           "MPI runs with a thread level below MPI_THREAD_SERIALIZED (%s)",
           running ? "ask for it in MPI_Init_thread" : "this MPI gives no more");
  return -1;
}

static int post(TriremeMpiGroup* group, int from, Slot* slot) {
  return check(MPI_Irecv(slot->bytes, (int)TRIREME_MPI_BYTES, MPI_BYTE, from, kTag,
                         group->communicator, &slot->request),
               "MPI_Irecv");
}

static int set_up(TriremeMpiGroup* group) {
  MPI_Comm_set_errhandler(group->communicator, MPI_ERRORS_RETURN);
  MPI_Comm_rank(group->communicator, &group->rank);
  MPI_Comm_size(group->communicator, &group->size);
  group->gathering = group->reducing = MPI_REQUEST_NULL;
  group->peers = calloc((size_t)group->size, sizeof *group->peers);
  if (group->peers == NULL) return -1;
  for (int peer = 0; peer < group->size; ++peer) {
    for (int i = 0; i < kIn; ++i) group->peers[peer].in[i].request = MPI_REQUEST_NULL;
    for (int i = 0; i < kOut; ++i) group->peers[peer].out[i].request = MPI_REQUEST_NULL;
    for (int i = 0; i < kIn && peer != group->rank; ++i) {
      Slot* const slot = &group->peers[peer].in[i];
      slot->bytes = malloc(TRIREME_MPI_BYTES);
      if (slot->bytes == NULL || post(group, peer, slot) != 0) return -1;
    }
  }
  return 0;
}

static TriremeMpiGroup* open_group(const void* communicator, int size) {
  const MPI_Comm parent = communicator ? *(const MPI_Comm*)communicator : MPI_COMM_WORLD;
  TriremeMpiGroup* const group = calloc(1, sizeof *group);
  int rank = 0;
  snprintf(error_text, sizeof error_text, "out of memory");
  if (group == NULL) return NULL;
  MPI_Comm_rank(parent, &rank);
  const int color = size == 0 || rank < size ? 0 : MPI_UNDEFINED;
  const int code = size == 0 ? MPI_Comm_dup(parent, &group->communicator)
                             : MPI_Comm_split(parent, color, rank, &group->communicator);
  if (check(code, "MPI_Comm_dup") != 0 || group->communicator == MPI_COMM_NULL) {
    free(group);
    return NULL;
  }
  return set_up(group) == 0 ? group : NULL;
}

static int rank_of(const TriremeMpiGroup* group) { return group->rank; }
static int size_of(const TriremeMpiGroup* group) { return group->size; }

static int gather(TriremeMpiGroup* group, const void* mine, size_t bytes, void* all) {
  return check(MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                              group->communicator, &group->gathering),
               "MPI_Iallgather");
}

/* 1 if the request of `call` has completed. */
static int test(MPI_Request* request, const char* call) {
  int done = 0;
  return check(MPI_Test(request, &done, MPI_STATUS_IGNORE), call) ? -1 : done;
}

static int gathered(TriremeMpiGroup* group) { return test(&group->gathering, "MPI_Iallgather"); }

static int reduce(TriremeMpiGroup* group, void* inout, int count, enum TriremeMpiType type,
                  enum TriremeMpiReduction reduction) {
  const MPI_Datatype types[] = {MPI_DOUBLE, MPI_FLOAT, MPI_INT64_T, MPI_INT32_T, MPI_UINT8_T};
  const MPI_Op operations[] = {MPI_SUM, MPI_MIN, MPI_MAX, MPI_PROD};
  return check(MPI_Iallreduce(MPI_IN_PLACE, inout, count, types[type], operations[reduction],
                              group->communicator, &group->reducing),
               "MPI_Iallreduce");
}

static int reduced(TriremeMpiGroup* group) { return test(&group->reducing, "MPI_Iallreduce"); }

/* Frees the slots of messages that have left, in order. */
static int reap(Peer* peer) {
  while (peer->outs > 0) {
    const int done = test(&peer->out[peer->first_out].request, "MPI_Isend");
    if (done < 0) return -1;
    if (!done) break;
    peer->first_out = (peer->first_out + 1) % kOut;
    --peer->outs;
  }
  return 0;
}

static Slot* open_slot(Peer* peer) { return &peer->out[(peer->first_out + peer->outs) % kOut]; }

static int send_open(TriremeMpiGroup* group, int to) {
  Peer* const peer = &group->peers[to];
  Slot* const slot = open_slot(peer);
  if (peer->open == 0) return 0;
  if (check(MPI_Isend(slot->bytes, (int)peer->open, MPI_BYTE, to, kTag, group->communicator,
                      &slot->request),
            "MPI_Isend")) {
    return -1;
  }
  peer->open = 0;
  ++peer->outs;
  return 0;
}

static int send_frame(TriremeMpiGroup* group, int to, const void* head, size_t head_bytes,
                      const void* body, size_t body_bytes) {
  Peer* const peer = &group->peers[to];
  const size_t end = peer->open + head_bytes + body_bytes;
  if (end > TRIREME_MPI_BYTES && send_open(group, to) != 0) return -1;
  if (peer->outs == kOut && reap(peer) != 0) return -1;
  if (peer->outs == kOut) return 0;
  Slot* const slot = open_slot(peer);
  if (slot->bytes == NULL && (slot->bytes = malloc(TRIREME_MPI_BYTES)) == NULL) return 0;
  memcpy(slot->bytes + peer->open, head, head_bytes);
  peer->open += head_bytes;
  if (body_bytes > 0) memcpy(slot->bytes + peer->open, body, body_bytes);
  peer->open += body_bytes;
  return 1;
}

static int flush(TriremeMpiGroup* group) {
  for (int peer = 0; peer < group->size; ++peer)
    if (send_open(group, peer) != 0) return -1;
  return 0;
}

static int unsent(TriremeMpiGroup* group) {
  int count = 0;
  for (int peer = 0; peer < group->size; ++peer) {
    if (reap(&group->peers[peer]) != 0) return -1;
    count += (int)group->peers[peer].outs + (group->peers[peer].open > 0);
  }
  return count;
}

static int receive(TriremeMpiGroup* group, int* from, const void** bytes, size_t* size) {
  for (int i = 0; i < group->size; ++i) {
    const int peer = (group->turn + i) % group->size;
    Peer* const one = &group->peers[peer];
    Slot* const slot = &one->in[one->next_in];
    int done = 0, count = 0;
    MPI_Status status;
    if (peer == group->rank) continue;
    if (check(MPI_Test(&slot->request, &done, &status), "MPI_Irecv")) return -1;
    if (!done) continue;
    MPI_Get_count(&status, MPI_BYTE, &count);
    *from = peer;
    *bytes = slot->bytes;
    *size = (size_t)count;
    group->turn = (peer + 1) % group->size;
    return 1;
  }
  return 0;
}

static int release_message(TriremeMpiGroup* group, int from) {
  Peer* const peer = &group->peers[from];
  Slot* const slot = &peer->in[peer->next_in];
  peer->next_in = (peer->next_in + 1) % kIn;
  return post(group, from, slot);
}

/* A request that has not ended still uses its buffer, so the buffer is not freed. */
static void drop(Slot* slot, int cancel) {
  int done = 1;
  if (slot->request != MPI_REQUEST_NULL) {
    if (cancel) MPI_Cancel(&slot->request);
    MPI_Test(&slot->request, &done, MPI_STATUS_IGNORE);
    if (!done && cancel) done = MPI_Wait(&slot->request, MPI_STATUS_IGNORE) == MPI_SUCCESS;
  }
  if (done) free(slot->bytes);
}

static void close_group(TriremeMpiGroup* group, int clean) {
  int over = 0;
  MPI_Finalized(&over);
  if (over || !clean) return; /* messages may still arrive in its buffers */
  for (int peer = 0; peer < group->size; ++peer) {
    for (int i = 0; i < kIn; ++i) drop(&group->peers[peer].in[i], 1);
    for (int i = 0; i < kOut; ++i) drop(&group->peers[peer].out[i], 0);
  }
  MPI_Comm_free(&group->communicator);
  free(group->peers);
  free(group);
}

__attribute__((visibility("default"))) const TriremeMpi* trireme_mpi(void) {
  static const TriremeMpi functions = {
      .abi = TRIREME_MPI_ABI,
      .library = library,
      .error = error,
      .start = start,
      .open = open_group,
      .rank = rank_of,
      .size = size_of,
      .gather = gather,
      .gathered = gathered,
      .reduce = reduce,
      .reduced = reduced,
      .send = send_frame,
      .flush = flush,
      .unsent = unsent,
      .receive = receive,
      .release = release_message,
      .close = close_group,
      .abort = abort_all,
  };
  return &functions;
}
