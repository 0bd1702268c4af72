/* A stand-in for the client library of VELOC 1.8, for tests: the same C
 * interface, the same files, and the same faults. Written after VELOC's public
 * header and after how the library was seen to behave; it has none of VELOC's
 * code.
 *
 * Files: SCRATCH and PERSISTENT/<name>-<id>-<version>.dat: u64 number of
 * regions; for each one, packed, i32 id and u64 size; then the bytes of the
 * regions, by id. A checkpoint is written to scratch in the call, and copied to
 * persistent by a thread.
 *
 * The faults: it never fsyncs and never renames; a restart takes any bytes of
 * the right size, scratch first; a bad configuration ends the process;
 * protecting an id again fails and takes the new memory all the same; after the
 * first checkpoint under a name, memory that is protected without that name is
 * ignored; no memory is copied, so it must stay as it is during the call.
 *
 * VELOC_STUB_TEAR=N: the copy of version N stops half way, as when VELOC's
 * server is killed, and nobody is told. */

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { kSuccess = 0, kFailure = -1, kNames = 16, kRegions = 16, kText = 1024 };

typedef struct {
  int id;
  void* data;
  uint64_t nbytes;
} Region;

typedef struct {
  char name[128]; /* "" for the regions that are protected without a name */
  int n;
  Region regions[kRegions];
} Set;

static struct {
  int open;
  unsigned id;
  char scratch[kText / 2], persistent[kText / 2];
  int sets;
  Set set[kNames];
  char name[128]; /* of the checkpoint or restart that has begun */
  int version;
  pthread_t copier;
  int copying, failed;
} client;

static Set* FindSet(const char* name, int make) {
  for (int i = 0; i < client.sets; ++i) {
    if (strcmp(client.set[i].name, name) == 0) return &client.set[i];
  }
  if (!make || client.sets == kNames) return NULL;
  Set* made = &client.set[client.sets++];
  memset(made, 0, sizeof *made);
  snprintf(made->name, sizeof made->name, "%s", name);
  return made;
}

static int Protect(Set* set, int id, void* data, uint64_t nbytes) {
  if (set == NULL) return kFailure;
  int at = 0;
  while (at < set->n && set->regions[at].id < id) ++at;
  const int again = at < set->n && set->regions[at].id == id;
  if (!again) {
    if (set->n == kRegions) return kFailure;
    memmove(&set->regions[at + 1], &set->regions[at], sizeof(Region) * (size_t)(set->n - at));
    ++set->n;
  }
  set->regions[at] = (Region){id, data, nbytes};
  return again ? kFailure : kSuccess;
}

static int Unprotect(Set* set, int id) {
  for (int i = 0; set != NULL && i < set->n; ++i) {
    if (set->regions[i].id != id) continue;
    memmove(&set->regions[i], &set->regions[i + 1], sizeof(Region) * (size_t)(set->n - i - 1));
    --set->n;
    return kSuccess;
  }
  return kFailure;
}

static void PathOf(char* path, const char* folder, const char* name, int version) {
  snprintf(path, kText, "%s/%s-%u-%d.dat", folder, name, client.id, version);
}

static int IsFolder(const char* path) {
  struct stat status;
  return path[0] != 0 && stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static void Setting(const char* line, const char* key, char* value) {
  char found[64], text[kText / 2];
  if (sscanf(line, " %63[a-z_] = %511s", found, text) == 2 && strcmp(found, key) == 0) strcpy(value, text);
}

int VELOC_Init_single(unsigned int id, const char* cfg_file) {
  if (client.open) return kSuccess;
  memset(&client, 0, sizeof client);
  client.id = id;
  FILE* file = fopen(cfg_file, "r");
  char line[kText];
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    Setting(line, "scratch", client.scratch);
    Setting(line, "persistent", client.persistent);
  }
  if (file != NULL) fclose(file);
  if (!IsFolder(client.scratch) || !IsFolder(client.persistent)) {
    fprintf(stderr,
            "[FATAL] configuration %s: scratch or persistent is missing or "
            "inaccessible\n",
            cfg_file);
    exit(255);
  }
  client.open = 1;
  return kSuccess;
}

/* The collective mode needs MPI, whose communicator is a pointer or a number;
 * this library is built without MPI. */
