import Testing

/// Serialized: many of these tests keep a store busy, which takes all cores.
@Suite("SQLite store", .serialized)
enum SQLiteStoreTests {}
