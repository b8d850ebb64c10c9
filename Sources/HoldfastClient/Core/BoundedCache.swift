/// Values by their keys, of which those are forgotten that were not used for longest, roughly: there are two halves,
/// and when the recent one is full the other is thrown away and they change places.
struct BoundedCache<Value> {
    private var recent: [Key: Value] = [:]
    private var older: [Key: Value] = [:]
    private let half: Int

    /// - Parameter capacity: values kept at the most.
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

    /// All, in no order.
    var all: [(key: Key, value: Value)] {
        older.map { ($0.key, $0.value) } + recent.map { ($0.key, $0.value) }
    }
}
