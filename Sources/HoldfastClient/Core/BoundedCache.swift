/// A dictionary of bounded size. It evicts values that were not used for long (approximate LRU): when the recent half
/// is full, the older half is dropped, and the recent half becomes the older one. A read moves a value into the recent
/// half.
struct BoundedCache<Value> {
    private var recent: [Key: Value] = [:]
    private var older: [Key: Value] = [:]
    /// The number of values with which the recent half is full.
    private let half: Int

    /// - Parameter capacity: the maximum number of values, at least 1.
    init(capacity: Int) {
        half = max(1, capacity / 2)
    }

    /// Returns the value of a key, which then counts as used.
    @inline(__always)
    mutating func value(_ key: Key) -> Value? {
        if let value = recent[key] { return value }
        guard let value = older.removeValue(forKey: key) else { return nil }
        set(key, value)
        return value
    }

    /// Stores a value, which counts as used.
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
