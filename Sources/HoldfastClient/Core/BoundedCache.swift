/// A dictionary with approximate LRU eviction: when the recent half is full, it replaces the older half.
struct BoundedCache<Value> {
    private var recent: [Key: Value] = [:]
    private var older: [Key: Value] = [:]
    private let half: Int

    /// - Parameter capacity: the maximum number of values.
    init(capacity: Int) {
        half = max(1, capacity / 2)
    }

    @inline(__always)
    mutating func value(_ key: Key) -> Value? {
        if let value = recent[key] { return value }
        guard let value = older.removeValue(forKey: key) else { return nil }
        set(key, value)
        return value
    }

    mutating func set(_ key: Key, _ value: Value) {
        if recent.updateValue(value, forKey: key) == nil { older[key] = nil }
        guard recent.count >= half else { return }
        older = recent
        recent = [:]
    }

    /// All entries, unordered.
    var all: [(key: Key, value: Value)] {
        older.map { ($0.key, $0.value) } + recent.map { ($0.key, $0.value) }
    }
}

/// A string that is compared by its UTF-8 bytes, as the server compares ids and keys. `String.==` compares by canonical
/// equivalence and would merge differently composed letters.
struct Key: Hashable, Sendable {
    let string: String

    init(_ string: String) {
        self.string = string
    }

    static func == (left: Key, right: Key) -> Bool {
        left.string.hasSameBytes(as: right.string)
    }

    func hash(into hasher: inout Hasher) {
        var string = string
        string.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
    }
}

extension String {
    func hasSameBytes(as other: String) -> Bool {
        let isSame = utf8.withContiguousStorageIfAvailable { left in
            other.utf8.withContiguousStorageIfAvailable { right in
                left.count == right.count && left.indices.allSatisfy { left[$0] == right[$0] }
            }
        }
        return (isSame ?? nil) ?? utf8.elementsEqual(other.utf8)
    }
}
