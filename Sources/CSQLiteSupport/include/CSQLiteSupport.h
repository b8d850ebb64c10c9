#ifndef HOLDFAST_CSQLITESUPPORT_H
#define HOLDFAST_CSQLITESUPPORT_H

// The name of a SQLite VFS for the connection that writes. It is the system's own, but what SQLite appends to the
// write-ahead log, with two writes a page, is collected and written at once, at the latest before it is synchronised.
//
// That is safe with synchronous=FULL and cache_spill=OFF: then SQLite appends to the log only to commit, and
// synchronises it before it tells anybody of the commit. Until then nobody but the connection itself knows of the
// pages, and it reads through here; what is collected never outlives the lock of its transaction.
//
// Returns NULL when memory is short.
const char *csqlite_log_vfs(void);

// Has SQLite use its own page cache by way of one that knows the greatest number of a page in it. At the end of each
// transaction SQLite drops the pages beyond the end of the file. Hardly ever there are any, but SQLite 3.40 looks at all
// pages of the cache for them if it has split a page in the transaction, which takes longer than a dozen changes.
//
// To be called once, before the first connection. Returns a code of SQLite.
int csqlite_use_bounded_page_cache(void);

#endif
