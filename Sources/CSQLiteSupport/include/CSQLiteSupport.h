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

// Wraps SQLite's page cache in one that knows the greatest page number in it. At the end of each transaction SQLite drops the
// pages beyond the end of the file. There are hardly ever any, but SQLite 3.40 searches the whole cache for them if the
// transaction has split a page, which takes longer than a dozen changes.
//
// Call it once, before the first connection. Returns a SQLite result code.
int csqlite_use_bounded_page_cache(void);

#endif
