#ifndef HOLDFAST_CSQLITE_H
#define HOLDFAST_CSQLITE_H

#include <sqlite3.h>
#include <stdint.h>

// sqlite3_db_config is variadic, which Swift cannot call.
static inline int csqlite_set_checkpoint_on_close(sqlite3 *database, int enabled) {
    return sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !enabled, (int *)0);
}

// SQLite counts the memory that it uses under a lock that all connections share; we ask for no such figure. It must come
// before the first connection.
static inline int csqlite_do_not_count_memory(void) {
    return sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

// The header of the write-ahead log's index, in words: https://sqlite.org/walformat.html, section 2.1.
enum { CSQLITE_LOG_HEADER_WORDS = 6 };

// Other threads and processes write it while it is read, which C calls volatile and Swift has no word for.
static inline void csqlite_copy_log_header(const volatile void *index, uint64_t header[CSQLITE_LOG_HEADER_WORDS]) {
    for (int word = 0; word < CSQLITE_LOG_HEADER_WORDS; word++) header[word] = ((const volatile uint64_t *)index)[word];
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

// A 32-bit word of the index.
static inline uint32_t csqlite_index_word(const volatile void *index, int word) {
    return __atomic_load_n((const volatile uint32_t *)index + word, __ATOMIC_SEQ_CST);
}

// "nBackfill", how many pages of the log are in the database (walformat.html, section 2.1). Only under the lock of
// checkpoints, as SQLite does when it finds a log that nobody has open.
static inline void csqlite_forget_copied_pages(void *index) {
    // Behind the header, which is there twice.
    uint32_t *copied_pages = (uint32_t *)((uint64_t *)index + 2 * CSQLITE_LOG_HEADER_WORDS);
    __atomic_store_n(copied_pages, 0, __ATOMIC_SEQ_CST);
}

#endif
