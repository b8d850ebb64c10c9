#include "CSQLiteSupport.h"

#include <pthread.h>
#include <sqlite3.h>
#include <string.h>

// A log whose end may still be in memory:
//
//   |  written to the system's file  |  pending, `count` bytes  |
//                                    ^ start                    ^ start + count
typedef struct {
    sqlite3_file base;
    sqlite3_int64 start;
    int count;
    unsigned char *pending;
    // The system's file follows, in the size that its VFS asks for.
    sqlite3_file file[];
} log_file;

// The system's VFS accepts less than 128 KiB per write, because SQLite itself never writes more than a page.
enum { PENDING_CAPACITY = 96 * 1024 };

static log_file *log_of(sqlite3_file *file) {
    return (log_file *)file;
}

// Discards what cannot be written: SQLite gets the error and rolls the transaction back.
static int flush(log_file *log) {
    if (log->count == 0) return SQLITE_OK;
    int count = log->count;
    log->count = 0;
    return log->file->pMethods->xWrite(log->file, log->pending, count, log->start);
}

static int log_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 offset) {
    log_file *log = log_of(file);
    if (log->count > 0 && (offset != log->start + log->count || count > PENDING_CAPACITY - log->count)) {
        int code = flush(log);
        if (code != SQLITE_OK) return code;
    }
    // No page is greater than 64 KiB.
    if (count > PENDING_CAPACITY) return SQLITE_IOERR_WRITE;
    if (log->count == 0) log->start = offset;
    memcpy(log->pending + log->count, bytes, (size_t)count);
    log->count += count;
    return SQLITE_OK;
}

static int log_read(sqlite3_file *file, void *bytes, int count, sqlite3_int64 offset) {
    int code = flush(log_of(file));
    return code == SQLITE_OK ? log_of(file)->file->pMethods->xRead(log_of(file)->file, bytes, count, offset) : code;
}

static int log_truncate(sqlite3_file *file, sqlite3_int64 size) {
    int code = flush(log_of(file));
    return code == SQLITE_OK ? log_of(file)->file->pMethods->xTruncate(log_of(file)->file, size) : code;
}

static int log_sync(sqlite3_file *file, int flags) {
    int code = flush(log_of(file));
    return code == SQLITE_OK ? log_of(file)->file->pMethods->xSync(log_of(file)->file, flags) : code;
}

static int log_size(sqlite3_file *file, sqlite3_int64 *size) {
    int code = flush(log_of(file));
    return code == SQLITE_OK ? log_of(file)->file->pMethods->xFileSize(log_of(file)->file, size) : code;
}

static int log_close(sqlite3_file *file) {
    log_file *log = log_of(file);
    int flushed = flush(log);
    int closed = log->file->pMethods->xClose(log->file);
    sqlite3_free(log->pending);
    return flushed != SQLITE_OK ? flushed : closed;
}

static int log_lock(sqlite3_file *file, int level) {
    return log_of(file)->file->pMethods->xLock(log_of(file)->file, level);
}

static int log_unlock(sqlite3_file *file, int level) {
    return log_of(file)->file->pMethods->xUnlock(log_of(file)->file, level);
}

static int log_check_lock(sqlite3_file *file, int *is_locked) {
    return log_of(file)->file->pMethods->xCheckReservedLock(log_of(file)->file, is_locked);
}

static int log_control(sqlite3_file *file, int operation, void *argument) {
    int code = flush(log_of(file));
    return code == SQLITE_OK ? log_of(file)->file->pMethods->xFileControl(log_of(file)->file, operation, argument) : code;
}

static int log_sector_size(sqlite3_file *file) {
    return log_of(file)->file->pMethods->xSectorSize(log_of(file)->file);
}

static int log_characteristics(sqlite3_file *file) {
    return log_of(file)->file->pMethods->xDeviceCharacteristics(log_of(file)->file);
}

static const sqlite3_io_methods log_methods = {
    .iVersion = 1,
    .xClose = log_close,
    .xRead = log_read,
    .xWrite = log_write,
    .xTruncate = log_truncate,
    .xSync = log_sync,
    .xFileSize = log_size,
    .xLock = log_lock,
    .xUnlock = log_unlock,
    .xCheckReservedLock = log_check_lock,
    .xFileControl = log_control,
    .xSectorSize = log_sector_size,
    .xDeviceCharacteristics = log_characteristics,
};

static sqlite3_vfs *system_vfs(sqlite3_vfs *vfs) {
    return vfs->pAppData;
}

static int open_file(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *file, int flags, int *out_flags) {
    sqlite3_vfs *system = system_vfs(vfs);
    if (!(flags & SQLITE_OPEN_WAL)) return system->xOpen(system, name, file, flags, out_flags);
    log_file *log = log_of(file);
    memset(log, 0, sizeof *log);
    log->pending = sqlite3_malloc(PENDING_CAPACITY);
    if (!log->pending) return SQLITE_NOMEM;
    log->file->pMethods = NULL;
    int code = system->xOpen(system, name, log->file, flags, out_flags);
    if (code == SQLITE_OK) {
        log->base.pMethods = &log_methods;
    } else {
        if (log->file->pMethods) log->file->pMethods->xClose(log->file);
        sqlite3_free(log->pending);
    }
    return code;
}

static sqlite3_vfs log_vfs;
static int is_registered;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void register_vfs(void) {
    sqlite3_vfs *system = sqlite3_vfs_find(NULL);
    if (!system) return;
    // The system's functions do everything except open files. They use nothing of the VFS that they are passed but its
    // data, and have none.
    log_vfs = *system;
    log_vfs.zName = "holdfast-log";
    log_vfs.szOsFile = (int)sizeof(log_file) + system->szOsFile;
    log_vfs.pNext = NULL;
    log_vfs.pAppData = system;
    log_vfs.xOpen = open_file;
    is_registered = sqlite3_vfs_register(&log_vfs, 0) == SQLITE_OK;
}

const char *csqlite_log_vfs(void) {
    pthread_once(&once, register_vfs);
    return is_registered ? log_vfs.zName : NULL;
}
