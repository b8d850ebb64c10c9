import Bucketing
import Chronology
import Foundation
import Storage
import StorageSQLite

func recordParts() throws -> [Part] {
    let record = Samples.record
    let assignments = record.assignments
    return [
        Part("record-encode") { ProfileRecord(assignments) },
        Part("record-check") { try? ProfileRecord(checking: record.bytes) },
    ]
}

extension ProfileRecord {
    fileprivate var assignments: [Identifier: Assignment] {
        Dictionary(uniqueKeysWithValues: entries.map { (experimentID(of: $0), assignment(of: $0)) })
    }
}

func memoryParts() throws -> [Part] {
    let rules = ProfileRules()
    var record = Samples.record
    var count = 0
    return [
        Part("rules-save") {
            count += 1
            let map: ExperimentBucketMap = ["10001": Identifier("\(20_000 + count % 10_000)"), "7001": "70011"]
            let change = ProfileChange(userID: Samples.userID, operation: .save(map, onConflict: .replace))
            if case .put(let saved)? = try? rules.apply(change, to: record, at: Instant(milliseconds: Int64(count)))
                .effect
            {
                record = saved
            }
        }
    ]
}

func sqliteParts() throws -> [Part] {
    let directory = FileManager.default.temporaryDirectory.appendingPathComponent("holdfast-parts-\(getpid())")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    var configuration = SQLiteConfiguration(path: directory.appendingPathComponent("parts.db").path)
    let store = try SQLiteStore(configuration)
    let userIDs = try save(to: store)
    let cached = Lookups(userIDs, try store.makeSession(on: DispatchExecutor(label: "lookups")))
    configuration.cacheBytes = 0
    let uncachedStore = try SQLiteStore(configuration)
    let uncached = Lookups(userIDs, try uncachedStore.makeSession(on: DispatchExecutor(label: "lookups")))
    return [
        Part("sqlite-lookup-cached-batch-of-32") { cached.batch(of: 32) },
        Part("sqlite-lookup-from-database-batch-of-32") { uncached.batch(of: 32) },
    ]
}

/// Saves 1,000 users and waits until the last is stored.
private func save(to store: any Store) throws -> [Identifier] {
    let userIDs = (0..<1_000).map { Identifier("user\($0)") }
    let stored = DispatchSemaphore(value: 0)
    let session = try BackgroundSession(store, label: "save")
    session.run { session in
        for userID in userIDs {
            let operation = ProfileChange.Operation.save(ExperimentBucketMap(Samples.map), onConflict: .replace)
            session.submit(ProfileChange(userID: userID, operation: operation)) { _ in stored.signal() }
        }
    }
    for _ in userIDs { stored.wait() }
    return userIDs
}

/// Looks up one user after another.
private final class Lookups {
    private let userIDs: [Identifier]
    private let reader: any StoreSession
    private var position = 0

    init(_ userIDs: [Identifier], _ reader: any StoreSession) {
        self.userIDs = userIDs
        self.reader = reader
    }

    func next() {
        position = (position + 1) % userIDs.count
        reader.profile(of: userIDs[position]) { _ in }
    }

    /// As an event loop does it for the requests of one turn.
    func batch(of count: Int) {
        reader.beginBatch()
        for _ in 0..<count { next() }
        reader.endBatch()
    }
}