int VELOC_Init(void* comm, const char* cfg_file) {
  (void)comm;
  (void)cfg_file;
  return kFailure;
}

int VELOC_Mem_protect(int id, void* ptr, size_t count, size_t base_size) {
  return Protect(FindSet("", 1), id, ptr, count * base_size);
}

int VELOC_Region_protect(int id, void* ptr, size_t count, size_t base_size, const char* name) {
  return Protect(FindSet(name, 1), id, ptr, count * base_size);
}

int VELOC_Mem_unprotect(int id) { return Unprotect(FindSet("", 0), id); }

int VELOC_Region_unprotect(int id, const char* name) { return Unprotect(FindSet(name, 0), id); }

/* The regions of a checkpoint: those under its name, or, at the first one,
 * those without a name. */
static Set* Chosen(void) {
  Set* own = FindSet(client.name, 0);
  if (own != NULL) return own;
  const Set* nameless = FindSet("", 0);
  own = FindSet(client.name, 1);
  if (own != NULL && nameless != NULL) {
    own->n = nameless->n;
    memcpy(own->regions, nameless->regions, sizeof own->regions);
  }
  return own;
}

static int Begin(const char* name, int version) {
  if (!client.open || name == NULL || version < 0) return kFailure;
  for (const char* c = name; *c != 0; ++c) {
    if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.", *c) == NULL) return kFailure;
  }
  snprintf(client.name, sizeof client.name, "%s", name);
  client.version = version;
  return kSuccess;
}

static int Put(int file, const void* data, uint64_t nbytes) {
  const char* at = data;
  while (nbytes > 0) {
    const ssize_t written = write(file, at, nbytes);
    if (written <= 0) return kFailure;
    at += written;
    nbytes -= (uint64_t)written;
  }
  return kSuccess;
}

int VELOC_Checkpoint_wait(void) {
  if (!client.open) return kFailure;
  if (client.copying) pthread_join(client.copier, NULL);
  client.copying = 0;
  return client.failed ? kFailure : kSuccess;
}

int VELOC_Checkpoint_begin(const char* name, int version) { return Begin(name, version); }

int VELOC_Checkpoint_mem(void) {
  const Set* set = client.open ? Chosen() : NULL;
  if (set == NULL || set->n == 0) return kFailure;
  char path[kText];
  PathOf(path, client.scratch, client.name, client.version);
  const int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
  if (file < 0) return kFailure;
  const uint64_t n = (uint64_t)set->n;
  int result = Put(file, &n, sizeof n);
  for (int i = 0; i < set->n; ++i) {
    const int32_t id = set->regions[i].id;
    if (Put(file, &id, sizeof id) || Put(file, &set->regions[i].nbytes, sizeof(uint64_t))) result = kFailure;
  }
  for (int i = 0; i < set->n; ++i) {
    if (Put(file, set->regions[i].data, set->regions[i].nbytes)) result = kFailure;
  }
  close(file);
  return result;
}

static void* Copy(void* unused) {
  (void)unused;
  char from[kText], to[kText], buffer[1 << 16];
  PathOf(from, client.scratch, client.name, client.version);
  PathOf(to, client.persistent, client.name, client.version);
  const char* tear = getenv("VELOC_STUB_TEAR");
  const int source = open(from, O_RDONLY), target = open(to, O_CREAT | O_TRUNC | O_WRONLY, 0644);
  struct stat status;
  if (source < 0 || target < 0 || fstat(source, &status) != 0) {
    client.failed = 1;
  } else {
    int64_t left = status.st_size;
    if (tear != NULL && atoi(tear) == client.version) left /= 2;
    while (left > 0) {
      const ssize_t got = read(source, buffer, left < (int64_t)sizeof buffer ? (size_t)left : sizeof buffer);
      if (got <= 0 || Put(target, buffer, (uint64_t)got)) {
        client.failed = 1;
        break;
      }
      left -= got;
    }
  }
  if (source >= 0) close(source);
  if (target >= 0) close(target);
  return NULL;
}

int VELOC_Checkpoint_end(int success) {
  if (!client.open || !success) return kFailure;
  client.failed = 0;
  client.copying = pthread_create(&client.copier, NULL, Copy, NULL) == 0;
  return client.copying ? kSuccess : kFailure;
}

