#ifndef HOLDFAST_CSQLITELOG_H
#define HOLDFAST_CSQLITELOG_H

// The name of a SQLite VFS for the connection that writes. It is the system's own, but what SQLite appends to the
// write-ahead log, with two writes a page, is collected and written at once, at the latest before it is synchronised.
//
// That is safe with synchronous=FULL and cache_spill=OFF: then SQLite appends to the log only to commit, and
// synchronises it before it tells anybody of the commit. Until then nobody but the connection itself knows of the
// pages, and it reads through here; what is collected never outlives the lock of its transaction.
//
// Returns NULL when memory is short.
const char *csqlite_log_vfs(void);

#endif
