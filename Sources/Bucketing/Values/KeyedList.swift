/// Values in the order in which their keys were first set, each found by its key.
struct KeyedList<Value> {
    private(set) var values: [Value] = []
    private(set) var keys: [Identifier] = []
    private var indices: [Identifier: Int] = [:]

    subscript(key: Identifier) -> Value? {
        indices[key].map { values[$0] }
    }

    /// Sets the value of a key; a known key keeps its place.
    mutating func set(_ key: Identifier, _ value: Value) {
        if let index = indices[key] {
            values[index] = value
        } else {
            indices[key] = values.count
            keys.append(key)
            values.append(value)
        }
    }

    /// Changes the value of a key, if there is one.
    mutating func update(_ key: Identifier, _ change: (inout Value) -> Void) {
        if let index = indices[key] {
            change(&values[index])
        }
    }
}

extension KeyedList: Sendable where Value: Sendable {}
