#define _GNU_SOURCE
#include "include/FaultyDisk.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * The log is a sequence of records, each a header and, of a write, its bytes. It is in the order in which things
 * happened, also when several processes share it: a lock is held from before a record until after what it tells of.
 * The length that counts is in the control file, so that a record which a killed process left unfinished is
 * overwritten.
 */
struct record {
    uint32_t kind; /* 'W'rite, 'T'runcate, 'S'ync, failed sync that 'L'oses, 'U'nlink */
    uint32_t file; /* 0: the database, 1: its write-ahead log, 2: its journal */
    uint64_t offset;
    uint64_t length;
};

static const char *database;
static volatile uint32_t *slots;
static int log_descriptor = -1;
static int lock_descriptor = -1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t random_state;
/* Descriptors that are still to be told of a failed sync of their file. */
static bool owes_failure[1024];

static ssize_t (*next_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*next_pread)(int, void *, size_t, off_t);
static int (*next_fdatasync)(int);
static int (*next_fsync)(int);
static int (*next_ftruncate)(int, off_t);
static int (*next_unlink)(const char *);

__attribute__((constructor)) static void begin(void) {
    next_pwrite = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64");
    next_pread = (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread64");
    next_fdatasync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    next_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    next_ftruncate = (int (*)(int, off_t))dlsym(RTLD_NEXT, "ftruncate64");
    next_unlink = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");

    const char *control = getenv("HOLDFAST_FAULTY_CONTROL");
    const char *path = getenv("HOLDFAST_FAULTY_DATABASE");
    if (!control || !path) return;
    int descriptor = open(control, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) abort();
    void *memory = mmap(NULL, FAULTY_DISK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (memory == MAP_FAILED) abort();
    slots = memory;
    lock_descriptor = descriptor;
    random_state = ((uint64_t)slots[faulty_disk_seed] << 32 | (uint32_t)getpid()) | 1;
    const char *log = getenv("HOLDFAST_FAULTY_LOG");
    if (log) {
        log_descriptor = open(log, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (log_descriptor < 0) abort();
    }
    database = path;
}

/* The number of the file in the log; -1 when it does not concern us. */
static int classify(const char *path) {
    if (!database) return -1;
    size_t length = strlen(database);
    if (strncmp(path, database, length) != 0) return -1;
    const char *rest = path + length;
    if (*rest == '\0') return 0;
    if (strcmp(rest, "-wal") == 0) return 1;
    return strcmp(rest, "-journal") == 0 ? 2 : -1;
}

static int file_of(int descriptor) {
    if (!database || descriptor < 0) return -1;
    char link[32] = "/proc/self/fd/", digits[12];
    int count = 0;
    do digits[count++] = (char)('0' + descriptor % 10); while ((descriptor /= 10) > 0);
    size_t end = strlen(link);
    while (count > 0) link[end++] = digits[--count];
    link[end] = '\0';
    char path[4096];
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return -1;
    path[length] = '\0';
    return classify(path);
}

static uint64_t random_number(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static bool happens(enum faulty_disk_slot rate) {
    return random_number() % 1000 < slots[rate];
}

static void count(enum faulty_disk_slot slot) {
    __atomic_fetch_add(&slots[slot], 1, __ATOMIC_RELAXED);
}

static void lock(void) {
    pthread_mutex_lock(&mutex);
    if (log_descriptor >= 0) flock(lock_descriptor, LOCK_EX);
}

static void unlock(void) {
    if (log_descriptor >= 0) flock(lock_descriptor, LOCK_UN);
    pthread_mutex_unlock(&mutex);
}

static void tell(uint32_t kind, int file, uint64_t offset, const void *bytes, uint64_t length) {
    if (log_descriptor < 0) return;
    volatile uint64_t *log_length = (volatile uint64_t *)(slots + faulty_disk_log_length);
    struct record record = {kind, (uint32_t)file, offset, length};
    uint64_t end = *log_length;
    uint64_t stored = bytes ? length : 0;
    if (next_pwrite(log_descriptor, &record, sizeof record, (off_t)end) != (ssize_t)sizeof record) abort();
    if (stored && next_pwrite(log_descriptor, bytes, stored, (off_t)(end + sizeof record)) != (ssize_t)stored) abort();
    *log_length = end + sizeof record + stored;
}

/* Tells of a write before it is made: of one that a kill cuts short, any part may be on disk. */
static ssize_t write_through(int descriptor, int file, const void *bytes, size_t length, off_t offset) {
    tell('W', file, (uint64_t)offset, bytes, length);
    return next_pwrite(descriptor, bytes, length, offset);
}

static ssize_t fail_write(int error) {
    count(faulty_disk_failed_writes);
    errno = error;
    return -1;
}

static ssize_t write_or_fail(int descriptor, int file, const void *bytes, size_t length, off_t offset) {
    count(faulty_disk_writes);
    if (happens(faulty_disk_write_error)) return fail_write(EIO);
    if (happens(faulty_disk_write_full)) return fail_write(ENOSPC);
    bool is_torn = happens(faulty_disk_write_torn);
    if (length > 1 && (is_torn || happens(faulty_disk_write_short))) {
        size_t part = 1 + random_number() % (length - 1);
        ssize_t written = write_through(descriptor, file, bytes, part, offset);
        if (is_torn) return fail_write(EIO);
        count(faulty_disk_failed_writes);
        return written;
    }
    return write_through(descriptor, file, bytes, length, offset);
}

/* Linux tells each descriptor that is open once that a file could not be written back. */
static void owe_failure_to_all(int file, int but) {
    for (int descriptor = 0; descriptor < 1024; descriptor++) {
        if (descriptor != but && file_of(descriptor) == file) owes_failure[descriptor] = true;
    }
}

static int fail_sync(int descriptor, int file) {
    count(faulty_disk_failed_syncs);
    if (slots[faulty_disk_sync_loses] && log_descriptor >= 0) {
        tell('L', file, 0, NULL, 0);
        owe_failure_to_all(file, descriptor);
    }
    errno = EIO;
    return -1;
}

static int sync_or_fail(int descriptor, int (*sync)(int)) {
    int file = file_of(descriptor);
    if (file < 0) return sync(descriptor);
    lock();
    count(faulty_disk_syncs);
    int result = 0;
    bool is_known = descriptor < 1024;
    if (is_known && owes_failure[descriptor]) {
        owes_failure[descriptor] = false;
        count(faulty_disk_failed_syncs);
        errno = EIO;
        result = -1;
    } else if (happens(faulty_disk_sync_error)) {
        result = fail_sync(descriptor, file);
    } else if (!slots[faulty_disk_sync_lies]) {
        /* With a log, that is the disk. */
        if (log_descriptor >= 0) tell('S', file, 0, NULL, 0); else result = sync(descriptor);
    }
    unlock();
    return result;
}

ssize_t pread64(int descriptor, void *bytes, size_t length, off_t offset) {
    while (slots && slots[faulty_disk_reads_hang] && file_of(descriptor) >= 0) usleep(1000);
    return next_pread(descriptor, bytes, length, offset);
}

ssize_t pread(int descriptor, void *bytes, size_t length, off_t offset) {
    return pread64(descriptor, bytes, length, offset);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t length, off_t offset) {
    int file = file_of(descriptor);
    if (file < 0) return next_pwrite(descriptor, bytes, length, offset);
    lock();
    ssize_t result = write_or_fail(descriptor, file, bytes, length, offset);
    unlock();
    return result;
}

ssize_t pwrite(int descriptor, const void *bytes, size_t length, off_t offset) {
    return pwrite64(descriptor, bytes, length, offset);
}

int fdatasync(int descriptor) {
    return sync_or_fail(descriptor, next_fdatasync);
}

int fsync(int descriptor) {
    return sync_or_fail(descriptor, next_fsync);
}

int ftruncate64(int descriptor, off_t length) {
    int file = file_of(descriptor);
    if (file < 0) return next_ftruncate(descriptor, length);
    lock();
    tell('T', file, 0, NULL, (uint64_t)length);
    int result = next_ftruncate(descriptor, length);
    unlock();
    return result;
}

int unlink(const char *path) {
    int file = classify(path);
    if (file < 0) return next_unlink(path);
    lock();
    tell('U', file, 0, NULL, 0);
    int result = next_unlink(path);
    unlock();
    return result;
}
