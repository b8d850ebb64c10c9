import Bucketing
import JSON

/// A bounded cache of user records: a ring buffer of entries, and a hash table of their positions in the ring.
///
/// A new entry overwrites the oldest ones. An entry takes 16 bytes beside its key and value, and about 8 bytes in the
/// table. Adding an entry allocates nothing, unless the table grows.
///
/// ```
/// ring   | … oldest entry | … | newest entry | free … |
/// entry  hash 4 | key length 4 | value length 4 | flags 4 | key | value | padding to 8     (sizes in bytes)
/// table  position of an entry in units of 8 bytes, plus 1; 0 for a free slot. Linear probing from the hash.
/// ```
final class RecordCache {
    /// The result of a lookup.
    enum Finding: Equatable {
        /// The user is not in the cache.
        case unknown
        /// The user has no record in the database.
        case absent
        case record([UInt8])
    }

    /// The size of an entry without its key and value, in bytes.
    private static let headerSize = 16
    /// The initial number of slots; the table doubles before it is more than half full.
    private static let firstTableSize = 1_024
    /// The value length of a user without a record.
    private static let absentLength = UInt32.max

    // Flags of entries.

    /// The entry is in the table.
    private static let alive: UInt32 = 1
    /// The entry is not in the table any more. It takes space until it is overwritten.
    private static let dead: UInt32 = 2
    /// Marks the unused end of the ring, where the next entry did not fit.
    private static let filler: UInt32 = 3

    private let ring: UnsafeMutableRawPointer
    /// The size of the ring in bytes; a multiple of 8.
    private let capacity: Int
    /// The offset of the oldest entry in the ring.
    private var oldest = 0
    /// The offset at which the next entry begins.
    private var next = 0
    /// The number of bytes between `oldest` and `next`, including dead entries and fillers.
    private(set) var usedBytes = 0
    /// The number of entries that are alive.
    private(set) var count = 0
    /// The hash table. Not an array, because each access to an element would be a call.
    private var table: UnsafeMutableBufferPointer<UInt32>

    /// - Parameter bytes: the size of the ring. The system provides the memory as it fills. The size is limited, so
    ///   that a position in units of 8 bytes, plus 1, fits into the 32 bits of a slot.
    init(bytes: Int) {
        capacity = max(4_096, min(bytes, Int(UInt32.max - 1) * 8)) & ~7
        ring = UnsafeMutableRawPointer.allocate(byteCount: capacity, alignment: 8)
        table = Self.makeTable(Self.firstTableSize)
    }

    deinit {
        ring.deallocate()
        table.deallocate()
    }

    private static func makeTable(_ size: Int) -> UnsafeMutableBufferPointer<UInt32> {
        let table = UnsafeMutableBufferPointer<UInt32>.allocate(capacity: size)
        table.initialize(repeating: 0)
        return table
    }

    /// Looks up a user.
    func find(_ key: UserKey) -> Finding {
        guard let slot = slot(of: key) else { return .unknown }
        let entry = position(slot)
        let length = load(entry + 8)
        guard length != Self.absentLength else { return .absent }
        let start = ring + entry + Self.headerSize + key.bytes.count
        return .record(Array(UnsafeRawBufferPointer(start: start, count: Int(length))))
    }

    /// Caches the record of a user; `nil` if the user has none.
    func insert(_ key: UserKey, _ record: [UInt8]?) {
        guard let record else { return put(nil, key, in: slot(of: key)) }
        record.withUnsafeBytes { put($0, key, in: slot(of: key)) }
    }

    /// Updates the record of a user if the user is in the cache; `nil` if the user has no record any more.
    func replace(_ key: UserKey, _ record: UnsafeRawBufferPointer?) {
        if let slot = slot(of: key) { put(record, key, in: slot) }
    }

    func remove(_ key: UserKey) {
        if let slot = slot(of: key) { remove(slot) }
    }

    /// Empties the cache, and shrinks the table.
    func removeAll() {
        guard usedBytes > 0 else { return }
        oldest = 0
        next = 0
        usedBytes = 0
        count = 0
        table.deallocate()
        table = Self.makeTable(Self.firstTableSize)
    }

    // MARK: The ring

    /// Stores the record of a user, in place of the present one.
    ///
    /// - Parameter slot: the slot of the user's present entry, if any.
    private func put(_ record: UnsafeRawBufferPointer?, _ key: UserKey, in slot: Int?) {
        let size = Self.size(key.bytes.count, record?.count ?? 0)
        if let slot {
            // Mostly the size stays the same, because only a variation has changed. Overwriting in place evicts
            // nothing.
            if self.size(entryAt: position(slot)) == size { return fill(position(slot), key.bytes.count, record) }
            remove(slot)
        }
        // Do not cache an entry that would evict a large part of the others.
        guard size <= capacity / 8 else { return }
        makeRoom(size)
        let entry = next
        let hash = Self.hash(key)
        store(hash, at: entry)
        store(UInt32(truncatingIfNeeded: key.bytes.count), at: entry + 4)
        store(Self.alive, at: entry + 12)
        if let base = key.bytes.baseAddress {
            (ring + entry + Self.headerSize).copyMemory(from: base, byteCount: key.bytes.count)
        }
        fill(entry, key.bytes.count, record)
        next = entry + size == capacity ? 0 : entry + size
        usedBytes += size
        count += 1
        addToTable(entry, hash)
    }

    /// Frees `size` contiguous bytes at `next`. If the end of the ring is too near, `next` moves to the start, and the
    /// bytes before the end stay unused.
    private func makeRoom(_ size: Int) {
        if capacity - next < size {
            let rest = capacity - next
            evictOldest(untilFree: rest)
            if rest >= Self.headerSize { store(Self.filler, at: next + 12) }
            next = 0
            usedBytes += rest
        }
        evictOldest(untilFree: size)
    }

