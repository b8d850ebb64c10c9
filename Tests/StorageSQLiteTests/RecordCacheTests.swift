import Bucketing
import TestSupport
import Testing

@testable import StorageSQLite

@Suite("Record cache")
struct RecordCacheTests {
    /// Keys are few and sizes vary, so that entries are often replaced, evicted and moved.
    @Test(arguments: 0..<12)
    func `Returns only what was inserted last`(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        let cache = RecordCache(bytes: 4_096 << Int(seed % 3))
        var model: [Identifier: [UInt8]?] = [:]
        var hits = 0
        for step in 0..<20_000 {
            let number = Int.random(in: 0..<60, using: &generator)
            let userID = Identifier(String(repeating: "u", count: number) + "\(number)")
            switch Int.random(in: 0..<200, using: &generator) {
            case 0:
                cache.removeAll()
                model = [:]
            case 1..<20:
                cache.remove(userID)
                model[userID] = nil
            case 20..<90:
                let length = Int.random(in: 0..<120, using: &generator)
                let record = length < 20 ? nil : [UInt8](repeating: UInt8(step % 256), count: length)
                cache.insert(userID, record)
                model[userID] = .some(record)
            case 90..<120:
                // `replace` does not insert an unknown user.
                let isKnown = cache.find(userID) != .unknown
                let record = [UInt8](repeating: UInt8(step % 256), count: Int.random(in: 0..<120, using: &generator))
                record.withUnsafeBytes { bytes in userID.withKey { cache.replace($0, bytes) } }
                if isKnown { model[userID] = .some(record) } else { #expect(cache.find(userID) == .unknown) }
            default:
                switch cache.find(userID) {
                case .unknown: continue
                case .absent: #expect(model[userID] == .some(nil))
                case .record(let bytes): #expect(model[userID] == bytes)
                }
                hits += 1
            }
        }
        #expect(hits > 100)
    }

    @Test
    func `Replacing a record by one of about its length takes no more room`() {
        let cache = RecordCache(bytes: 4_096)
        for number in 0..<10 { cache.insert(Identifier("user\(number)"), [UInt8](repeating: 1, count: 50)) }
        let used = cache.usedBytes
        for step in 0..<1_000 {
            let record = [UInt8](repeating: UInt8(step % 7), count: 49 + step % 2)
            record.withUnsafeBytes { bytes in Identifier("user3").withKey { cache.replace($0, bytes) } }
        }
        #expect(cache.usedBytes == used)
        #expect(cache.find("user3") == .record([UInt8](repeating: UInt8(999 % 7), count: 50)))
        #expect(cache.find("user0") == .record([UInt8](repeating: 1, count: 50)))
    }

    @Test
    func `Evicts nothing while there is room`() {
        let cache = RecordCache(bytes: 1 << 20)
        for number in 0..<5_000 {
            cache.insert(Identifier("user-\(number)"), [UInt8](repeating: 7, count: number % 50))
        }
        #expect(cache.count == 5_000)
        for number in 0..<5_000 {
            #expect(cache.find(Identifier("user-\(number)")) == .record([UInt8](repeating: 7, count: number % 50)))
        }
    }

    @Test
    func `Evicts the oldest when full, and stays within its bounds`() {
        let cache = RecordCache(bytes: 8_192)
        for number in 0..<1_000 {
            cache.insert(Identifier("user-\(number)"), [UInt8](repeating: 7, count: 60))
        }
        #expect(cache.usedBytes <= 8_192)
        #expect(cache.find("user-0") == .unknown)
        #expect(cache.find("user-999") != .unknown)
        #expect(cache.count > 50)
    }

    @Test
    func `Does not cache a record that would evict a large part of the others, and drops the one it replaces`() {
        let cache = RecordCache(bytes: 8_192)
        cache.insert("user", [1])
        cache.insert("user", [UInt8](repeating: 7, count: 4_000))
        #expect(cache.find("user") == .unknown)
    }

    @Test
    func `Works like a new one after removal of all entries`() {
        let cache = RecordCache(bytes: 1 << 20)
        for round in 0..<5 {
            for number in 0..<3_000 {
                cache.insert(Identifier("user-\(number)"), [UInt8(round)])
            }
            #expect(cache.find("user-2999") == .record([UInt8(round)]))
            cache.removeAll()
            #expect(cache.count == 0 && cache.usedBytes == 0)
            #expect(cache.find("user-2999") == .unknown)
        }
    }

    @Test
    func `Distinguishes users by the bytes of their ids`() {
        let cache = RecordCache(bytes: 8_192)
        cache.insert("\u{E9}", [1])
        #expect(cache.find("e\u{301}") == .unknown)
    }
}

extension RecordCache {
    fileprivate func find(_ userID: Identifier) -> Finding {
        userID.withKey(find)
    }

    fileprivate func insert(_ userID: Identifier, _ record: [UInt8]?) {
        userID.withKey { insert($0, record) }
    }

    fileprivate func remove(_ userID: Identifier) {
        userID.withKey(remove)
    }
}