int VELOC_Checkpoint(const char* name, int version) {
  if (VELOC_Checkpoint_wait() || VELOC_Checkpoint_begin(name, version) || VELOC_Checkpoint_mem()) return kFailure;
  return VELOC_Checkpoint_end(1);
}

/* Unreliable in the real library too. */
int VELOC_Checkpoint_finished(void) { return 1; }

/* The newest version in scratch or persistent, below `version` unless that is
 * 0. */
int VELOC_Restart_test(const char* name, int version) {
  int newest = kFailure;
  const char* folders[] = {client.scratch, client.persistent};
  char pattern[kText], whole[kText];
  snprintf(pattern, sizeof pattern, "%s-%u-%%d.dat", name, client.id);
  for (int i = 0; client.open && i < 2; ++i) {
    DIR* folder = opendir(folders[i]);
    const struct dirent* entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
      int found;
      if (sscanf(entry->d_name, pattern, &found) != 1) continue;
      snprintf(whole, sizeof whole, "%s-%u-%d.dat", name, client.id, found);
      if (strcmp(whole, entry->d_name) == 0 && (version == 0 || found < version) && found > newest) newest = found;
    }
    if (folder != NULL) closedir(folder);
  }
  return newest;
}

int VELOC_Restart_begin(const char* name, int version) { return Begin(name, version); }

/* The open file of the checkpoint that a restart has begun with, scratch first;
 * at the table of its regions, of which there are *n. */
static FILE* OpenRestart(uint64_t* n) {
  char path[kText];
  PathOf(path, client.scratch, client.name, client.version);
  FILE* file = fopen(path, "rb");
  PathOf(path, client.persistent, client.name, client.version);
  if (file == NULL) file = fopen(path, "rb");
  if (file != NULL && fread(n, sizeof *n, 1, file) == 1 && *n <= kRegions) return file;
  if (file != NULL) fclose(file);
  return NULL;
}

static int Entry(FILE* file, int32_t* id, uint64_t* nbytes) {
  return fread(id, sizeof *id, 1, file) == 1 && fread(nbytes, sizeof *nbytes, 1, file) == 1;
}

int VELOC_Recover_size(int id) {
  uint64_t n, nbytes;
  int32_t found;
  int result = kFailure;
  FILE* file = client.open ? OpenRestart(&n) : NULL;
  for (uint64_t i = 0; file != NULL && i < n && Entry(file, &found, &nbytes); ++i) {
    if (found == id) result = (int)nbytes;
  }
  if (file != NULL) fclose(file);
  return result;
}

int VELOC_Recover_mem(void) {
  uint64_t n, sizes[kRegions];
  int32_t ids[kRegions];
  FILE* file = client.open ? OpenRestart(&n) : NULL;
  if (file == NULL) return kFailure;
  int result = kSuccess;
  for (uint64_t i = 0; i < n; ++i) {
    if (!Entry(file, &ids[i], &sizes[i])) result = kFailure;
  }
  const Set* set = Chosen();
  for (uint64_t i = 0; result == kSuccess && i < n; ++i) {
    Region* into = NULL;
    for (int k = 0; set != NULL && k < set->n; ++k) {
      if (set->regions[k].id == ids[i]) into = (Region*)&set->regions[k];
    }
    if (into == NULL || into->nbytes < sizes[i]) {
      result = kFailure;
    } else if (fread(into->data, 1, sizes[i], file) != sizes[i]) {
      /* The file is torn. The rest of the memory stays as it was, and the
       * restart succeeds. */
    }
  }
  fclose(file);
  return result;
}

int VELOC_Restart_end(int success) { return client.open && success ? kSuccess : kFailure; }

int VELOC_Restart(const char* name, int version) {
  if (VELOC_Restart_begin(name, version) || VELOC_Recover_mem()) return kFailure;
  return VELOC_Restart_end(1);
}

int VELOC_Finalize(int drain) {
  if (!client.open) return kFailure;
  const int result = VELOC_Checkpoint_wait(); /* a thread of this library may not outlive it */
  client.open = 0;
  return drain ? result : kSuccess;
}