    /// Evicts the oldest entries until `size` bytes are free.
    private func evictOldest(untilFree size: Int) {
        while capacity - usedBytes < size {
            // The unused end of the ring is marked by a filler, or is too short for a filler. The oldest entry is then
            // at the start.
            let rest = capacity - oldest
            guard rest >= Self.headerSize, load(oldest + 12) != Self.filler else {
                usedBytes -= rest
                oldest = 0
                continue
            }
            let size = self.size(entryAt: oldest)
            if load(oldest + 12) == Self.alive { removeFromTable(entryAt: oldest) }
            usedBytes -= size
            oldest = oldest + size == capacity ? 0 : oldest + size
        }
    }

    /// Returns the size of an entry with its header and padding.
    private static func size(_ keyLength: Int, _ valueLength: Int) -> Int {
        (headerSize + keyLength + valueLength + 7) & ~7
    }

    private func size(entryAt entry: Int) -> Int {
        let length = load(entry + 8)
        return Self.size(Int(load(entry + 4)), length == Self.absentLength ? 0 : Int(length))
    }

    /// Writes the value of an entry of the right size.
    private func fill(_ entry: Int, _ keyLength: Int, _ record: UnsafeRawBufferPointer?) {
        store(record.map { UInt32(truncatingIfNeeded: $0.count) } ?? Self.absentLength, at: entry + 8)
        guard let record, let base = record.baseAddress else { return }
        (ring + entry + Self.headerSize + keyLength).copyMemory(from: base, byteCount: record.count)
    }

    private func load(_ offset: Int) -> UInt32 {
        ring.load(fromByteOffset: offset, as: UInt32.self)
    }

    private func store(_ value: UInt32, at offset: Int) {
        ring.storeBytes(of: value, toByteOffset: offset, as: UInt32.self)
    }

    /// The half of a hash that entries store.
    private static func hash(_ key: UserKey) -> UInt32 {
        UInt32(truncatingIfNeeded: key.hash)
    }

    // MARK: The table

    /// Returns the offset in the ring of the entry in a slot.
    private func position(_ slot: Int) -> Int {
        (Int(table[slot]) - 1) * 8
    }

    /// Returns the slot of a user's entry; `nil` if there is none.
    private func slot(of key: UserKey) -> Int? {
        let hash = Self.hash(key)
        let bytes = key.bytes
        let mask = table.count - 1
        var slot = Int(hash) & mask
        while table[slot] != 0 {
            let entry = position(slot)
            if load(entry) == hash, load(entry + 4) == bytes.count,
                UnsafeRawBufferPointer(start: ring + entry + Self.headerSize, count: bytes.count).hasSameBytes(
                    as: bytes)
            {
                return slot
            }
            slot = (slot + 1) & mask
        }
        return nil
    }

    private func addToTable(_ entry: Int, _ hash: UInt32) {
        if count * 2 > table.count { growTable() }
        let mask = table.count - 1
        var slot = Int(hash) & mask
        while table[slot] != 0 { slot = (slot + 1) & mask }
        table[slot] = UInt32(entry / 8 + 1)
    }

    private func growTable() {
        let former = table
        defer { former.deallocate() }
        table = Self.makeTable(former.count * 2)
        let mask = table.count - 1
        for value in former where value != 0 {
            var slot = Int(load((Int(value) - 1) * 8)) & mask
            while table[slot] != 0 { slot = (slot + 1) & mask }
            table[slot] = value
        }
    }

    private func removeFromTable(entryAt entry: Int) {
        let mask = table.count - 1
        let value = UInt32(entry / 8 + 1)
        var slot = Int(load(entry)) & mask
        while table[slot] != value {
            guard table[slot] != 0 else { return }
            slot = (slot + 1) & mask
        }
        remove(slot)
    }

    /// Removes an entry from the table. The bytes of the entry stay in the ring until they are overwritten.
    ///
    /// Moves entries behind it into the hole if linear probing would no longer find them (Knuth, The Art of Computer
    /// Programming, volume 3, 6.4, algorithm R).
    private func remove(_ slot: Int) {
        store(Self.dead, at: position(slot) + 12)
        count -= 1
        let mask = table.count - 1
        var hole = slot
        var scan = slot
        while true {
            scan = (scan + 1) & mask
            if table[scan] == 0 { break }
            // Probing for an entry begins at its home slot. The entry may move into the hole if it passes the hole on
            // its way from there.
            let home = Int(load(position(scan))) & mask
            if (scan - home) & mask >= (scan - hole) & mask {
                table[hole] = table[scan]
                hole = scan
            }
        }
        table[hole] = 0
    }
}

@available(*, unavailable) extension RecordCache: Sendable {}

/// The bytes of a user's id and their hash. The bytes are valid only during the call that lends the key.
struct UserKey {
    let bytes: UnsafeRawBufferPointer
    /// Seeded randomly in each process, so that nobody can choose ids that collide in a table.
    let hash: UInt64
}

extension UserKey {
    init(_ bytes: UnsafeRawBufferPointer) {
        var hasher = Hasher()
        hasher.combine(bytes: bytes)
        self.init(bytes: bytes, hash: UInt64(bitPattern: Int64(hasher.finalize())))
    }
}

@available(*, unavailable) extension UserKey: Sendable {}

extension Identifier {
    /// Lends the key of the user for the duration of the call.
    func withKey<Result>(_ body: (UserKey) -> Result) -> Result {
        var text = string
        return text.withUTF8 { body(UserKey(UnsafeRawBufferPointer($0))) }
    }
}
