import Testing

/// One after the other: many of these measure themselves against a store that is busy, which takes all cores.
@Suite("SQLite store", .serialized)
enum SQLiteStoreTests {}
