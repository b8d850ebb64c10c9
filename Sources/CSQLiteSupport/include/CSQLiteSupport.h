#ifndef HOLDFAST_CSQLITESUPPORT_H
#define HOLDFAST_CSQLITESUPPORT_H

// Returns the name of a SQLite VFS for the writing connection. It is the system's VFS, but collects what SQLite appends to
// the write-ahead log, two writes per page, and writes it in large blocks, at the latest before a sync.
//
// This is safe with synchronous=FULL and cache_spill=OFF: then SQLite appends to the log only to commit, and syncs it before
// it publishes the commit. Until then only this connection knows of the pages, and it reads through this VFS. Collected data
// never outlives the lock of its transaction.
//
// Returns NULL if out of memory.
const char *csqlite_log_vfs(void);

#endif
