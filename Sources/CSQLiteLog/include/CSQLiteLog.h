#ifndef HOLDFAST_CSQLITELOG_H
#define HOLDFAST_CSQLITELOG_H

// The name of a SQLite VFS for the connection that writes. It is the system's own, but what SQLite appends to the
// write-ahead log, with two writes a page, is collected and written at once, at the latest before it is synchronised.
//
// That is safe with synchronous=FULL, where SQLite synchronises the log before it tells anybody of a commit: until
// then nobody but the connection itself knows of the pages, and it reads through here.
//
// Returns NULL when memory is short.
const char *csqlite_log_vfs(void);

#endif
