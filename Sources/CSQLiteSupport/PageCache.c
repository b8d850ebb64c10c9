#include "CSQLiteSupport.h"

#include <sqlite3.h>
#include <stddef.h>

// SQLite's own page cache, with bounds on the page numbers in it.
typedef struct {
    sqlite3_pcache *cache;
    // No page has a greater number, except the parked one.
    unsigned greatest;
    // A page that was moved beyond all others, as SQLite does temporarily to swap two pages; 0: none.
    unsigned parked;
} page_cache;

static sqlite3_pcache_methods2 builtin;

static page_cache *bounded(sqlite3_pcache *cache) {
    return (page_cache *)cache;
}

static sqlite3_pcache *create(int size, int extra_size, int is_purgeable) {
    page_cache *cache = sqlite3_malloc(sizeof *cache);
    if (!cache) return NULL;
    *cache = (page_cache){.cache = builtin.xCreate(size, extra_size, is_purgeable)};
    if (cache->cache) return (sqlite3_pcache *)cache;
    sqlite3_free(cache);
    return NULL;
}

static void destroy(sqlite3_pcache *cache) {
    builtin.xDestroy(bounded(cache)->cache);
    sqlite3_free(cache);
}

static sqlite3_pcache_page *fetch(sqlite3_pcache *cache, unsigned number, int creates) {
    if (creates && number > bounded(cache)->greatest) bounded(cache)->greatest = number;
    return builtin.xFetch(bounded(cache)->cache, number, creates);
}

static void renumber(sqlite3_pcache *base, sqlite3_pcache_page *page, unsigned from, unsigned to) {
    page_cache *cache = bounded(base);
    if (from == cache->parked) cache->parked = 0;
    if (to > cache->greatest) {
        if (cache->parked == 0) cache->parked = to;
        else cache->greatest = to;
    }
    builtin.xRekey(cache->cache, page, from, to);
}

// Drops all pages from a number on. SQLite calls it at the end of each transaction, with the first number beyond the end of
// the file.
static void drop(sqlite3_pcache *base, unsigned from) {
    page_cache *cache = bounded(base);
    if (from > cache->greatest && cache->parked == 0) return;
    builtin.xTruncate(cache->cache, from);
    cache->greatest = from - 1;
    cache->parked = 0;
}

static void set_size(sqlite3_pcache *cache, int pages) {
    builtin.xCachesize(bounded(cache)->cache, pages);
}

static int count(sqlite3_pcache *cache) {
    return builtin.xPagecount(bounded(cache)->cache);
}

static void unpin(sqlite3_pcache *cache, sqlite3_pcache_page *page, int drops) {
    builtin.xUnpin(bounded(cache)->cache, page, drops);
}

static void shrink(sqlite3_pcache *cache) {
    builtin.xShrink(bounded(cache)->cache);
}

int csqlite_use_bounded_page_cache(void) {
    int code = sqlite3_config(SQLITE_CONFIG_GETPCACHE2, &builtin);
    if (code != SQLITE_OK) return code;
    sqlite3_pcache_methods2 methods = builtin;
    methods.xCreate = create;
    methods.xDestroy = destroy;
    methods.xFetch = fetch;
    methods.xRekey = renumber;
    methods.xTruncate = drop;
    methods.xCachesize = set_size;
    methods.xPagecount = count;
    methods.xUnpin = unpin;
    methods.xShrink = shrink;
    return sqlite3_config(SQLITE_CONFIG_PCACHE2, &methods);
}
