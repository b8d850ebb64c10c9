import TestSupport
import Testing

@testable import StorageSQLite

/// Files that grow and shrink, with each journal and with small and large caches.
@Suite("Random transactions")
struct RandomTransactionTests {
    @Test(arguments: 0..<6)
    func `A database after random transactions is intact, and as a model says`(seed: UInt64) throws {
        #expect(Connection.isConfigured)
        var generator = SeededGenerator(seed: seed)
        let directory = try TemporaryDirectory()
        let connection = try Connection(path: directory.file("pages.db"), access: .create, lockTimeout: 1)
        try connection.execute(
            """
            PRAGMA page_size = 512;
            PRAGMA auto_vacuum = \(seed % 3);
            PRAGMA cache_size = \(seed % 2 == 0 ? 20 : 2_000);
            PRAGMA journal_mode = \(seed < 3 ? "WAL" : "DELETE");
            CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
            """)
        var model: [String: [UInt8]] = [:]
        for step in 0..<120 {
            let before = model
            try connection.execute("BEGIN")
            for _ in 0..<Int.random(in: 1...60, using: &generator) {
                let key = "\(Int.random(in: 0..<2_000, using: &generator))"
                if Int.random(in: 0..<3, using: &generator) == 0 {
                    model[key] = nil
                    try connection.statement("DELETE FROM entries WHERE key = ?1").run { $0.bind(key, at: 1) }
                } else {
                    let value = [UInt8](
                        repeating: UInt8(step),
                        count: Int.random(in: 0...(step % 10 == 0 ? 3_000 : 60), using: &generator))
                    model[key] = value
                    try connection.statement("INSERT OR REPLACE INTO entries (key, value) VALUES (?1, ?2)").run {
                        $0.bind(key, at: 1)
                        $0.bind(value, at: 2)
                    }
                }
            }
            if Int.random(in: 0..<3, using: &generator) == 0 {
                try connection.execute("ROLLBACK")
                model = before
            } else {
                try connection.execute("COMMIT")
            }
            if step % 40 == 39 {
                try connection.execute("DELETE FROM entries WHERE key > '5'; PRAGMA incremental_vacuum; VACUUM")
                model = model.filter { $0.key <= "5" }
            }
        }
        var found: [String: [UInt8]] = [:]
        try connection.statement("SELECT key, value FROM entries").run(row: { found[$0.text(0)] = $0.bytes(1) })
        #expect(found == model)
        var problems: [String] = []
        try connection.statement("PRAGMA integrity_check").run(row: { problems.append($0.text(0)) })
        #expect(problems == ["ok"])
    }
}
